"""`r2med review`: files out and in, and agreement."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from r2med.tasks.load import load_task
from tests.cli.running import run
from tests.judge.making import store_grades

TASK = ("--task", "demo/biology")


@pytest.fixture
def judged() -> None:
    task = load_task("demo/biology")
    grades = {
        (query_id, document_id): (row + column) % 4
        for row, query_id in enumerate(task.queries.ids.to_pylist())
        for column, document_id in enumerate(task.corpus.document_ids.to_pylist()[:20])
    }
    store_grades(Path("r2med-results"), task, "judge", grades)


@pytest.mark.usefixtures("judged")
def test_two_files_are_labelled_and_agreement_is_shown() -> None:
    for reviewer, shift in (("ann", 0), ("ben", 1)):
        name = f"{reviewer}.csv"
        done = run("review", "export", *TASK, "--reviewer", reviewer, "--size", "30", "--out", name)
        assert done.code == 0, done.err
        rows = list(csv.reader(io.StringIO(Path(name).read_text("utf-8-sig"), newline="")))
        assert len(rows) == 31 and not any("biology-" in cell for row in rows for cell in row)
        for row in rows[1:]:
            row[1] = str((int(row[0], 16) + shift) % 4)
        with Path(name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        imported = run("review", "import", name, *TASK, "--reviewer", reviewer)
        assert imported.code == 0 and f"stored 30 labels of {reviewer}" in imported.out

    shown = run("review", "agreement", *TASK)
    assert "Krippendorff's alpha" in shown.out and "judge judge" in shown.out
    values = json.loads(run("review", "agreement", *TASK, "--json").out)
    assert values["pairs"] == 30 and values["disagreements"] == 30
    assert values["agreement"]["pairs"][0]["percent"]["value"] == 0.0


def test_a_review_needs_judgements() -> None:
    done = run("review", "export", *TASK, "--reviewer", "ann", "--out", "a.csv")

    assert done.code == 1 and "no judgements to review" in done.err
    assert "no review was started" in run("review", "agreement", *TASK).err


@pytest.mark.usefixtures("judged")
def test_a_wrong_file_is_refused() -> None:
    run("review", "export", *TASK, "--reviewer", "ann", "--out", "ann.csv")

    done = run("review", "import", "ann.csv", *TASK, "--reviewer", "ann")

    assert done.code == 1 and "nothing was imported" in done.err and "--partial" in done.err
    assert run("review", "export", *TASK, "--reviewer", "ann", "--out", "a.txt").code == 2
