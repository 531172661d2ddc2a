from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import MissingError
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.load import Check, check_files, compare_with_manifest, load_task
from r2med.tasks.registry import TaskEntry, find_task
from tests.hub_server import sha256
from tests.tasks.small_registry import BIOLOGY, MEDQA, NANO, small_registry, task_files, write

__all__ = ["small_registry"]

pytestmark = pytest.mark.usefixtures("small_registry")


def verify(entry: TaskEntry, root: Path | None = None) -> list[Check]:
    task = load_task(entry.name, root=root)
    return [*compare_with_manifest(task, entry), *check_files(entry, task.source)]


def by_fact(checks: list[Check]) -> dict[str, Check]:
    return {check.fact: check for check in checks}


def test_published_data_agrees_in_counts_statistics_and_checksums() -> None:
    entry = find_task("Biology")
    write(data_folder(entry), BIOLOGY)

    checks = by_fact(verify(entry))

    known = {name for name, check in checks.items() if check.passed is not None}
    assert known == {
        "queries",
        "documents",
        "judgements",
        "documents_text.total_text_length",
        "documents_text.average_text_length",
        *BIOLOGY,
    }
    assert all(checks[name].passed for name in known)


def test_what_the_manifest_does_not_know_is_shown_as_unknown_with_what_was_found() -> None:
    entry = find_task("MedQA-Diag")
    write(data_folder(entry), MEDQA)

    checks = by_fact(verify(entry))

    corpus = checks["corpus.jsonl"]
    assert (corpus.expected, corpus.passed) == (None, None)
    assert corpus.found == sha256(MEDQA["corpus.jsonl"])
    assert checks["queries_text.unique_texts"].passed is None


def test_every_difference_is_a_row_of_its_own() -> None:
    entry = find_task("Biology")
    write(data_folder(entry), task_files(4))

    differing = [check for check in verify(entry) if check.passed is False]

    assert {(check.aspect, check.fact) for check in differing} == {
        ("counts", "documents"),
        ("statistics", "documents_text.total_text_length"),
        ("sha256", "corpus.jsonl"),
    }
    assert differing[0].expected == 3 and differing[0].found == 4


def test_data_of_the_user_is_checked_where_it_lies(tmp_path: Path) -> None:
    write(tmp_path / "Biology", BIOLOGY)

    checks = verify(find_task("Biology"), root=tmp_path)

    assert all(check.passed is not False for check in checks)


def test_rounded_nano_figures_agree_to_six_decimals() -> None:
    entry = find_task("nano/Biology")
    write(data_folder(entry), NANO)

    checks = by_fact(verify(entry))

    assert checks["documents_text.average_text_length"].passed is True
    assert checks["documents"].passed is True


def test_data_that_is_not_here_is_told_with_how_to_get_it() -> None:
    with pytest.raises(MissingError, match="r2med fetch Biology"):
        verify(find_task("Biology"))
