"""The stages of a system: each yields a run on a task, and says everything that decides it.

Every stage has `depth`, how many documents its run holds per query, `identity(task)`, all that
decides the run as JSON values, `ties(task)`, the order of equal scores by which it is measured, and
`run(context)`. Identity and ties depend on the task where its protocol or files beside its data
decide: candidate lists, generations. Stages are built by `systems.build`. What needs a language
model or a reranker is imported where a system has one, so plain retrieval loads neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import numpy as np

from r2med.algorithms import TASK_SPECIFIC, versions
from r2med.errors import UsageError
from r2med.execution.usage import Usage
from r2med.retrieve.fusion import Fusion
from r2med.retrieve.interface import MeteredSearcher, QueryForm, Retriever, search_with
from r2med.retrieve.run_files import CandidateSettings, Findings, RunFile, find_subset, fitted
from r2med.runs import Run
from r2med.runs.exclusions import remove_excluded
from r2med.runs.run import TieOrder, sort_lists
from r2med.settings import settings_identity
from r2med.systems.output import (
    Facts,
    StageContext,
    StageCost,
    StageOutput,
    measure_step,
    merge_facts,
)
from r2med.systems.registry import Entry
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.answers import Expansion
    from r2med.expand.expander import Bound, Expander
    from r2med.rerank.scores import Reranker, Tail

#: One or more variants of all queries; None is the queries as they are.
Variants = Sequence[Sequence[QueryForm] | None]


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
class VariantOutput:
    """One run for each variant of the queries, and what they took together."""

    runs: list[Run]
    facts: Facts
    costs: tuple[StageCost, ...]


@dataclass(frozen=True)
class Retrieval(_Named):
    """One retriever, as its registry entry configures it."""

    entry: Entry
    retriever: Retriever
    depth: int
    settings: Mapping[str, object] = field(default_factory=dict)
    """Of the entry, as far as they may change a ranking."""

    def search_identity(self, task: Task) -> Mapping[str, object]:
        """What searches, at any depth: backend, settings, files and the task's wording."""
        identity = {
            "backend": self.entry.backend,
            "settings": dict(self.settings),
            **self.retriever.identity,
        }
        if not type(self.retriever).__module__.startswith("r2med."):
            from r2med.retrieve.user_models import code_identity

            return {**identity, **code_identity(self.retriever)}
        if task_identity := getattr(self.retriever, "task_identity", None):
            identity[TASK_SPECIFIC] = task_identity(task)
        return identity

    def identity(self, task: Task) -> Mapping[str, object]:
        """The retriever's identity and the depth."""
        return {"retriever": self.search_identity(task), "depth": self.depth}

    def ties(self, task: Task) -> TieOrder:
        """As the entry's protocol says; the Nano protocol orders equal scores by id, ascending."""
        nano = task.suite == "nano" and self.entry.ties == "trec"
        return "id-ascending" if nano else self.entry.ties

    def run(self, context: StageContext) -> StageOutput:
        """Prepare the corpus, then search it."""
        found = self.search_variants(context, (None,))
        return StageOutput(found.runs[0], found.facts, found.costs)

    def search_variants(self, context: StageContext, variants: Variants) -> VariantOutput:
        """Search with each variant of the queries; the corpus is prepared once."""
        task = context.task
        # lists are as long as without exclusions
        deeper = max(map(len, task.exclusions.values()), default=0)
        with measure_step("index", self.name) as indexing:
            searcher = self.retriever.prepare(task)
        facts = dict(searcher.facts())
        if isinstance(searcher, MeteredSearcher):
            index_usage = searcher.usage
        else:
            index_usage = Usage.from_facts(facts)
        runs, usage = [], Usage()
        with measure_step("search", self.name) as searching:
            for forms in variants:
                found = search_with(searcher, task.queries, forms, depth=self.depth + deeper)
                run, removed = remove_excluded(found.run, task.exclusions)
                runs.append(run.truncate(self.depth) if deeper else run)
                facts |= found.facts
                if removed:
                    facts["excluded_documents"] = removed
                usage += found.usage
        costs = (indexing.cost(index_usage), searching.cost(usage))
        return VariantOutput(runs, {self.name: facts}, costs)


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
        return {
            "run": self._fingerprint,
            "repeats": self.file.repeats,
            "depth": self.cut,
            "algorithms": versions("run-fitting"),
        }

    def run(self, context: StageContext) -> StageOutput:
        """Return the lists of the task's queries; a warning says what does not fit it."""
        with measure_step("read", self.name) as reading:
            run, findings = self.read(context.task)
        _report_findings(self.name, findings, context)
        run = run.truncate(self.cut) if self.cut else run
        return StageOutput(run, {self.name: findings.facts()}, (reading.cost(),))

    def read(self, task: Task) -> tuple[Run, Findings]:
        """The file's lists for a task, and what does not fit it."""
        content, findings = self._content
        return fitted(content, task, findings, self.name)


