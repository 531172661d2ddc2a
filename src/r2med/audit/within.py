"""A benchmark against itself: the same text twice, labels that contradict, queries that tell.

| kind          | what it is                                                                     |
|---------------|--------------------------------------------------------------------------------|
| repeated      | two queries, or two documents, of one task or of two, that match as `matching` |
|               | says                                                                           |
| label noise   | a positive of a query that equals, or nearly, a document that is not its       |
|               | positive                                                                       |
| answer named  | a query that holds the words of its own answer                                 |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, product
from typing import TYPE_CHECKING, Any, Literal

from r2med.audit.evaluation import Evaluation, Place, evaluation
from r2med.audit.findings import KINDS
from r2med.audit.matching import NGRAM, Index, words
from r2med.retrieve.conditions import Progress
from r2med.tabular import Tabular, columns_of, table_of
from r2med.tasks.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

Issue = Literal["repeated", "label noise", "answer named"]
_BATCH = 2000


@dataclass(frozen=True)
class Repeat:
    """Two places that hold the same text, or nearly; of an answer, the second is empty."""

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
    """Of label noise, the query for which only the first is a positive."""

    @property
    def across(self) -> bool:
        """Whether two tasks are involved."""
        return bool(self.other_task) and self.task != self.other_task


@dataclass(frozen=True)
class SelfAudit(Tabular):
    """What was found within and between tasks; as a table, one row per pair."""

    drawn_by = "r2med.report.audit"

    tasks: tuple[str, ...]
    queries: int
    documents: int
    repeats: tuple[Repeat, ...]

    def to_arrow(self) -> pa.Table:
        """One row per pair of places."""
        return table_of(columns_of(Repeat), [asdict(repeat) for repeat in self.repeats])

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        return asdict(self)


def audit_self(
    tasks: Iterable[Task],
    *,
    ngram: int = NGRAM,
    progress: Callable[[Progress], None] = lambda _: None,
) -> SelfAudit:
    """Repeated texts, label noise and queries that name their answer, in and between tasks."""
    group = list(tasks)
    wanted = evaluation(group, ("query", "positive", "document"))
    pairs = list(_pairs(wanted, ngram, progress))
    repeats = [
        *(
            _repeat("repeated", kind, first, second, wanted)
            for kind, first, second in pairs
            if (first[1].role == "query") == (second[1].role == "query")
        ),
        *_label_noise(pairs, wanted),
        *(repeat for task in group for repeat in _answers_named(task)),
    ]
    counts = dict.fromkeys(("query", "positive", "document"), 0)
    for (_, role), count in wanted.total.items():
        counts[role] += count
    documents = counts["positive"] + counts["document"]
    return SelfAudit(tuple(wanted.hashes), counts["query"], documents, tuple(repeats))


_Held = tuple[int, Place]


def _pairs(
    wanted: Evaluation, ngram: int, progress: Callable[[Progress], None]
) -> Iterator[tuple[str, _Held, _Held]]:
    """Every two places with matching texts: equal ones first, then others by kind."""
    for entry, places in enumerate(wanted.places):
        for first, second in combinations(places, 2):
            yield "exact", (entry, first), (entry, second)
    index = Index(wanted.texts, ngram=ngram)
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
        progress(Progress("comparing texts", done, len(index), time.monotonic() - started))
    for (entry, other), kind in sorted(kinds.items()):
        for first, second in product(wanted.places[entry], wanted.places[other]):
            yield kind, (entry, first), (other, second)


def _repeat(
    issue: Issue, kind: str, first: _Held, second: _Held, wanted: Evaluation, query: str = ""
) -> Repeat:
    (entry, a), (other, b) = first, second
    own, others = wanted.texts[entry], wanted.texts[other]
    return Repeat(issue, kind, a.task, a.role, a.id, own, b.task, b.role, b.id, others, query)


def _label_noise(pairs: Sequence[tuple[str, _Held, _Held]], wanted: Evaluation) -> Iterator[Repeat]:
    """Two alike documents of one task, of which only one is a positive of a query."""
    queries: dict[tuple[str, str], list[str]] = {}
    for (task, query), positives in wanted.positives.items():
        for name in positives:
            queries.setdefault((task, name), []).append(query)
    for kind, a, b in pairs:
        if a[1].task != b[1].task or "query" in (a[1].role, b[1].role) or kind == "excerpt":
            continue
        for first, second in ((a, b), (b, a)):
            task = first[1].task
            for query in queries.get((task, first[1].id), ()):
                if second[1].id not in wanted.positives[task, query]:
                    yield _repeat("label noise", kind, first, second, wanted, query)


def _answers_named(task: Task) -> Iterator[Repeat]:
    answers = task.queries.answers.to_pylist()
    for (name, text), answer in zip(task.queries.items(), answers, strict=True):
        named = f" {' '.join(words(answer or ''))} "
        if named.strip() and named in f" {' '.join(words(text))} ":
            asked = (task.name, "query", name, text)
            yield Repeat("answer named", "contained", *asked, "", "answer", "", answer)
