"""Commands under other locales, odd paths, links, redirected logs and missing libraries."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import r2med
from r2med.paths import cache_folder
from r2med.report.console import LogBar, console
from r2med.report.table import format_age
from r2med.tables import csv_text
from tests.cli.running import ended, run, start

DEMO = Path(r2med.__file__).parent / "tasks" / "demo" / "biology"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("name", ["Tâche", "任务"])
def test_a_name_outside_the_locale_s_characters_is_stored_and_found(name: str) -> None:
    shutil.copytree(DEMO, name)
    environment = {**os.environ, **ASCII}

    done = ended(start("eval", "bm25", "--task", f"./{name}", env=environment))
    listed = ended(start("results", "--json", env=environment))

    assert (done.code, listed.code) == (0, 0), done.err
    assert [row["task"] for row in json.loads(listed.out)] == [name]
    assert "Traceback" not in done.err


def test_a_path_that_is_not_utf_8_is_refused() -> None:
    program = "from r2med.cli import main; main()"
    words = ["eval", "bm25", "--results"]
    command: list[str | bytes] = [sys.executable, "-c", program, *words, b"r\xe9s"]

    done = subprocess.run(command, capture_output=True, text=True)

    assert done.returncode == 2
    assert "argument 4 (r\\xe9s) is not valid UTF-8" in done.stderr


def test_a_linked_cache_folder_is_cleared_and_stays_linked(tmp_path: Path) -> None:
    run("eval", "bm25", "--task", "demo/biology")
    folder, elsewhere = cache_folder("indexes"), tmp_path / "elsewhere"
    shutil.move(folder, elsewhere)
    folder.symlink_to(elsewhere)

    done = run("cache", "clear", "indexes", "--yes")

    assert done.code == 0, done.err
    assert folder.is_symlink() and list(elsewhere.iterdir()) == []


def test_a_date_in_the_future_has_no_age() -> None:
    assert format_age("2126-01-01T00:00:00+00:00") == "in the future"


def test_a_redirected_log_gets_lines_of_progress() -> None:
    printed = threading.Event()

    class Log(io.StringIO):
        def write(self, text: str) -> int:
            if "of 8" in text:
                printed.set()
            return super().write(text)

    log = Log()
    with LogBar(console(log), interval=0.001) as bar:
        line = bar.add_task("evaluating", total=8)
        bar.update(line, advance=3, description="demo/biology · bm25")
        assert printed.wait(60)

    assert "s: demo/biology · bm25 3 of 8" in log.getvalue()


def test_an_audit_that_was_killed_between_its_reports_goes_on() -> None:
    Path("train.jsonl").write_text('{"text": "nothing of it"}\n')
    command = ("audit", "train.jsonl", "--task", "demo/biology", "--out", "report")
    first = run(*command)
    Path("report/audit.json").unlink()

    again, third = run(*command), run(*command)

    assert (first.code, again.code, third.code) == (0, 0, 2)


def test_labels_that_a_spreadsheet_would_run_are_escaped() -> None:
    texts = ["=1+1", "+1", "-1", "@sum(a)", "plain", "a=b"]
    table = pa.table({"label": texts, "value": [-1.5] * len(texts)})

    rows = list(csv.DictReader(io.StringIO(csv_text(table))))

    assert [row["label"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@sum(a)", "plain", "a=b"]
    assert {row["value"] for row in rows} == {"-1.5"}


@pytest.mark.parametrize(("library", "arguments"), [
    ("safetensors", ("eval", "wordllama", "--task", "demo/biology")),
    ("python_multipart", ("explore", "--no-open")),
])  # fmt: skip
def test_a_missing_library_is_named(library: str, arguments: tuple[str, ...]) -> None:
    program = f"""
import importlib.machinery, sys
find = importlib.machinery.PathFinder.find_spec
def without(name, *args, **settings):
    return None if name == {library!r} else find(name, *args, **settings)
importlib.machinery.PathFinder.find_spec = without
from r2med.cli import main
main()
"""
    command = [sys.executable, "-c", program, *arguments]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert library in done.stderr and "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_reranker_of_the_reference_scripts_is_refused() -> None:
    options = "--mode eval_reranker --retriever_name bm25 --reranker_name nonsense --task Biology"

    done = run("run", *options.split(), "--dry-run")

    assert done.code == 2 and "'nonsense' is not a known name" in done.err


def test_a_judgement_of_a_document_that_cannot_be_read_is_no_second_problem() -> None:
    folder = Path("bad")
    folder.mkdir()
    folder.joinpath("corpus.jsonl").write_text('{"id": "a", "text": ["x"]}\n')
    folder.joinpath("query.jsonl").write_text('{"id": "1", "text": "q"}\n')
    judged = '{"q_id": "1", "p_id": "a", "score": 1}\n{"q_id": "1", "p_id": "b", "score": 1}\n'
    folder.joinpath("qrels.jsonl").write_text(judged)

    problems = json.loads(run("tasks", "check", "bad", "--json").out)

    texts = [problem["problem"] for problem in problems]
    assert texts == ['field "text" is a list, expected a string.', 'there is no document "b"']


def test_the_kind_of_a_finding_is_in_every_part_of_a_wide_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = json.loads((DEMO / "query.jsonl").read_text().splitlines()[0])["text"]
    Path("train.jsonl").write_text(json.dumps({"text": text}) + "\n")
    command = ("audit", "train.jsonl", "--task", "demo", "--against", "queries,positives,corpus")

    lines = run(*command).out.splitlines()

    headings = [line for line in lines if line.startswith("task ")]
    assert len(headings) >= 2
    assert all("kind" in line for line in headings[:2])
