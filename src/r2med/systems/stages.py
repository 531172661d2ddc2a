"""The stages of a system: each yields a run on a task, and says everything that decides it.

Every stage has `depth`, how many documents its run holds per query, `identity(task)`, all that
decides the run as JSON values, `ties(task)`, the order of equal scores by which it is measured, and
`run(work)`. Identity and ties depend on the task where its protocol or files beside its data
decide: candidate lists, generations. Stages are built by `systems.build`. What needs a language
model or a reranker is imported where a system has one, so plain retrieval loads neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from r2med.errors import UsageError
from r2med.retrieve.fusion import Fusion
from r2med.retrieve.given import CandidateSettings, Findings, RunFile, find_subset, fitted
from r2med.retrieve.interface import QueryForm, Retriever, search_forms
from r2med.runs import Run
from r2med.runs.run import TieOrder, ordered
from r2med.settings import identity_of
from r2med.systems.registry import Entry
from r2med.systems.work import Work
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.answers import Expansion
    from r2med.expand.writing import Bound, Expander
    from r2med.rerank.scores import Reranker, Tail

#: Queries in one form or more, each form a whole set of queries.
Variants = Sequence[Sequence[QueryForm]]

#: Raised when equal members, expansions or scores would be put together into another run.
_FUSION_VERSION = 2
_EXPANSION_VERSION = 2
_RERANKING_VERSION = 1


@dataclass(frozen=True)
class _Named:
    text: str
    """A system's, or that of a member that could be one."""
    name: str
    """The part of it that says what this stage does; costs and facts are kept by it."""
    tie_order: TieOrder = field(default="trec", kw_only=True)
    published_as: str | None = field(default=None, kw_only=True)
    deviations: tuple[str, ...] = field(default=(), kw_only=True)

    def ties(self, task: Task) -> TieOrder:
        """The order of equal scores: that of the entry, or of the stored result that was read."""
        return self.tie_order


@dataclass(frozen=True)
class Retrieval(_Named):
    """One retriever, as its registry entry configures it."""

    entry: Entry
    retriever: Retriever
    depth: int
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the entry, as far as they may change a ranking."""

    @property
    def built(self) -> Mapping[str, object]:
        """The identity of what searches: engine, settings, and what it read besides them."""
        return {
            "engine": self.entry.engine,
            "settings": dict(self.settings),
            **self.retriever.identity,
        }

    def identity(self, task: Task) -> Mapping[str, object]:
        """The retriever's identity and the depth."""
        return {"retriever": self.built, "depth": self.depth}

    def ties(self, task: Task) -> TieOrder:
        """As the entry's protocol says; the Nano protocol orders equal scores by id, ascending."""
        nano = task.suite == "nano" and self.entry.ties == "trec"
        return "id-ascending" if nano else self.entry.ties

    def run(self, work: Work) -> Run:
        """Prepare the corpus, then search it."""
        return self.run_forms(work, (None,))[0]

    def run_forms(self, work: Work, variants: Sequence[Sequence[QueryForm] | None]) -> list[Run]:
        """One run per variant of the queries, None as they are; the corpus is prepared once."""
        queries, depth = work.task.queries, self.depth
        with work.ledger.stage("index", self.name):
            searcher = self.retriever.prepare(work.task)
        work.ledger.tell(self.name, searcher.facts())
        with work.ledger.stage("search", self.name):
            runs = [
                search_forms(searcher, queries, forms, depth=depth)
                if forms
                else searcher.search(queries, depth=depth)
                for forms in variants
            ]
        work.ledger.tell(self.name, searcher.facts())
        return runs


@dataclass(frozen=True)
class GivenRun(_Named):
    """`run:PATH`: a run file or a stored result; its identity is the file's content."""

    file: RunFile
    cut: int | None

    @cached_property
    def _content(self) -> tuple[Run, Findings]:
        return self.file.read()

    @cached_property
    def _fingerprint(self) -> str:
        return self.file.fingerprint()

    @property
    def depth(self) -> int:
        """As the system says, or as deep as the longest list."""
        longest = int(self._content[0].lengths.max(initial=0))
        return min(longest, self.cut) if self.cut else longest

    def identity(self, task: Task) -> Mapping[str, object]:
        """The file's content and how it is read."""
        return {"run": self._fingerprint, "repeats": self.file.repeats, "depth": self.cut}

    def run(self, work: Work) -> Run:
        """The lists of the task's queries; a notice says what does not fit it."""
        with work.ledger.stage("read", self.name):
            content, findings = self._content
            run, findings = fitted(content, work.task, findings, self.name)
        _tell_findings(self.name, findings, work)
        return run.truncated(self.cut) if self.cut else run


