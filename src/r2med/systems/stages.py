"""The stages of a system. Each produces a run on a task.

Every stage has `depth` (documents per query), `identity(task)` (everything that can change the run,
as JSON values), `ties(task)` (the tie order for measuring) and `run(context)`. Identity and ties
depend on the task because of its protocol, its candidate lists and its generations. Stages are
built by `systems.build`. Code for fusion, language models and rerankers is imported only when a
system has such a stage.
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
from r2med.retrieve.interface import MeteredSearcher, QueryForm, Retriever, search_with
from r2med.retrieve.run_files import (
    CandidateSettings,
    Findings,
    RunFile,
    find_subset,
    restrict_to_task,
)
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
    from r2med.expand.expander import Expander, Generations
    from r2med.rerank.scores import Reranker, Tail
    from r2med.retrieve.fusion import Fusion

#: One or more variants of all queries; None means the original queries.
Variants = Sequence[Sequence[QueryForm] | None]


@dataclass(frozen=True)
class _NamedStage:
    text: str
    """The spec of the system that ends with this stage."""
    name: str
    """The part of the spec that is this stage; the key of the stage's costs and facts."""
    tie_order: TieOrder = field(default="trec", kw_only=True)
    published_as: str | None = field(default=None, kw_only=True)
    deviations: tuple[str, ...] = field(default=(), kw_only=True)

    def ties(self, task: Task) -> TieOrder:
        """Return the order of tied documents, set by the registry entry or the stored result."""
        return self.tie_order


@dataclass(frozen=True)
class VariantOutput:
    """One run for each variant of the queries, with the facts and costs of all variants."""

    runs: list[Run]
    facts: Facts
    costs: tuple[StageCost, ...]


@dataclass(frozen=True)
class Retrieval(_NamedStage):
    """One retriever of the registry or of the user."""

    entry: Entry
    retriever: Retriever
    depth: int
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the entry that can change a ranking."""

    def search_identity(self, task: Task) -> Mapping[str, object]:
        """Return the identity without the depth: backend, settings, files, instructions."""
        identity = {
            "backend": self.entry.backend,
            "settings": dict(self.settings),
            **self.retriever.identity,
        }
        if not type(self.retriever).__module__.startswith("r2med."):
            from r2med.models.user_code import code_identity

            return {**identity, **code_identity(self.retriever)}
        if task_identity := getattr(self.retriever, "task_identity", None):
            identity[TASK_SPECIFIC] = task_identity(task)
        return identity

    def identity(self, task: Task) -> Mapping[str, object]:
        """Return the identity of the retriever and the depth."""
        return {"retriever": self.search_identity(task), "depth": self.depth}

    def ties(self, task: Task) -> TieOrder:
        """Return the tie order of the entry; the Nano protocol orders ties by ascending id."""
        if task.suite == "nano" and self.entry.ties == "trec":
            return "id-ascending"
        return self.entry.ties

    def run(self, context: StageContext) -> StageOutput:
        """Index the corpus and search it."""
        output = self.search_variants(context, (None,))
        return StageOutput(output.runs[0], output.facts, output.costs)

    def search_variants(self, context: StageContext, variants: Variants) -> VariantOutput:
        """Search with each variant of the queries; the corpus is indexed once."""
        task = context.task
        # Search deeper, so that lists have the usual length after documents are excluded.
        most_excluded = max(map(len, task.exclusions.values()), default=0)
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
                depth = self.depth + most_excluded
                output = search_with(searcher, task.queries, forms, depth=depth)
                run, removed = remove_excluded(output.run, task.exclusions)
                runs.append(run.truncate(self.depth) if most_excluded else run)
                facts |= output.facts
                if removed:
                    facts["excluded_documents"] = removed
                usage += output.usage
        costs = (indexing.cost(index_usage), searching.cost(usage))
        return VariantOutput(runs, {self.name: facts}, costs)


@dataclass(frozen=True)
class RunFileStage(_NamedStage):
    """`run:PATH`: a run file or a stored result, identified by its content."""

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
        """The depth in the spec, but at most the length of the longest list."""
        longest = int(self._content[0].lengths.max(initial=0))
        return min(longest, self.cut) if self.cut else longest

    def identity(self, task: Task) -> Mapping[str, object]:
        """Return the identity of the file's content and of the settings for reading it."""
        return {
            "run": self._fingerprint,
            "repeats": self.file.repeats,
            "depth": self.cut,
            "algorithms": versions("run-fitting"),
        }

    def run(self, context: StageContext) -> StageOutput:
        """Return the lists of the task's queries; warn about unknown queries and documents."""
        with measure_step("read", self.name) as reading:
            run, findings = self.read(context.task)
        _report_findings(self.name, findings, context)
        run = run.truncate(self.cut) if self.cut else run
        return StageOutput(run, {self.name: findings.facts()}, (reading.cost(),))

    def read(self, task: Task) -> tuple[Run, Findings]:
        """Return the lists for the task's queries, and the problems found in the file."""
        content, findings = self._content
        return restrict_to_task(content, task, findings, self.name)


