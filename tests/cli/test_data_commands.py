"""The commands about data: tasks, fetch, verify and cache."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.paths import CACHE_FOLDERS, PAID_FOLDERS, cache_folder, home_folder
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import find_task
from tests.cli.running import run
from tests.hub_server import Hub, running_hub
from tests.tasks.small_registry import BIOLOGY, MEDQA, small_registry, task_files, write

__all__ = ["small_registry"]


@pytest.fixture
def hub(small_registry: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.add("R2MED/Biology", "a" * 40, BIOLOGY)
        yield hub


@pytest.mark.parametrize("by", ["task", "scenario", "family"])
def test_the_list_of_tasks_fits_eighty_columns_in_a_pipe(by: str) -> None:
    outcome = run("tasks", "--by", by)

    assert outcome.code == 0
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80
    assert "\x1b" not in outcome.out
    for title in ("R2MED · suite full", "NanoR2MED · suite nano", "suite demo"):
        assert title in outcome.out


def test_the_list_says_whose_data_is_here() -> None:
    write(data_folder(find_task("Biology")), BIOLOGY)

    rows = {
        cells[0]: cells[1]
        for line in run("tasks", "list", "full").out.splitlines()
        if len(cells := line.split()) > 3
    }

    assert rows["Biology"] == "yes" and rows["Bioinformatics"] == "no"


def test_groups_add_up_their_tasks() -> None:
    out = run("tasks", "list", "nano", "--by", "family").out

    row = next(line for line in out.splitlines() if line.startswith("clinical evidence"))
    assert row.split()[2:6] == ["0/3", "365", "30,000", "3.1"]


def test_one_task_is_shown_with_revision_licence_citation_and_what_is_unknown() -> None:
    full, nano = run("tasks", "show", "biology").out, run("tasks", "show", "nano/biology").out

    assert "8b9fec2db9eda4b5742d03732213fbaee8169556" in full
    assert "arXiv:2505.14558" in full
    assert "sha256 and size of corpus.jsonl" in full
    assert "not pinned" in nano and "licence      unknown" in nano


def test_tasks_as_json_is_nothing_but_json() -> None:
    rows = json.loads(run("tasks", "--json").out)

    assert len(rows) == 24
    biology = next(row for row in rows if row["name"] == "Biology")
    assert biology["counts"] == {"queries": 103, "documents": 57359, "judgements": 374}
    assert biology["present"] is False
    assert biology["hub"]["repo"] == "R2MED/Biology"


@pytest.mark.parametrize(
    "arguments",
    [
        ("tasks", "show", "bilogy"),
        ("tasks", "--by", "colour"),
        ("fetch",),
        ("cache", "clear", "arow"),
    ],
)
def test_wrong_usage_is_an_error_on_standard_error_with_code_two(
    arguments: tuple[str, ...],
) -> None:
    outcome = run(*arguments)

    assert outcome.code == 2
    assert outcome.err.startswith("error: ") and outcome.out == ""


def test_fetch_brings_a_task_and_verify_finds_it_sound(hub: Hub) -> None:
    fetched = run("fetch", "Biology")
    verified = run("tasks", "verify", "Biology")

    assert (fetched.code, fetched.out) == (0, "Biology: 3 files fetched at aaaaaaaaaaaa\n")
    assert fetched.err == ""
    assert run("fetch", "Biology").out == "Biology: files already here at aaaaaaaaaaaa\n"
    assert verified.code == 0
    assert "DIFFERS" not in verified.out and "sha256: corpus.jsonl" in verified.out


def test_fetch_as_json_is_nothing_but_json(hub: Hub) -> None:
    [row] = json.loads(run("fetch", "Biology", "--json").out)

    assert row["task"] == "Biology" and row["files"] == 3 and row["commit"] == "a" * 40


def test_a_failed_fetch_is_an_error_with_code_one(hub: Hub) -> None:
    outcome = run("fetch", "MedQA-Diag")

    assert outcome.code == 1 and outcome.out == ""
    assert "R2MED/MedQA-Diag" in outcome.err and "--from ZIP|DIR" in outcome.err


def test_fetch_takes_a_zip_the_user_has(small_registry: None, tmp_path: Path) -> None:
    source = tmp_path / "MedQA-Diag.zip"
    with zipfile.ZipFile(source, "w") as archive:
        for name, content in MEDQA.items():
            archive.writestr(name, content)

    outcome = run("fetch", "--from", str(source))

    assert outcome.code == 0 and outcome.out.startswith("MedQA-Diag: 3 files taken from")
    assert is_present(find_task("MedQA-Diag"))


def test_verify_fails_when_anything_differs_and_shows_what(small_registry: None) -> None:
    write(data_folder(find_task("Biology")), task_files(4))
    write(data_folder(find_task("MedQA-Diag")), MEDQA)

    outcome = run("tasks", "verify")
    rows = json.loads(run("tasks", "verify", "--json").out)

    assert outcome.code == 1
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80
    assert "1 DIFFERS, 2 ok" in outcome.out
    assert {row["fact"] for row in rows if row["passed"] is False} == {
        "documents",
        "documents_text.total_text_length",
        "corpus.jsonl",
    }


def test_verify_without_any_data_says_how_to_get_some(small_registry: None) -> None:
    outcome = run("tasks", "verify")

    assert outcome.code == 1 and "r2med fetch" in outcome.err


def test_cache_shows_the_size_of_each_cache() -> None:
    write(cache_folder("data"), {"full/Biology/corpus.jsonl": b"x" * 2_500_000})

    outcome = run("cache")
    shown = json.loads(run("cache", "--json").out)

    assert str(home_folder()) in outcome.out and "2.5 MB" in outcome.out
    assert {row["cache"]: row["bytes"] for row in shown["caches"]}["data"] == 2_500_000


def test_clearing_a_cache_leaves_the_others_and_the_results() -> None:
    write(cache_folder("arrow"), {"copy": b"x"})
    write(cache_folder("data"), {"full/Biology/corpus.jsonl": b"x"})
    write(Path("r2med-results"), {"result.json": b"{}"})

    outcome = run("cache", "clear", "arrow", "--yes")

    assert outcome.code == 0
    assert not cache_folder("arrow").exists()
    assert cache_folder("data").exists() and Path("r2med-results/result.json").exists()


def test_clearing_asks_first_and_a_pipe_is_not_consent() -> None:
    write(cache_folder("arrow"), {"copy": b"x"})

    outcome = run("cache", "clear")

    assert outcome.code == 1
    assert cache_folder("arrow").exists()


def test_what_paid_models_answered_is_cleared_only_by_name() -> None:
    for name in CACHE_FOLDERS:
        write(cache_folder(name), {"file": b"x"})

    everything = run("cache", "clear", "--yes")
    left = [name for name in CACHE_FOLDERS if cache_folder(name).exists()]
    named = run("cache", "clear", *PAID_FOLDERS, "--yes")

    assert everything.code == named.code == 0
    assert left == list(PAID_FOLDERS)
    assert f"kept: {', '.join(PAID_FOLDERS)}" in everything.out
    assert not any(cache_folder(name).exists() for name in CACHE_FOLDERS)