@dataclass(frozen=True)
class GivenCandidates(_Named):
    """`candidates:NAME`: a candidate subset that lies beside the task's data."""

    settings: CandidateSettings
    depth: int

    def identity(self, task: Task) -> Mapping[str, object]:
        """The content of the subset's files on this task."""
        return {
            "candidates": find_subset(task, self.settings.name).fingerprint(),
            "settings": identity_of(self.settings),
            "depth": self.depth,
        }

    def run(self, work: Work) -> Run:
        """The published lists."""
        with work.ledger.stage("read", self.name):
            lists = find_subset(work.task, self.settings.name).read(
                safeguard=self.settings.safeguard
            )
            run, findings = fitted(lists, work.task, Findings(), self.name)
        _tell_findings(self.name, findings, work)
        return run.truncated(self.depth)


@dataclass(frozen=True)
class Fused(_Named):
    """`a + b`: members in the order they were named, and how they are fused."""

    members: tuple[Stage, ...]
    fusion: Fusion
    depth: int

    def __post_init__(self) -> None:
        """Refuse weights that do not fit the members."""
        weights = len(self.fusion.weights)
        if weights not in (0, len(self.members)):
            raise UsageError(
                f"{self.name}: {weights} weights for {len(self.members)} members, expected one "
                "each."
            )

    def identity(self, task: Task) -> Mapping[str, object]:
        """The members' identities, in any order unless weighted, and the method."""
        fusion = self.fusion.on(task.suite)
        members = [dict(member.identity(task)) for member in self.members]
        return {
            "fusion": identity_of(fusion),
            "version": _FUSION_VERSION,
            "depth": self.depth,
            "members": members if fusion.weights else sorted(members, key=repr),
        }

    def ties(self, task: Task) -> TieOrder:
        """trec_eval's; the Nano protocol scores fused lists in their own order."""
        return "list" if task.suite == "nano" else "trec"

    def run(self, work: Work) -> Run:
        """Get every member's run, then fuse."""
        return self.fuse([work.member(member, work) for member in self.members], work)

    def fuse(self, runs: Sequence[Run], work: Work) -> Run:
        """Fuse one run per member, each in the order in which it is measured.

        Ranks then mean the same to the fusion as to a reader of the member's scores.
        """
        with work.ledger.stage("fuse", self.name):
            measured = zip(runs, self.members, strict=True)
            lists = [ordered(run, member.ties(work.task)) for run, member in measured]
            filled = [fills(member) for member in self.members]
            return self.fusion.on(work.task.suite).fuse(lists, depth=self.depth, filled=filled)


@dataclass(frozen=True)
class Expanding(_Named):
    """`METHOD:LLM | first`; rerankers that follow see the original query."""

    expander: Expander
    first: Stage
    on_task: Bound | None = None
    """The expander on the task of this evaluation: see `bind`."""

    def __post_init__(self) -> None:
        """Refuse a first stage that does not search."""
        if not _searches(self.first):
            raise UsageError(
                f"{self.name} expands queries, so a retriever must follow it, as in "
                f"'{self.name} | bm25' or '{self.name} | (bm25 + minilm)'."
            )

    @property
    def depth(self) -> int:
        """As deep as what searches."""
        return self.first.depth

    def identity(self, task: Task) -> Mapping[str, object]:
        """The expander's, on this task, and that of what searches."""
        return {
            "version": _EXPANSION_VERSION,
            "expander": {
                "settings": identity_of(self.expander.method),
                **self.bound(task).identity,
            },
            "first": dict(self.first.identity(task)),
        }

    def ties(self, task: Task) -> TieOrder:
        """Those of what searches."""
        return self.first.ties(task)

    def bound(self, task: Task) -> Bound:
        """The expander on one task."""
        return self.on_task or self.expander.on(task)

    def run(self, work: Work) -> Run:
        """Expand, then search."""
        with work.ledger.stage("expand", self.name):
            expansion = self.bound(work.task).expand()
        work.ledger.tell(self.name, expansion.facts())
        if unusable := expansion.fallen_back:
            work.tell(
                self.name,
                f"{unusable:,} of {len(expansion.queries):,} queries have no usable generation "
                "(refused or empty) and stand for themselves.",
            )
        samples = [sample for query in expansion.queries for sample in query.samples]
        if empty := sum(sample.useful and not sample.answer.strip() for sample in samples):
            work.tell(
                self.name,
                f"{empty:,} generations in {expansion.source} are empty; they are searched with as "
                "they stand, as in the published runs.",
            )
        return self.search(expansion, work)

    def search(self, expansion: Expansion, work: Work) -> Run:
        """Search with every variant, and fuse where there are several."""
        runs = _search(self.first, work, expansion.variants)
        if len(runs) == 1:
            return runs[0]
        with work.ledger.stage("fuse", self.name):
            lists = [ordered(run, self.ties(work.task)) for run in runs]
            filled = [fills(self.first)] * len(runs)
            return Fusion().fuse(lists, depth=self.depth, filled=filled)


