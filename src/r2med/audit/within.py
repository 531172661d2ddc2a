"""The audit of a benchmark itself: repeated texts, label noise, queries that name their answer.

| kind          | meaning                                                                        |
|---------------|--------------------------------------------------------------------------------|
| repeated      | two queries, or two documents, of one task or of two, that match as `matching` |
|               | says                                                                           |
| label noise   | a positive of a query that equals, or nearly, a document that is not its       |
|               | positive                                                                       |
| answer named  | a query that contains its answer                                           |
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Literal

from r2med.audit.evaluation import EvaluationTexts, evaluation
from r2med.audit.findings import KINDS
from r2med.audit.matching import NGRAM, TextIndex, words
from r2med.execution.resources import Progress, ignore_progress
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

Issue = Literal["repeated", "label noise", "answer named"]
_BATCH = 2000


@dataclass(frozen=True)
class Repeat:
    """Two queries or documents with nearly the same text, or a query that contains its answer.

    For a query that contains its answer, the second query or document is empty.
    """

    issue: Issue
    kind: str
    task: str
    role: str
    id: str
    text: str
    other_task: str
    other_role: str
    other_id: str
    other_text: str
    query: str = ""
    """For label noise, the query of which the first document is a positive and the second is
    not."""

    @property
    def across(self) -> bool:
        """Whether the two texts are from different tasks."""
        return bool(self.other_task) and self.task != self.other_task


@dataclass(frozen=True)
class SelfAudit(Tabular):
    """Repeated texts within and between tasks; as a table, one row per pair."""

    is_drawn = True

    tasks: tuple[str, ...]
    queries: int
    documents: int
    repeats: tuple[Repeat, ...]

    def to_arrow(self) -> pa.Table:
        """Return one row per pair."""
        return make_table(table_columns(Repeat), [asdict(repeat) for repeat in self.repeats])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)


def audit_self(
    tasks: Sequence[Task], *, ngram: int = NGRAM, progress: Progress = ignore_progress
) -> SelfAudit:
    """Find repeated texts, label noise and queries that name their answer, in and between tasks."""
    texts_to_compare = evaluation(tasks, ("query", "positive", "document"))
    pairs = list(_pairs(texts_to_compare, ngram, progress))
    repeats = (
        *(Repeat("repeated", match_type, *first, *second) for match_type, first, second in pairs),
        *_label_noise(pairs, texts_to_compare),
        *(repeat for task in tasks for repeat in _answers_named(task)),
    )
    queries = sum(len(task.queries) for task in tasks)
    documents = sum(len(task.corpus.document_ids) for task in tasks)
    return SelfAudit(tuple(texts_to_compare.hashes), queries, documents, repeats)


_Held = tuple[str, str, str, str]
"""Task, role, id and text."""


def _pairs(
    texts_to_compare: EvaluationTexts, ngram: int, progress: Progress
) -> Iterator[tuple[str, _Held, _Held]]:
    """Yield all pairs of queries and of documents that match, equal texts first."""
    index = TextIndex(texts_to_compare.texts, ngram=ngram)
    kinds: dict[tuple[int, int], str] = {}
    started = time.monotonic()
    for start in range(0, len(index), _BATCH):
        for match in index.matches(index.texts[start : start + _BATCH]):
            entry = start + match.text
            if entry == match.entry or match.boilerplate:
                continue
            pair = min(entry, match.entry), max(entry, match.entry)
            kinds[pair] = min(match.kind, kinds.get(pair, match.kind), key=KINDS.index)
        done = min(start + _BATCH, len(index))
        progress("comparing texts", done, len(index), time.monotonic() - started)
    held: list[list[_Held]] = [
        [(holder.task, holder.role, holder.id, text) for holder in holders]
        for text, holders in zip(texts_to_compare.texts, texts_to_compare.holders, strict=True)
    ]
    matching = [("exact", pair) for group in held for pair in combinations(group, 2)]
    for (entry, other_entry), match_type in sorted(kinds.items()):
        matching += [(match_type, pair) for pair in product(held[entry], held[other_entry])]
    for match_type, (a, b) in matching:
        if (a[1] == "query") == (b[1] == "query"):
            yield match_type, a, b


def _label_noise(
    pairs: Iterable[tuple[str, _Held, _Held]], texts_to_compare: EvaluationTexts
) -> Iterator[Repeat]:
    """Yield pairs of similar documents of which only one is a positive of a query."""
    queries: dict[tuple[str, str], list[str]] = {}
    for (task, query), positives in texts_to_compare.positives.items():
        for name in positives:
            queries.setdefault((task, name), []).append(query)
    for match_type, a, b in pairs:
        for first, second in ((a, b), (b, a)):
            (task, role, name, _), (other_task, _, other_name, _) = first, second
            if task != other_task or role == "query" or match_type == "excerpt":
                continue
            for query in queries.get((task, name), ()):
                if other_name not in texts_to_compare.positives[task, query]:
                    yield Repeat("label noise", match_type, *first, *second, query)


def _answers_named(task: Task) -> Iterator[Repeat]:
    answers = task.queries.answers.to_pylist()
    for (name, text), answer in zip(task.queries.items(), answers, strict=True):
        answer_words = f" {' '.join(words(answer or ''))} "
        if answer_words.strip() and answer_words in f" {' '.join(words(text))} ":
            query = (task.name, "query", name, text)
            yield Repeat("answer named", "contained", *query, "", "answer", "", answer)
