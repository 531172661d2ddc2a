"""The stages of a system as a record stores them: settings, text limits and answer counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from r2med.errors import plural

#: Share of a model's answers with problems above which tables and pages mark a system.
MARKED_SHARE = 0.05


@dataclass(frozen=True)
class TextLimits:
    """How many tokens a model reads; None if unlimited or unknown."""

    query: int | None = None
    document: int | None = None
    pair: int | None = None
    """Tokens of the query and the document together, for a reranker."""


@dataclass(frozen=True)
class GenerationsRecord:
    """The source of an expander's generations, and the path of the stored copy."""

    source: Literal["model", "file"]
    path: str | None = None
    """The stored generations, relative to the home folder; None if they are not in it."""


@dataclass(frozen=True)
class AnswerCounts:
    """How many answers of a language model could not be used as asked for.

    Every answer is counted under one problem at most. `StageRecord.answers` has the counts of one
    stage and `Record.answers` those of the whole system, also for a reused result.
    """

    total: int
    unread: int = 0
    """Empty, or not in any form that could be read."""
    refused: int = 0
    truncated: int = 0
    """Cut at the token limit; an expander still searches with the text before the cut."""
    malformed: int = 0
    """Read in part: passages were left out, repeated or made up."""
    fallen_back: int = 0
    """Answers without effect: the first stage's order was kept, or the query searched alone."""

    @property
    def problems(self) -> int:
        """The number of answers with any problem."""
        return self.unread + self.refused + self.truncated + self.malformed

    @property
    def share(self) -> float:
        """The share of answers with any problem."""
        return self.problems / self.total if self.total else 0.0

    @property
    def is_marked(self) -> bool:
        """Whether so large a share of the answers has problems that tables mark the system."""
        return self.share > MARKED_SHARE

    def __str__(self) -> str:
        """A text such as `36 answers of the model: 30 unread, 2 refused; 32 had no effect`."""
        counts = [
            f"{getattr(self, name):,} {name}"
            for name in ("unread", "refused", "truncated", "malformed")
            if getattr(self, name)
        ]
        problems = ", ".join(counts) or "no problem"
        effect = f"; {self.fallen_back:,} had no effect" if self.fallen_back else ""
        return f"{plural(self.total, 'answer')} of the model: {problems}{effect}"

    @classmethod
    def sum_over(cls, counts: Iterable[AnswerCounts | None]) -> AnswerCounts | None:
        """Add up the counts of several stages or results; None if none has counts."""
        present = [count for count in counts if count is not None]
        if not present:
            return None
        return cls(
            **{
                item.name: sum(getattr(count, item.name) for count in present)
                for item in fields(cls)
            }
        )


StageType = Literal["retriever", "run", "candidates", "fusion", "expander", "reranker"]


@dataclass(frozen=True)
class StageRecord:
    """One stage of a system, with the stages from which it takes its input."""

    type: StageType
    name: str
    """Registered name, such as `bm25` or `hyde`."""
    unit: str
    """The stage as written in the spec, with argument and options; costs and facts use it."""
    system: str
    """Spec of the system that ends with this stage."""
    depth: int
    """Documents per query that the stage returns; for a reranker, the number that it reorders."""
    backend: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """All settings that can change a ranking."""
    llm: str | None = None
    limits: TextLimits = TextLimits()
    generations: GenerationsRecord | None = None
    answers: AnswerCounts | None = None
    """Counts of language model answers that could not be used; None if the stage has none."""
    trace: str | None = None
    """Path of the JSON lines file, in the home folder, with a reranking model's thoughts and
    answers."""
    published_as: str | None = None
    """The published system whose protocol this stage follows."""
    deviations: tuple[str, ...] = ()
    """Known differences from the published protocol."""
    inputs: tuple[StageRecord, ...] = ()
    """The input of a reranker, the retriever behind an expander, or the members of a fusion."""

    def walk(self) -> Iterator[StageRecord]:
        """All stages in the order of execution; this one is the last."""
        for stage in self.inputs:
            yield from stage.walk()
        yield self

    @property
    def text_limits(self) -> TextLimits:
        """Token limits of the last model that reads whole texts.

        The limit of a fusion is that of the member with the highest limit. An expander rewrites the
        query, so the query has no limit here.
        """
        if self.type == "expander":
            return TextLimits(document=self.inputs[0].text_limits.document)
        if self.type != "fusion":
            return self.limits
        members = [stage.text_limits for stage in self.inputs]
        queries = [limits.query for limits in members]
        documents = [limits.document for limits in members]
        return TextLimits(_highest_limit(queries), _highest_limit(documents))


def _highest_limit(limits: Sequence[int | None]) -> int | None:
    numbers = [limit for limit in limits if limit is not None]
    return max(numbers) if numbers and len(numbers) == len(limits) else None
