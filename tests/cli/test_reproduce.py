"""`r2med reproduce`: with data a verdict, without it the command that gets it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.running import run


def small_copy(root: Path, task: str) -> None:
    folder = root / task
    folder.mkdir(parents=True)
    documents = [{"id": f"d{n}", "text": text} for n, text in enumerate(("heart", "lung", "liver"))]
    queries = [{"id": "1", "text": "heart"}, {"id": "2", "text": "lung"}]
    judged = [{"q_id": "1", "p_id": "d0", "score": 1}, {"q_id": "2", "p_id": "d2", "score": 1}]
    for name, rows in (("corpus", documents), ("query", queries), ("qrels", judged)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)


def test_without_data_the_published_figures_stand_and_the_command_is_named() -> None:
    shown = run("reproduce", "bm25")

    told = " ".join(shown.out.split())
    assert shown.code == 1
    assert "19.188" in shown.out and "not run" in shown.out
    assert "All of them: r2med fetch full" in told and "load_task" not in told


def test_a_system_of_published_generations_fetches_them_too() -> None:
    shown = run("reproduce", "hyde:gpt4 | bm25", "--task", "Biology,MedQA-Diag")

    told = " ".join(shown.out.split())
    assert "`r2med fetch TASK --generations`" in told
    assert "All of them: r2med fetch Biology MedQA-Diag --generations" in told


def test_tasks_that_have_data_are_shown_beside_those_that_have_none(tmp_path: Path) -> None:
    small_copy(tmp_path, "Biology")

    shown = run(
        "reproduce", "bm25", "--task", "Biology,MedQA-Diag", "--data-root", str(tmp_path), "--json"
    )

    biology, diagnosis = json.loads(shown.out)["tasks"]
    assert shown.code == 1
    assert (biology["verdict"], biology["queries"], biology["missing"]) == ("different", 2, None)
    assert "differs from the manifest" in biology["reasons"][0]
    assert (diagnosis["verdict"], diagnosis["published"]) == (None, 0.02551)
    assert "MedQA-Diag" in diagnosis["missing"]


def test_a_difference_is_printed_with_its_reasons(tmp_path: Path) -> None:
    small_copy(tmp_path, "Biology")

    shown = run("reproduce", "bm25", "--task", "Biology", "--data-root", str(tmp_path))

    assert shown.code == 4
    assert "different" in shown.out
    assert "Known reasons for a difference:" in shown.out


def test_an_unpublished_system_is_wrong_usage() -> None:
    shown = run("reproduce", "bm25-lucene")

    assert shown.code == 2
    assert "No figures of full are published for 'bm25-lucene'" in shown.err


def test_strict_refuses_data_that_is_not_the_published_even_with_a_stored_result(
    tmp_path: Path,
) -> None:
    small_copy(tmp_path, "Biology")
    command = ("eval", "bm25", "--task", "Biology", "--data-root", str(tmp_path))

    lax, strict = run(*command), run(*command, "--strict")

    assert (lax.code, strict.code) == (0, 1)
    assert "differs from the manifest of Biology" in strict.err
