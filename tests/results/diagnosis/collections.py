"""A tiny medical collection in which every cause can be staged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from r2med.results.select import Ranking
from r2med.runs import Run
from r2med.runs.run import sort_lists
from r2med.tasks.load import load_task
from r2med.tasks.task import Task


def task_of(
    folder: Path,
    corpus: Mapping[str, str],
    queries: Mapping[str, str],
    judged: Mapping[str, Mapping[str, int]],
) -> Task:
    folder.mkdir(parents=True, exist_ok=True)
    _lines(folder / "corpus.jsonl", [{"id": name, "text": text} for name, text in corpus.items()])
    _lines(folder / "query.jsonl", [{"id": name, "text": text} for name, text in queries.items()])
    rows = [
        {"q_id": query, "p_id": document, "score": score}
        for query, own in judged.items()
        for document, score in own.items()
    ]
    _lines(folder / "qrels.jsonl", rows)
    return load_task(folder)


def ranking_of(lists: Mapping[str, list[str]], name: str = "staged") -> Ranking:
    """Lists as a run whose scores fall with the rank."""
    run = Run.from_lists(
        {
            query: [(document, float(-rank)) for rank, document in enumerate(listed)]
            for query, listed in lists.items()
        }
    )
    return Ranking(name, sort_lists(run, "list"))


def _lines(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
