"""Small tasks, runs and judges for the tests of this package."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.judge.panel import Panel, open_panel
from r2med.judge.rubric import Rubric, find_rubric
from r2med.judge.store import Judgement as Judgement
from r2med.judge.store import JudgementSet, JudgementStore, SetDescription, Vote, texts_hash
from r2med.remote.budget import Limits
from r2med.remote.chat import Remote
from r2med.runs import Run
from r2med.runs.run import offsets_of
from r2med.tasks.task import Corpus, Queries, Task
from tests.building import judgements_of, texts
from tests.llm_server import LLMServer

GRADED = find_rubric("graded")
JUDGE = "scripted"


def grade_by_words(body: dict[str, Any]) -> str:
    """Grade 3 where the passage has the query's last word, else 0."""
    prompt = body["messages"][1]["content"]
    query = re.search(r"Query:\n(.*?)\n\nPassage:\n(.*?)\n\nTake these", prompt, re.DOTALL)
    assert query is not None
    grade = 3 if query[1].split()[-1] in query[2] else 0
    return json.dumps({"match": grade, "trustworthiness": 2, "overall": grade, "rationale": "x"})


def remote_of(server: LLMServer, **limits: Any) -> Remote:
    return Remote(Limits(backoff=0.001, **limits), url=server.url)


def panel_of(server: LLMServer, *names: str, rubric: Rubric = GRADED, **options: Any) -> Panel:
    return open_panel(names or (JUDGE,), rubric, remote_of(server), **options)


def make_task(
    documents: Mapping[str, str], queries: Mapping[str, str], qrels: Mapping[str, Mapping[str, int]]
) -> Task:
    return Task(
        name="mine",
        suite=None,
        corpus=Corpus(texts(*documents), texts(*documents.values())),
        queries=Queries.of(list(queries), list(queries.values())),
        judgements=judgements_of(qrels),
        source=Path("mine"),
    )


def make_run(lists: Mapping[str, Sequence[str]]) -> Run:
    documents = sorted({document for own in lists.values() for document in own})
    codes = [documents.index(document) for own in lists.values() for document in own]
    scores = [-float(rank) for own in lists.values() for rank in range(len(own))]
    return Run(
        pa.array(lists, pa.large_string()),
        pa.array(documents, pa.large_string()),
        offsets_of([len(own) for own in lists.values()]),
        np.array(codes, dtype=np.int32),
        np.array(scores),
    )


def store_grades(
    results: Path,
    task: Task,
    name: str,
    grades: Mapping[tuple[str, str], int],
    *,
    rubric: Rubric = GRADED,
    systems: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
    model: str = "scripted",
) -> JudgementSet:
    """A judgement set with these grades, as a judge would have stored it."""
    description = SetDescription(
        name, task.name, task.suite, texts_hash(task), rubric, ({"model": model},)
    )
    judged = JudgementStore(results, warn=_fail).open(description)
    judged.add(
        [
            Judgement(
                query_id=query_id,
                item_id=item_id,
                grade=grade,
                scores={score.name: grade for score in rubric.graded_scores},
                rationale="",
                votes=(Vote(model, 0, {score.name: grade for score in rubric.graded_scores}),),
                prompt_hash="0",
                systems=(systems or {}).get((query_id, item_id), ("a",)),
            )
            for (query_id, item_id), grade in grades.items()
        ]
    )
    return judged


def _fail(message: str) -> None:
    raise AssertionError(message)
