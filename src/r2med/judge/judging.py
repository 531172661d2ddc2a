"""Judge a pool of pairs: ask, store and check the judge's answers as they arrive."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from r2med.errors import DataError, UsageError, plural
from r2med.judge.log import Warn
from r2med.judge.panel import Collected, Item, Panel, Show
from r2med.judge.pool import Pool, query_texts, texts_of
from r2med.judge.rubric import Rubric, find_rubric
from r2med.judge.store import (
    Judgement,
    JudgementSet,
    JudgementStore,
    Pair,
    SetDescription,
    texts_hash,
)
from r2med.tasks.task import Task

#: The largest share of unreadable answers; a worse judge is stopped.
MOST_UNREADABLE = 0.05
#: Items before the first check, and between later ones.
_FIRST, _NEXT = 64, 1024
#: Answers below which a share says too little to stop early.
_ENOUGH = 20


@dataclass
class AnswerCount:
    """Counts of readable answers, and of unreadable answers by problem."""

    readable: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        """Number of all answers, readable or not."""
        return self.readable + self.problems.total()

    @property
    def share(self) -> float:
        """Unreadable answers / answers."""
        return self.problems.total() / self.total if self.total else 0.0

    def add(self, judgements: Sequence[Judgement]) -> None:
        """Count the votes of judgements."""
        for judgement in judgements:
            for vote in judgement.votes:
                if vote.problem:
                    self.problems[vote.problem] += 1
                else:
                    self.readable += 1


@dataclass(frozen=True)
class Judged:
    """The outcome of a judging command."""

    judged: JudgementSet
    judged_now: int
    """Pairs that the judge was asked about now; copies of equal texts are not counted."""
    already: int
    """Pairs that the set already had."""
    copied: int
    """Pairs that received the judgement of an equal text."""
    answers: AnswerCount


class Collecting:
    """Collects answers in a thread, while earlier answers are read and stored.

    The thread is a daemon, so that Ctrl-C ends the command at once; answers that arrived are kept.
    """

    def __init__(self, panel: Panel, items: Sequence[Item], show: Show) -> None:
        self._collected: Collected | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(panel, items, show), daemon=True)
        self._thread.start()

    @classmethod
    def start_next(
        cls, panel: Panel, chunks: Iterator[Sequence[Item]], show: Show
    ) -> Collecting | None:
        """Start collecting answers about the next chunk; None if no chunk is left."""
        chunk = next(chunks, None)
        return cls(panel, chunk, show) if chunk else None

    def wait(self) -> None:
        """Wait until all answers have arrived, or a request failed."""
        self._thread.join()

    def result(self) -> Collected:
        """Return the answers; an error of the thread is raised here."""
        self.wait()
        if self._problem is not None:
            raise self._problem
        assert self._collected is not None
        return self._collected

    def _run(self, panel: Panel, items: Sequence[Item], show: Show) -> None:
        try:
            self._collected = panel.collect(items, show=show)
        except BaseException as problem:
            self._problem = problem


def default_rubric(task: Task) -> Rubric:
    """Return the rubric `reasoning` if all queries of a task have answers, else `graded`."""
    answers = task.queries.answers.to_pylist()
    has_answers = bool(answers) and all(answer and answer.strip() for answer in answers)
    return find_rubric("reasoning" if has_answers else "graded")


def items_of(
    task: Task,
    pairs: Sequence[Pair],
    *,
    calibration: Sequence[Pair] = (),
    systems: Mapping[Pair, tuple[str, ...]] | None = None,
) -> list[Item]:
    """Return pairs of a task as items for a judge: texts only, never ids."""
    queries = query_texts(task)
    texts = texts_of(task, {document_id for _, document_id in (*pairs, *calibration)})
    items = []
    for purpose, chosen in (("calibration", calibration), ("pool", pairs)):
        for query_id, document_id in chosen:
            pair = (query_id, document_id)
            items.append(
                Item(
                    query_id=query_id,
                    item_id=document_id,
                    texts={**queries[query_id], "passage": texts[document_id]},
                    purpose="calibration" if purpose == "calibration" else "pool",
                    systems=(systems or {}).get(pair, ()),
                )
            )
    return items


def open_set(
    task: Task, panel: Panel, results: Path, *, name: str | None, depth: int, warn: Warn
) -> JudgementSet:
    """Return the judgement set that a panel writes to, creating it if necessary."""
    models = "+".join(chat.llm.name for chat in panel.judges)
    description = SetDescription(
        name=name or _default_name(models, panel.rubric),
        task=task.name,
        suite=task.suite,
        texts=texts_hash(task),
        rubric=panel.rubric,
        judges=panel.identities,
        samples=panel.samples,
        combine=panel.combine,
        depth=depth,
    )
    return JudgementStore(results, warn=warn).open(description)


def judge_pool(
    task: Task,
    pool: Pool,
    calibration: Sequence[Pair],
    panel: Panel,
    judged: JudgementSet,
    *,
    show: Show = lambda *_: None,
) -> Judged:
    """Judge the pairs of a pool and a calibration sample that a set does not have yet.

    Judgements are stored as they arrive, so an interrupted command continues where it stopped.
    The calibration sample is judged first: without it no score with added judgements is shown.

    Raises:
        DataError: More than 5 % of the answers cannot be read; judgements so far are kept.
    """
    stored = judged.grades()
    items = items_of(task, pool.ask, calibration=calibration, systems=pool.systems)
    todo = [item for item in items if (item.query_id, item.item_id) not in stored]
    count = AnswerCount()
    chunks = iter([todo[:_FIRST], *split_chunks(todo[_FIRST:], _NEXT)])
    collecting: Collecting | None = Collecting(panel, next(chunks), show)
    while collecting is not None:
        collected, following = collecting.result(), None
        if count.total:  # the first, small chunk is checked before anything more is asked
            following = Collecting.start_next(panel, chunks, show)
        wait = following.wait if following else lambda: None
        judgements = panel.judge(collected, show=show, wait=wait)
        judged.add(judgements)
        count.add(judgements)
        if count.total >= _ENOUGH and count.share > MOST_UNREADABLE:
            break
        collecting = following or Collecting.start_next(panel, chunks, show)
    check_answers(count, panel)
    copied = _copy_to_duplicates(pool, judged)
    return Judged(judged, len(todo), len(items) - len(todo), copied, count)


def split_chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """Split items into chunks of a size."""
    return [items[start : start + size] for start in range(0, len(items), size)]


def check_answers(count: AnswerCount, panel: Panel) -> None:
    """Raise DataError if too many answers of a judge cannot be read."""
    if count.share <= MOST_UNREADABLE:
        return
    reasons = ", ".join(f"{number:,} {problem}" for problem, number in count.problems.most_common())
    models = ", ".join(chat.llm.name for chat in panel.judges)
    raise DataError(
        f"{models}: {plural(count.problems.total(), 'answer')} of {count.total:,} "
        f"({100 * count.share:.0f} %) cannot be read ({reasons}), more than "
        f"{100 * MOST_UNREADABLE:.0f} %, after asking once more.\nJudgements so far are kept. Use "
        "a stronger judge, or a rubric whose answer is easier to give (--rubric FILE.toml)."
    )


def _copy_to_duplicates(pool: Pool, judged: JudgementSet) -> int:
    """Store the pool's copies of judgements of equal texts for a query; return their number."""
    if not pool.copies:
        return 0
    stored = judged.judgements()
    copies = []
    for pair, source in pool.copies.items():
        original = stored.get(source)
        if original is not None and original.grade is not None and pair not in stored:
            copies.append(
                replace(
                    original,
                    item_id=pair[1],
                    systems=pool.systems[pair],
                    duplicate_of=original.item_id,
                    purpose="pool",
                )
            )
    judged.add(copies)
    return len(copies)


def _default_name(models: str, rubric: Rubric) -> str:
    cleaned = "".join(c if c.isalnum() or c in "._=-" else "-" for c in f"{models}-{rubric.name}")
    name = cleaned.strip("-.")[:80]
    if not name:
        raise UsageError("give the judgement set a name with --set.")
    return name