@dataclass(frozen=True)
class Reranking(_Named):
    """`first | reranker@K`: the first K documents in a new order, the rest below."""

    first: Stage
    reranker: Reranker
    reranked: int
    """K: how many documents of each list are put in a new order."""
    tail: Tail
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the reranker's entry, as far as they may change a ranking."""

    @property
    def depth(self) -> int:
        """As deep as the first stage, or K where the rest is dropped."""
        below = self.first.depth
        return min(below, self.reranked) if self.tail == "drop" else below

    def identity(self, task: Task) -> Mapping[str, object]:
        """The reranker's, the first stage's, and what happens below K."""
        return {
            "reranker": {"settings": dict(self.settings), **self.reranker.identity},
            "version": _RERANKING_VERSION,
            "reranked": self.reranked,
            "tail": self.tail,
            "first": dict(self.first.identity(task)),
        }

    def run(self, work: Work) -> Run:
        """Get the first stage's run, score its first K, put them in order."""
        from r2med.rerank.scores import candidate_lists, reordered

        first = ordered(work.member(self.first, work), self.first.ties(work.task))
        if short := int(np.count_nonzero(first.lengths < self.reranked)):
            work.tell(
                self.name,
                f"{short:,} of {len(first):,} lists hold fewer than {self.reranked} documents; all "
                "they hold is reranked. A deeper first stage is written with @, as in "
                f"bm25@{self.reranked}.",
            )
        with work.ledger.stage("rerank", self.name):
            lists = candidate_lists(first.truncated(self.reranked), work.task)
            scores = self.reranker.scores(lists)
            run = reordered(first, scores, self.reranked, self.tail)
        work.ledger.tell(self.name, self.reranker.facts())
        return run


Stage = Retrieval | GivenRun | GivenCandidates | Fused | Expanding | Reranking


def bind(stage: Stage, task: Task, *, keep: bool = True) -> Stage:
    """The stage for one evaluation on one task: what lies in files is looked up once, and now.

    Unless `keep`, finished generations are not written to the shelf of the task.
    """
    match stage:
        case GivenRun():
            return replace(stage)
        case Expanding():
            return replace(stage, on_task=stage.expander.on(task, keep=keep))
        case Reranking():
            return replace(stage, first=bind(stage.first, task, keep=keep))
        case Fused():
            members = tuple(bind(each, task, keep=keep) for each in stage.members)
            return replace(stage, members=members)
    return stage


def leaves(stage: Stage) -> Iterator[Stage]:
    """The members that need no other member's run, each of which has a result of its own."""
    members = () if isinstance(stage, Expanding) else _members(stage)
    if not members:
        yield stage
    for member in members:
        yield from leaves(member)


def fills(stage: Stage) -> bool:
    """Whether a stage fills its lists up with documents that match nothing, as published BM25s do.

    A rank among such documents says nothing, so fusion leaves them out.
    """
    if isinstance(stage, Expanding):
        return fills(stage.first)
    return isinstance(stage, Retrieval) and stage.settings.get("unmatched") == "fill"


def _members(stage: Stage) -> tuple[Stage, ...]:
    if isinstance(stage, Fused):
        return stage.members
    return (stage.first,) if isinstance(stage, Reranking | Expanding) else ()


def _below(stage: Stage) -> Iterator[Stage]:
    """A stage and all stages that it stands on."""
    yield stage
    for member in _members(stage):
        yield from _below(member)


def safeguards(stage: Stage, task: Task) -> Mapping[str, str]:
    """Positives that were put among a system's candidates on purpose, by query."""
    settings = [each.settings for each in _below(stage) if isinstance(each, GivenCandidates)]
    subsets = [find_subset(task, each.name) for each in settings if each.safeguard]
    return {query: name for subset in subsets for query, name in subset.safeguards().items()}


def sources(stage: Stage) -> dict[str, str]:
    """Hashes of the source of the user's own classes in a stage, by the name of the class."""
    hashes: dict[str, str] = {}
    for each in _below(stage):
        model = None
        if isinstance(each, Retrieval):
            model = getattr(each.retriever, "own", None) or each.retriever
        elif isinstance(each, Reranking):
            model = getattr(getattr(each.reranker, "scorer", each.reranker), "own", None)
        if model is not None and not type(model).__module__.startswith("r2med."):
            from r2med.retrieve.user_models import source_of

            hashes |= dict(filter(None, [source_of(model)]))
    return hashes


def _searches(stage: Stage) -> bool:
    if isinstance(stage, Fused):
        return all(_searches(member) for member in stage.members)
    return isinstance(stage, Retrieval)


def _search(stage: Stage, work: Work, variants: Variants) -> list[Run]:
    """One run per variant of the queries."""
    if isinstance(stage, Fused):
        members = [_search(member, work, variants) for member in stage.members]
        return [stage.fuse(runs, work) for runs in zip(*members, strict=True)]
    return cast(Retrieval, stage).run_forms(work, variants)


def _tell_findings(name: str, findings: Findings, work: Work) -> None:
    if work.conditions.strict:
        findings.check_strict(name)
    for notice in findings.notices():
        work.tell(name, notice)
    work.ledger.tell(name, findings.facts())
