"""Presets are nothing but settings, and a figure meets only results of its own protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import UsageError
from r2med.evaluation.reproduce import find_published
from r2med.results.leaderboard import leaderboard
from r2med.results.overlap import write_audit
from r2med.results.protocols import compare_figures, compare_protocols, printed_beside
from r2med.results.published import METRIC, printed_figures, works
from r2med.settings import settings_identity
from r2med.systems.build import read_settings
from r2med.systems.registry import configure, entries
from r2med.systems.spec import Unit
from tests.cli.running import run
from tests.results.storing import ranks, store
from tests.results.test_leaderboard import FULL

PRESETS = [(name, preset) for name, entry in entries().items() for preset in entry.protocols]


def written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_preset_is_the_system_whose_settings_are_written_out(name: str, preset: str) -> None:
    settings = entries()[name].protocols[preset]
    short = Unit(name, options=(("protocol", preset),))
    long = Unit(name, options=tuple((key, written(value)) for key, value in settings.items()))

    one, other = (read_settings(configure(unit)) for unit in (short, long))

    assert one == other
    assert settings_identity(one) == settings_identity(other)


def test_options_beside_a_preset_override_it() -> None:
    unit = Unit("e5", options=(("max_length", "99"), ("protocol", "reasonembed")))

    settings = read_settings(configure(unit))

    assert settings.max_length == 99
    assert settings.query_instruction.endswith("{purpose}.\nQuery: ")


@pytest.mark.parametrize(
    ("unit", "message"),
    [
        (Unit("e5", options=(("protocol", "mtebb"),)), "no such protocol. Did you mean 'mteb'?"),
        (Unit("medcpt", options=(("protocol", "mteb"),)), "It has only its own"),
        (Unit("bm25", options=(("protocol", "mteb"),)), "It has only its own"),
    ],
)
def test_an_unknown_preset_is_named(unit: Unit, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(unit)


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("e5", ["r2med", "page"]),
        ("e5[protocol=mteb]", ["mteb"]),
        ("e5[max_length=99]", []),
        ("qwen3-8b", []),
        ("qwen3-8b[protocol=reasonembed]", ["reasonembed"]),
        ("reasonembed-8b", ["reasonembed"]),
        ("diver[protocol=own]", []),
        ("bge", ["r2med", "page", "mteb"]),
        ("hyde:gpt4[generations=published] | nv", ["r2med", "page"]),
        ("nv | rankllama@10", ["r2med"]),
        ("dense:somewhere", []),
        ("bm25-lucene", []),
    ],
)
def test_a_system_meets_the_figures_of_its_own_protocol(system: str, expected: list[str]) -> None:
    found = [work.id for figure in printed_beside(system) for work in figure.works]

    assert found == expected


def test_every_preset_of_a_work_meets_a_figure_of_that_work() -> None:
    for name, preset in PRESETS:
        printed = [
            figure
            for figure in printed_figures("full", METRIC).get(name, ())
            if preset in [work.preset for work in figure.works]
        ]

        assert set(printed_beside(f"{name}[protocol={preset}]")) >= set(printed)
    assert {work.preset for work in works().values()} == {"", "mteb", "reasonembed"}


def test_the_comparison_of_two_protocols_names_the_fields_that_differ() -> None:
    compared = compare_protocols("qwen3-8b", "qwen3-8b[protocol=reasonembed]")

    assert set(compared.fields) == {
        "query_instruction",
        "query_max_length",
        "document_max_length",
    }
    assert compared.fields["query_max_length"] == ("8192", "512")
    assert compared.equal["pooling"] == "last"
    assert not any(compared.unknown.values())


def test_stages_are_compared_one_by_one() -> None:
    compared = compare_protocols("bm25 | bge-reranker@10", "bm25 | monobert@100")

    assert compared.fields["2. name"] == ("bge-reranker", "monobert")
    assert compared.fields["2. depth"] == ("10", "100")
    assert compared.equal["1. name"] == "bm25"


def test_a_setting_that_only_one_system_can_have_is_a_difference() -> None:
    compared = compare_protocols("bm25", "bge")
    staged = compare_protocols("bm25", "bm25 | monobert@100")

    assert compared.fields["k1"][1] == compared.fields["checkpoint"][0] == "does not apply"
    assert not any(compared.unknown.values())
    assert staged.fields["2. name"] == ("does not apply", "monobert")
    assert staged.equal["1. name"] == "bm25"


def test_what_a_work_does_not_say_is_unknown() -> None:
    compared = compare_figures("e5")

    assert compared.fields["dtype"] == ("float32", "unknown", "float16")
    assert set(compared.unknown["ReasonRank"]) >= {"pooling", "query_instruction", "revision"}
    assert "checkpoint" not in compared.unknown["ReasonRank"]


def test_a_later_work_can_be_reproduced_by_its_preset() -> None:
    published = find_published("e5[protocol=mteb]", "full")

    assert published.values(METRIC)["Biology"] == pytest.approx(0.1854)
    assert published.decimals == 4
    assert "embeddings-benchmark/results" in published.origins["Biology"]


def test_a_measured_row_says_which_figure_it_may_be_set_beside() -> None:
    results = [
        store(Path("kept"), system, task, ranks(1, 0))
        for system in ("e5[protocol=mteb]", "e5[max_length=99]")
        for task in FULL
    ]

    board = leaderboard(results=results)

    beside = {row.system: row.beside for row in board.rows if row.origin == "measured"}
    assert beside["e5[max_length=99]"] == ()
    assert beside["e5[protocol=mteb]"] == (str(works()["mteb"]),)


def test_protocols_are_compared_on_the_command_line_without_results() -> None:
    shown = run("compare", "--protocols", "e5", "e5[protocol=mteb]")
    alone = run("compare", "--protocols", "e5")

    words = " ".join(shown.out.split())
    assert shown.code == 0, shown.err
    assert "query max length 2048 the model's own" in words
    assert "e5[protocol=mteb] is comparable with mteb's result repository" in words
    assert alone.code == 2 and "two systems or more" in alone.err


def test_a_comparison_of_protocols_is_data_too() -> None:
    compared = compare_protocols("qwen3-8b", "qwen3-8b[protocol=reasonembed]")

    fields = {row.pop("field"): tuple(row.values()) for row in compared.to_arrow().to_pylist()}

    assert fields == compared.fields
    assert compared.to_json()["equal"]["pooling"] == "last"


def test_a_stored_audit_of_declared_training_data_flags_a_row() -> None:
    outcome = {
        "task": "PMC-Treatment",
        "hash": "h",
        "training": "reasonir/reasonir-data",
        "verdict": "contaminated",
        "reason": "9 queries",
        "rows": 5,
        "created": "2026-01-01",
    }
    write_audit(Path("kept"), outcome)
    write_audit(Path("kept"), {**outcome, "task": "PMC-Clinical", "verdict": "suspicious"})

    board = leaderboard(results=Path("kept"))

    rows = {row.system: row for row in board.rows}
    assert {flag.task for flag in rows["reasonir"].flags} == {"Biology", "PMC-Treatment"}
    assert rows["nv"].flags == ()


def test_settings_that_could_not_be_verified_are_said_where_protocols_are_compared() -> None:
    told = compare_figures("gte-qwen2-7b").unverified

    assert len(told) == 1 and told[0].startswith("gte-qwen2-7b: bidirectional attention")
    assert compare_protocols("e5", "rader").unverified[0].startswith("rader: its attention")
