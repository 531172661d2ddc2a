"""`r2med agents import`, `list`, `score` and `export`, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r2med.agents.call_log import AgentCall, CallLog, LogSetup, document_code
from r2med.tasks.task import Task
from tests.agents.test_browsecomp import result, write
from tests.cli.running import run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Results of an outside agent: two good files, one malformed, one on an unknown query."""
    folder = tmp_path / "outside"
    write(folder, "run_1.json", result())
    write(folder, "run_2.json", result(query_id="2", retrieved_docids=["web-page"], result=[]))
    write(folder, "run_3.json", result(query_id="3", status=None))
    write(folder, "run_9.json", result(query_id="9"))
    return folder


def test_a_folder_is_imported_scored_exported_and_scored_again(
    runs: Path, folder: Path, tmp_path: Path
) -> None:
    task = ("--task", str(folder))
    imported = run("agents", "import", str(runs), *task, "--agent", "elsewhere")
    assert imported.code == 0, imported.err
    assert "2 traces of 2 of 3 queries" in imported.out
    assert "run_3.json: field 'status'" in imported.err and "'9'" in imported.err
    assert "web-page" in imported.err

    scored = run("agents", "score", "elsewhere", *task, "--json")
    exported = run("agents", "export", "elsewhere", *task, "--out", str(tmp_path / "back"))
    again = run("agents", "score", str(tmp_path / "back"), *task, "--json")

    assert "wrote 2 files" in exported.out
    first, second = (json.loads(outcome.out)["agents"][0] for outcome in (scored, again))
    assert first["means"] == second["means"] and first["calibration"] == second["calibration"]
    assert first["means"]["recall"]["value"] == 0.25
    listed = json.loads(run("agents", "list", "--json").out)
    assert [(row["name"], row["queries"], row["format"]) for row in listed] == [
        ("elsewhere", 2, "browsecomp")
    ]


def test_the_table_names_what_was_left_out(runs: Path, folder: Path) -> None:
    outcome = run("agents", "score", str(runs), "--task", str(folder))

    assert outcome.code == 0
    words = " ".join(outcome.out.split())
    assert "outside 2/3 25.0 (" in words and "1 query of" in words
    assert "1 of 2 traces end without an answer" in words


@pytest.mark.parametrize("form", ["markdown", "latex", "csv"])
def test_scores_are_shown_in_every_format(runs: Path, folder: Path, form: str) -> None:
    outcome = run("agents", "score", str(runs), "--task", str(folder), "--format", form)

    assert outcome.code == 0 and "outside" in outcome.out


def test_a_name_is_not_overwritten_without_force(runs: Path, folder: Path) -> None:
    arguments = ("agents", "import", str(runs), "--task", str(folder))
    assert run(*arguments).code == 0

    assert run(*arguments).code == 2
    assert run(*arguments, "--force").code == 0


@pytest.mark.parametrize("name", ["../up", "", "a/b", ".hidden", "x" * 81])
def test_a_name_that_leads_elsewhere_is_refused(runs: Path, folder: Path, name: str) -> None:
    outcome = run("agents", "import", str(runs), "--task", str(folder), f"--agent={name}")

    assert outcome.code == (0 if name == "" else 2)
    assert not Path("r2med-results/agents/local/up.traces").exists()


def test_a_damaged_trace_set_is_named(runs: Path, folder: Path) -> None:
    run("agents", "import", str(runs), "--task", str(folder))
    [path] = Path("r2med-results").rglob("*.traces")
    path.write_text(path.read_text(encoding="utf-8").replace("toe pain", "toe gain"))

    outcome = run("agents", "score", "outside", "--task", str(folder))

    assert outcome.code == 1 and f"{path.name}, line 2" in outcome.err


def test_a_cut_trace_set_is_named(runs: Path, folder: Path) -> None:
    run("agents", "import", str(runs), "--task", str(folder))
    [path] = Path("r2med-results").rglob("*.traces")
    path.write_text("".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:2]))

    outcome = run("agents", "score", "outside", "--task", str(folder))

    assert outcome.code == 1 and "cut off" in outcome.err


@pytest.mark.parametrize("source", ["no-such-thing", "no/such/folder"])
def test_an_unknown_source_is_refused(folder: Path, source: str) -> None:
    assert run("agents", "score", source, "--task", str(folder)).code in (1, 2)


def test_an_empty_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    outcome = run("agents", "score", str(tmp_path / "empty"), "--task", str(folder))

    assert outcome.code == 1 and "0 JSON files" in outcome.err


def make_log(folder: Path, task: Task, *calls: AgentCall) -> None:
    setup = LogSetup(task.name, task.hash, "bm25", 5)
    log = CallLog(folder, setup, warn=pytest.fail)
    for call in calls:
        log.append(call)
    log.close()


def search(task: Task, session: str, *documents: str) -> AgentCall:
    codes = tuple(document_code(task.corpus.hash, name) for name in documents)
    return AgentCall("search", session, "words", documents, codes)


def test_a_log_becomes_traces_by_session(task: Task, folder: Path, tmp_path: Path) -> None:
    code = document_code(task.corpus.hash, "gout-1")
    make_log(
        tmp_path / "log",
        task,
        search(task, "1", "gout-1", "other-1"),
        search(task, "1#2", "other-1"),
        AgentCall("failed", "1", "words", problem="no index"),
        AgentCall("answer", "1", "Maybe beer"),
        AgentCall(
            "answer", "1", f"Gout [{code}]", confidence=0.5, tokens=30, citations=("unseen",)
        ),
        search(task, "somebody"),
    )

    outcome = run("agents", "score", str(tmp_path / "log"), "--task", str(folder), "--json")

    assert outcome.code == 0, outcome.err
    assert "1 session" in outcome.err and "'somebody'" in outcome.err and "1 call" in outcome.err
    first, second = json.loads(outcome.out)["agents"][0]["scores"]
    assert (first["sample"], first["searches"], first["tokens"]) == (0, 1, 30)
    assert (first["correct"], first["used_positive"], first["citation_precision"]) == (1, 1, 1)
    assert (second["sample"], second["completed"], second["recall"]) == (1, False, 0)


def test_a_log_of_another_task_is_refused(task: Task, tmp_path: Path) -> None:
    make_log(tmp_path / "log", task, search(task, "1", "gout-1"))

    outcome = run("agents", "score", str(tmp_path / "log"), "--task", "demo/biology")

    assert outcome.code == 2 and "recorded on" in outcome.err


def test_a_damaged_line_of_a_log_is_left_out(task: Task, folder: Path, tmp_path: Path) -> None:
    make_log(tmp_path / "log", task, *(search(task, "1", "gout-1") for _ in range(3)))
    [path] = (tmp_path / "log").glob("*.calls")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"0" + lines[2], *lines[3:], b"half a li"]))

    outcome = run("agents", "score", str(tmp_path / "log"), "--task", str(folder), "--json")

    assert "checksum" in outcome.err
    assert json.loads(outcome.out)["agents"][0]["scores"][0]["searches"] == 2