@dataclass(frozen=True)
class CandidateStage(_NamedStage):
    """`candidates:NAME`: a candidate subset in the task's data folder."""

    settings: CandidateSettings
    depth: int

    def identity(self, task: Task) -> Mapping[str, object]:
        """Return the identity of the settings and of the subset's files for a task."""
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
        """Return the lists for the task's queries, and the problems found in the files."""
        subset = find_subset(task, self.settings.name)
        return restrict_to_task(
            subset.read(safeguard=self.settings.safeguard), task, Findings(), self.name
        )


@dataclass(frozen=True)
class Fused(_NamedStage):
    """`a + b`: the members in the order of the spec, and the method that fuses them."""

    members: tuple[Stage, ...]
    fusion: Fusion
    depth: int

    def __post_init__(self) -> None:
        """Raise UsageError if there are weights, but not one per member."""
        weights = len(self.fusion.weights)
        if weights not in (0, len(self.members)):
            raise UsageError(
                f"{self.name}: {weights} weights for {len(self.members)} members, expected one "
                "each."
            )

    def identity(self, task: Task) -> Mapping[str, object]:
        """Return the identity of the fusion; the order of members counts only with weights."""
        fusion = self.fusion.on(task.suite)
        members = [dict(member.identity(task)) for member in self.members]
        return {
            "fusion": settings_identity(fusion),
            "algorithms": versions("fusion"),
            "depth": self.depth,
            "members": members if fusion.weights else sorted(members, key=repr),
        }

    def ties(self, task: Task) -> TieOrder:
        """Return the tie order of trec_eval; on Nano tasks, the order of the fused lists."""
        return "list" if task.suite == "nano" else "trec"

    def run(self, context: StageContext) -> StageOutput:
        """Run every member and fuse the runs."""
        outputs = [context.run_member(member, context) for member in self.members]
        run, cost = self.fuse([output.run for output in outputs], context.task)
        facts = merge_facts(*(output.facts for output in outputs))
        return StageOutput(run, facts, (*_join_costs(outputs), cost))

    def fuse(self, runs: Sequence[Run], task: Task) -> tuple[Run, StageCost]:
        """Fuse the members' runs, after sorting each by the tie order of its member."""
        with measure_step("fuse", self.name) as fusing:
            lists = [
                sort_lists(run, member.ties(task))
                for run, member in zip(runs, self.members, strict=True)
            ]
            filled = [fills_lists(member) for member in self.members]
            run = self.fusion.on(task.suite).fuse(lists, depth=self.depth, filled=filled)
        return run, fusing.cost()


@dataclass(frozen=True)
class Expanding(_NamedStage):
    """`METHOD:LLM | first`: searches with expanded queries; rerankers use the original ones."""

    entry: Entry
    expander: Expander
    first: Stage
    bound_generations: Generations | None = None
    """The generations for one task, set by `bind`; None before."""

    def __post_init__(self) -> None:
        """Raise UsageError if the first stage is not a retriever."""
        if not _searches(self.first):
            raise UsageError(
                f"{self.name} expands queries, so a retriever must follow it, as in "
                f"'{self.name} | bm25' or '{self.name} | (bm25 + minilm)'."
            )

    @property
    def depth(self) -> int:
        """The depth of the first stage."""
        return self.first.depth

    def identity(self, task: Task) -> Mapping[str, object]:
        """Return the identities of the generations for a task and of the first stage."""
        algorithms = versions("expansion")
        expander: dict[str, object] = {"settings": settings_identity(self.expander.method)}
        if self.expander.method.fuses_runs:
            algorithms = versions("expansion", "fusion")
            expander["fusion"] = settings_identity(self._sample_fusion(task))
        return {
            "algorithms": algorithms,
            "expander": expander | dict(self.generations(task).identity),
            "first": dict(self.first.identity(task)),
        }

    def _sample_fusion(self, task: Task) -> Fusion:
        """Return how runs of several generations are fused, with the constant of the suite."""
        from r2med.retrieve.fusion import Fusion

        return Fusion().on(task.suite)

    def ties(self, task: Task) -> TieOrder:
        """Return the tie order of the first stage."""
        return self.first.ties(task)

    def generations(self, task: Task) -> Generations:
        """Return the generations for a task."""
        return self.bound_generations or self.expander.bind(task)

    def run(self, context: StageContext) -> StageOutput:
        """Expand the queries and search with them."""
        with measure_step("expand", self.name) as expanding:
            expansion = self.generations(context.task).expand()
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
                f"{empty:,} generations in {expansion.source} are empty; they are used "
                "unchanged, as in the published runs.",
            )
        output = self.search(expansion, context)
        cost = expanding.cost(Usage.from_facts(facts))
        all_facts = merge_facts({self.name: facts}, output.facts)
        return StageOutput(output.run, all_facts, (cost, *output.costs), output.sample_runs)

    def search(self, expansion: Expansion, context: StageContext) -> StageOutput:
        """Search with every variant of the queries, and fuse the runs if there are several."""
        output = _search_variants(self.first, context, expansion.variants)
        if len(output.runs) == 1:
            return StageOutput(output.runs[0], output.facts, output.costs)
        with measure_step("fuse", self.name) as fusing:
            lists = [sort_lists(run, self.ties(context.task)) for run in output.runs]
            filled = [fills_lists(self.first)] * len(lists)
            fusion = self._sample_fusion(context.task)
            run = fusion.fuse(lists, depth=self.depth, filled=filled)
        return StageOutput(run, output.facts, (*output.costs, fusing.cost()), tuple(output.runs))