@dataclass(frozen=True)
class GivenCandidates(_Named):
    """`candidates:NAME`: a candidate subset that lies beside the task's data."""

    settings: CandidateSettings
    depth: int

    def identity(self, task: Task) -> Mapping[str, object]:
        """The content of the subset's files on this task."""
        return {
            "settings": settings_identity(self.settings),
            "depth": self.depth,
            "algorithms": versions("run-fitting"),
            TASK_SPECIFIC: {"candidates": find_subset(task, self.settings.name).fingerprint()},
        }

    def run(self, context: StageContext) -> StageOutput:
        """Return the published lists."""
        with measure_step("read", self.name) as reading:
            run, findings = self.read(context.task)
        _report_findings(self.name, findings, context)
        facts = {self.name: findings.facts()}
        return StageOutput(run.truncate(self.depth), facts, (reading.cost(),))

    def read(self, task: Task) -> tuple[Run, Findings]:
        """The lists for a task, and what does not fit it."""
        subset = find_subset(task, self.settings.name)
        return fitted(subset.read(safeguard=self.settings.safeguard), task, Findings(), self.name)


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
            "fusion": settings_identity(fusion),
            "algorithms": versions("fusion"),
            "depth": self.depth,
            "members": members if fusion.weights else sorted(members, key=repr),
        }

    def ties(self, task: Task) -> TieOrder:
        """trec_eval's; the Nano protocol scores fused lists in their own order."""
        return "list" if task.suite == "nano" else "trec"

    def run(self, context: StageContext) -> StageOutput:
        """Get every member's run, then fuse."""
        outputs = [context.run_member(member, context) for member in self.members]
        run, cost = self.fuse([output.run for output in outputs], context.task)
        facts = merge_facts(*(output.facts for output in outputs))
        return StageOutput(run, facts, (*_join_costs(outputs), cost))

    def fuse(self, runs: Sequence[Run], task: Task) -> tuple[Run, StageCost]:
        """Fuse one run per member, each in the order in which it is measured.

        Ranks then mean the same to the fusion as to a reader of the member's scores.
        """
        with measure_step("fuse", self.name) as fusing:
            measured = zip(runs, self.members, strict=True)
            lists = [sort_lists(run, member.ties(task)) for run, member in measured]
            filled = [fills(member) for member in self.members]
            run = self.fusion.on(task.suite).fuse(lists, depth=self.depth, filled=filled)
        return run, fusing.cost()


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
        fusion = (
            {"fusion": settings_identity(self._sample_fusion(task))}
            if self.expander.method.fuses
            else {}
        )
        return {
            "algorithms": versions("expansion", "fusion") if fusion else versions("expansion"),
            "expander": {
                "settings": settings_identity(self.expander.method),
                **fusion,
                **self.bound(task).identity,
            },
            "first": dict(self.first.identity(task)),
        }

    def _sample_fusion(self, task: Task) -> Fusion:
        """How the runs of several generations are fused: by the constant of the task's suite."""
        return Fusion().on(task.suite)

    def ties(self, task: Task) -> TieOrder:
        """Those of what searches."""
        return self.first.ties(task)

    def bound(self, task: Task) -> Bound:
        """The expander on one task."""
        return self.on_task or self.expander.on(task)

    def run(self, context: StageContext) -> StageOutput:
        """Expand, then search."""
        with measure_step("expand", self.name) as expanding:
            expansion = self.bound(context.task).expand()
        facts = expansion.facts()
        if unusable := expansion.fallen_back:
            context.warn_about(
                self.name,
                f"{unusable:,} of {len(expansion.queries):,} queries have no usable generation "
                "(refused or empty); the original query is used instead.",
            )
        samples = [sample for query in expansion.queries for sample in query.samples]
        if empty := sum(sample.useful and not sample.answer.strip() for sample in samples):
            context.warn_about(
                self.name,
                f"{empty:,} generations in {expansion.source} are empty; they are used as they "
                "are, as in the published runs.",
            )
        found = self.search(expansion, context)
        cost = expanding.cost(Usage.from_facts(facts))
        facts_of_all = merge_facts({self.name: facts}, found.facts)
        return StageOutput(found.run, facts_of_all, (cost, *found.costs), found.sample_runs)

    def search(self, expansion: Expansion, context: StageContext) -> StageOutput:
        """Search with every variant, and fuse where there are several."""
        found = _search_variants(self.first, context, expansion.variants)
        if len(found.runs) == 1:
            return StageOutput(found.runs[0], found.facts, found.costs)
        with measure_step("fuse", self.name) as fusing:
            lists = [sort_lists(run, self.ties(context.task)) for run in found.runs]
            filled = [fills(self.first)] * len(lists)
            fusion = self._sample_fusion(context.task)
            run = fusion.fuse(lists, depth=self.depth, filled=filled)
        return StageOutput(run, found.facts, (*found.costs, fusing.cost()), tuple(found.runs))


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
            "algorithms": versions("reranking"),
            "reranked": self.reranked,
            "tail": self.tail,
            "first": dict(self.first.identity(task)),
        }

    def run(self, context: StageContext) -> StageOutput:
        """Get the first stage's run, score its first K documents, and sort them."""
        from r2med.rerank.scores import candidate_lists, reorder_run

        below = context.run_member(self.first, context)
        first = sort_lists(below.run, self.first.ties(context.task))
        if short := int(np.count_nonzero(first.lengths < self.reranked)):
            context.warn_about(
                self.name,
                f"{short:,} of {len(first):,} lists hold fewer than {self.reranked} documents; all "
                "of them are reranked. Write a deeper first stage with @, as in "
                f"bm25@{self.reranked}.",
            )
        with measure_step("rerank", self.name) as reranking:
            lists = candidate_lists(first.truncate(self.reranked), context.task)
            output = self.reranker.rerank(lists)
            run = reorder_run(first, output.scores, self.reranked, self.tail)
        facts = merge_facts(below.facts, {self.name: output.facts})
        return StageOutput(run, facts, (*below.costs, reranking.cost(output.usage)))


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


