from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import TaskEntry, all_entries, find_suite, find_task, resolve, suites

PUBLISHED_ORDER = [
    "Biology",
    "Bioinformatics",
    "Medical-Sciences",
    "MedXpertQA-Exam",
    "MedQA-Diag",
    "PMC-Treatment",
    "PMC-Clinical",
    "IIYi-Clinical",
]


def names(text: str) -> list[str]:
    return [item.name for item in resolve(text)]


def test_there_are_three_suites_of_eight_tasks_in_the_published_order() -> None:
    found = {suite.name: [entry.source for entry in suite.entries] for suite in suites()}

    assert found == dict.fromkeys(("full", "nano", "demo"), PUBLISHED_ORDER)


@given(st.sampled_from(all_entries()), st.data())
def test_a_task_is_found_by_every_alias_whatever_the_case_and_hyphens(
    entry: TaskEntry, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from([entry.name, *entry.aliases]))
    change = data.draw(st.sampled_from([str.upper, str.lower, str.title]))
    hyphen = data.draw(st.sampled_from(["-", "_", " ", ""]))

    assert find_task(change(name).replace("-", hyphen)) == entry


def test_nano_and_demo_tasks_take_family_scenario_and_wording_from_their_source() -> None:
    for entry in all_entries():
        source = find_task(entry.source)

        assert (entry.family, entry.scenario) == (source.family, source.scenario)
        assert (entry.kind, entry.purpose) == (source.kind, source.purpose)


def test_there_are_three_families_and_five_scenarios() -> None:
    assert {entry.family for entry in all_entries()} == {
        "Q&A reference",
        "clinical evidence",
        "clinical case",
    }
    assert len({entry.scenario for entry in all_entries()}) == 5


def test_the_suites_sum_to_the_published_totals() -> None:
    for name, judgements in (("full", 2679), ("nano", 2678)):
        entries = find_suite(name).entries

        assert sum(entry.counts["queries"] for entry in entries) == 876
        assert sum(entry.counts["judgements"] for entry in entries) == judgements


def test_every_full_task_is_pinned_to_a_commit() -> None:
    for entry in find_suite("full").entries:
        assert entry.hub is not None
        assert entry.hub.repo == f"R2MED/{entry.name}"
        assert entry.hub.revision is not None and len(entry.hub.revision) == 40


def test_statistics_agree_with_counts() -> None:
    for entry in (*find_suite("full").entries, *find_suite("nano").entries):
        relevant = entry.statistics["relevant_docs"]

        assert entry.statistics["documents"] == entry.counts["documents"]
        assert relevant["num_relevant_docs"] == entry.counts["judgements"]
        assert relevant["average_relevant_docs_per_query"] == pytest.approx(
            entry.counts["judgements"] / entry.counts["queries"], abs=1e-6
        )


def test_a_task_has_checksums_or_says_that_they_are_unknown() -> None:
    for entry in find_suite("full").entries:
        assert bool(entry.files) != any("sha256" in fact for fact in entry.unknown)
    for entry in find_suite("nano").entries:
        told = " ".join(entry.unknown)
        assert "revision" in told and "sha256" in told and "licence" in told


def test_nano_tasks_carry_the_three_published_candidate_profiles() -> None:
    entries = find_suite("nano").entries
    queries = sum(entry.counts["queries"] for entry in entries)
    weighted = {
        profile: sum(e.candidates[profile]["ndcg_at_10"] * e.counts["queries"] for e in entries)
        for profile in ("bm25", "dense", "reranking_hybrid")
    }

    assert {p: round(v / queries, 4) for p, v in weighted.items()} == {
        "bm25": 0.2110,
        "dense": 0.2980,
        "reranking_hybrid": 0.2899,
    }


def test_all_means_the_eight_full_tasks() -> None:
    assert names("All") == PUBLISHED_ORDER


def test_a_list_may_mix_tasks_suites_and_folders_and_names_nothing_twice(tmp_path: Path) -> None:
    found = resolve(f"demo/biology, {tmp_path} ,nano,NanoR2MEDBiology")

    assert found[0] is find_task("demo/biology")
    assert found[1] == tmp_path
    assert found[2:] == list(find_suite("nano").entries)


def test_a_registered_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("Biology").mkdir()

    assert resolve("Biology") == [find_task("Biology")]
    assert resolve("./Biology") == [Path("Biology")]


def test_a_split_of_a_folder_is_a_path_too(tmp_path: Path) -> None:
    assert resolve(f"{tmp_path}#test") == [Path(f"{tmp_path}#test")]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("MedQA-Diagg", "Did you mean 'MedQA-Diag'"),
        ("medqa", "Did you mean 'MedQA-Diag'"),
        ("biolgy", "Did you mean 'Biology' or"),
        ("demo/medqa", "Did you mean 'demo/medqa-diag' or"),
        ("demo/biolgy", "Did you mean 'demo/biology' or"),
        ("nano/bilogy", "Did you mean 'nano/Biology' or"),
        ("NanoR2MEDBiologi", "'NanoR2MEDBiology'"),
        ("./nowhere", "nowhere does not exist, expected a folder"),
        (" , ", "No task was named"),
    ],
)
def test_an_unknown_name_is_refused_with_what_was_meant(text: str, told: str) -> None:
    with pytest.raises(UsageError) as error:
        resolve(text)

    assert told in str(error.value)


def test_an_unknown_suite_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"Unknown suite 'nana'\. Did you mean 'nano'"):
        find_suite("nana")


def test_data_lies_under_the_home_folder_and_is_present_when_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    entry = find_task("Biology")
    folder = data_folder(entry)
    folder.mkdir(parents=True)
    for name in ("corpus.jsonl", "query.jsonl.gz"):
        (folder / name).touch()

    assert folder == tmp_path / "data" / "full" / "Biology"
    assert not is_present(entry)

    (folder / "qrels.txt").touch()

    assert is_present(entry)


def test_a_nano_task_is_present_when_its_split_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path))
    for config in ("corpus", "queries", "qrels"):
        (tmp_path / "data/nano" / config).mkdir(parents=True)
        (tmp_path / "data/nano" / config / "NanoR2MEDBiology-00000-of-00001.parquet").touch()

    assert is_present(find_task("nano/Biology"))
    assert not is_present(find_task("nano/MedQA-Diag"))


def test_the_registry_loads_no_heavy_library() -> None:
    program = (
        "import sys; from r2med.tasks.registry import find_task; find_task('Biology');"
        "print([m for m in ('numpy', 'pyarrow', 'polars', 'huggingface_hub') if m in sys.modules])"
    )

    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert told.stdout.strip() == "[]", told.stderr


def test_no_name_or_alias_stands_for_two_tasks() -> None:
    for entry in all_entries():
        assert all(find_task(name) is entry for name in (entry.name, *entry.aliases))