@dataclass(frozen=True)
class Reranking(_NamedStage):
    """`first | reranker@K`: reorders the first K documents of each list."""

    entry: Entry
    first: Stage
    reranker: Reranker
    reranked: int
    """K: how many documents of each list are reordered."""
    tail: Tail
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the reranker's entry that can change a ranking."""
    llm: str | None = None
    """The language model that reranks; None for other rerankers."""

    @property
    def depth(self) -> int:
        """The depth of the first stage; at most K if the tail is dropped."""
        first_depth = self.first.depth
        return min(first_depth, self.reranked) if self.tail == "drop" else first_depth

    def identity(self, task: Task) -> Mapping[str, object]:
        """Return the identities of the reranker and the first stage, K and the tail."""
        return {
            "reranker": {"settings": dict(self.settings), **self.reranker.identity},
            "algorithms": versions("reranking"),
            "reranked": self.reranked,
            "tail": self.tail,
            "first": dict(self.first.identity(task)),
        }

    def run(self, context: StageContext) -> StageOutput:
        """Run the first stage, score its first K documents, and sort them by score."""
        from r2med.rerank.scores import candidate_lists, reorder_run

        first_output = context.run_member(self.first, context)
        first = sort_lists(first_output.run, self.first.ties(context.task))
        if short := int(np.count_nonzero(first.lengths < self.reranked)):
            context.warn_about(
                self.name,
                f"{short:,} of {len(first):,} lists have fewer than {self.reranked} documents; all "
                "of these are reranked. Give the first stage a larger depth with @, as in "
                f"bm25@{self.reranked}.",
            )
        with measure_step("rerank", self.name) as reranking:
            lists = candidate_lists(first.truncate(self.reranked), context.task)
            output = self.reranker.rerank(lists)
            run = reorder_run(first, output.scores, self.reranked, self.tail)
        facts = merge_facts(first_output.facts, {self.name: output.facts})
        return StageOutput(run, facts, (*first_output.costs, reranking.cost(output.usage)))


Stage = Retrieval | RunFileStage | CandidateStage | Fused | Expanding | Reranking


def bind(stage: Stage, task: Task, *, keep: bool = True) -> Stage:
    """Return the stage for one evaluation on one task; its files are looked up now.

    With `keep`, finished generations are also written to a file.
    """
    match stage:
        case RunFileStage():
            return replace(stage)  # a copy, which reads the file again
        case Expanding():
            return replace(stage, bound_generations=stage.expander.bind(task, keep=keep))
        case Reranking():
            return replace(stage, first=bind(stage.first, task, keep=keep))
        case Fused():
            members = tuple(bind(member, task, keep=keep) for member in stage.members)
            return replace(stage, members=members)
    return stage


def independent_stages(stage: Stage) -> Iterator[Stage]:
    """Yield the stages that need no other stage's run; each of them has its own result."""
    members = () if isinstance(stage, Expanding) else _members(stage)
    if not members:
        yield stage
    for member in members:
        yield from independent_stages(member)


def fills_lists(stage: Stage) -> bool:
    """Whether a stage fills its lists with documents of score 0, as the published BM25s do.

    Fusion ignores such documents, because their ranks have no meaning.
    """
    if isinstance(stage, Expanding):
        return fills_lists(stage.first)
    return isinstance(stage, Retrieval) and stage.settings.get("unmatched") == "fill"


def _members(stage: Stage) -> tuple[Stage, ...]:
    if isinstance(stage, Fused):
        return stage.members
    return (stage.first,) if isinstance(stage, Reranking | Expanding) else ()


def _walk(stage: Stage) -> Iterator[Stage]:
    """Yield a stage and all stages whose runs it uses."""
    yield stage
    for member in _members(stage):
        yield from _walk(member)


def safeguards(stage: Stage, task: Task) -> Mapping[str, str]:
    """Return the documents that candidate subsets add as safeguards, by query id."""
    documents: dict[str, str] = {}
    for used_stage in _walk(stage):
        if isinstance(used_stage, CandidateStage) and used_stage.settings.safeguard:
            documents |= find_subset(task, used_stage.settings.name).safeguards()
    return documents


def check_strict(stage: Stage, task: Task) -> None:
    """Raise an error if a stage reads a ranking with unknown queries or documents."""
    for used_stage in _walk(stage):
        if isinstance(used_stage, RunFileStage | CandidateStage):
            _, findings = used_stage.read(task)
            findings.check_strict(used_stage.name)


def _searches(stage: Stage) -> bool:
    if isinstance(stage, Fused):
        return all(_searches(member) for member in stage.members)
    return isinstance(stage, Retrieval)


def _search_variants(stage: Stage, context: StageContext, variants: Variants) -> VariantOutput:
    """Search with each variant of the queries; for a fusion, with all members, then fuse."""
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