def check_strict(stage: Stage, task: Task) -> None:
    """Fail where a ranking that a system reads names unknown queries or documents."""
    for part in _below(stage):
        if isinstance(part, GivenRun | GivenCandidates):
            _, findings = part.read(task)
            findings.check_strict(part.name)


def _searches(stage: Stage) -> bool:
    if isinstance(stage, Fused):
        return all(_searches(member) for member in stage.members)
    return isinstance(stage, Retrieval)


def _search_variants(stage: Stage, context: StageContext, variants: Variants) -> VariantOutput:
    """Search with each variant of the queries, with every member of a fusion."""
    if not isinstance(stage, Fused):
        return cast(Retrieval, stage).search_variants(context, variants)
    outputs = [_search_variants(member, context, variants) for member in stage.members]
    runs, costs = [], _join_costs(outputs)
    for member_runs in zip(*(output.runs for output in outputs), strict=True):
        run, cost = stage.fuse(member_runs, context.task)
        runs.append(run)
        costs = (*costs, cost)
    return VariantOutput(runs, merge_facts(*(output.facts for output in outputs)), costs)


def _join_costs(outputs: Sequence[StageOutput | VariantOutput]) -> tuple[StageCost, ...]:
    return tuple(cost for output in outputs for cost in output.costs)


def _report_findings(name: str, findings: Findings, context: StageContext) -> None:
    if context.strict:
        findings.check_strict(name)
    for notice in findings.notices():
        context.warn_about(name, notice)
