"""From a system's text to something that runs: what may stand where, and who builds it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from r2med.errors import UsageError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.given import CandidateSettings, RunSettings, locate_run
from r2med.settings import identity_of, read
from r2med.systems.registry import (
    FOLLOWING,
    LEADING,
    Entry,
    StageKind,
    configured,
    entries,
    entry_of,
    registered,
)
from r2med.systems.spec import NAME, Spec, Unit, parse
from r2med.systems.stages import (
    Expanding,
    Fused,
    GivenCandidates,
    GivenRun,
    Reranking,
    Retrieval,
    Stage,
)
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.writing import Finder
    from r2med.rerank.scores import Tail

#: By engine: the module that builds its stages, and the class of its settings. Each module has
#: `build(settings, conditions)`, for rerankers `build(name, settings, conditions)`.
ENGINES: Mapping[str, str] = {
    "bm25": "r2med.retrieve.bm25:Bm25Retriever",
    "dense": "r2med.retrieve.dense.retriever:Settings",
    "api": "r2med.retrieve.api:ApiSettings",
    "sparse": "r2med.retrieve.multi:SparseSettings",
    "late": "r2med.retrieve.multi:LateSettings",
    "custom": "r2med.retrieve.user_models:UserModelSettings",
    "run": "r2med.retrieve.given:RunSettings",
    "candidates": "r2med.retrieve.given:CandidateSettings",
    "fusion": "r2med.retrieve.fusion:Fusion",
    "expand": "r2med.expand.writing:Method",
    "cross-encoder": "r2med.rerank.cross_encoder:CrossEncoderSettings",
    "yes-no": "r2med.rerank.cross_encoder:YesNoSettings",
    "own-code": "r2med.rerank.user_models:OwnCodeSettings",
    "listwise": "r2med.rerank.styles:Listwise",
    "pointwise": "r2med.rerank.styles:Pointwise",
    "verdict": "r2med.rerank.styles:Verdict",
    "setwise": "r2med.rerank.styles:Setwise",
    "groupwise": "r2med.rerank.styles:Groupwise",
    "own": "r2med.rerank.user_models:UserRerankerSettings",
}
_DEFAULT_FUSION = Unit("rrf")
_LONGEST_LABEL = 60
#: Why a stage may not stand first, or after others.
_NOT_FIRST: Mapping[StageKind, str] = {
    "reranker": "puts the documents of a first stage in order, so one must stand before it, as in "
    "'bm25 | {unit}'",
    "fusion": "fuses what stands before it, as in 'bm25 + bm25-nano | {unit}'",
    "expander": "expands queries for what follows it, as in '{unit} | bm25'",
}
_NOT_NEXT: Mapping[StageKind, str] = {
    "retriever": "searches the corpus, so nothing but an expander may stand before it; fuse "
    "retrievers with '+'",
    "given": "is read, not searched, so nothing may stand before it; fuse rankings with '+'",
    "fusion": "fuses what is joined by '+' right before it, as in 'bm25 + bm25-nano | rrf'",
    "expander": "expands queries, so it must stand before the retriever",
}


@dataclass(frozen=True)
class System:
    """A runnable system and the text that names it."""

    spec: Spec
    stage: Stage
    conditions: Conditions

    @classmethod
    def from_spec(
        cls,
        text: str | Spec,
        conditions: Conditions | None = None,
        *,
        models: Mapping[str, object] | None = None,
    ) -> System:
        """Build a system from its text; unknown names and options are UsageErrors.

        `models` gives names to objects of the caller's own, so that the text may use them:
        `from_spec("bm25 | mine@50", models={"mine": reranker})`.
        """
        spec = registered(parse(text) if isinstance(text, str) else text)
        conditions, models = conditions or Conditions(), models or {}
        for name in models:
            _check_name(name)
        if spec.label is not None:
            _check_label(spec.label)
        return cls(spec, Builder(conditions, models).system(spec), conditions)

    @classmethod
    def from_model(
        cls, model: object, *, name: str | None = None, conditions: Conditions | None = None
    ) -> System:
        """A system around a model of the caller's own: see docs/your-model.md."""
        from r2med.rerank.user_models import is_reranker
        from r2med.retrieve.user_models import name_of

        if is_reranker(model) and not hasattr(model, "encode"):
            raise UsageError(
                f"a {type(model).__name__} puts documents in order, so a first stage must stand "
                "before it, as in r2med.evaluate('bm25 | mine', task, models={'mine': model})."
            )
        name = name or name_of(model)
        return cls.from_spec(Spec((Unit(name),)), conditions, models={name: model})

    @property
    def label(self) -> str | None:
        """What tables call it, where that is not its text."""
        return self.spec.label

    def __str__(self) -> str:
        return str(self.spec)


@dataclass(frozen=True)
class Builder:
    """Builds parts under some conditions; names in `models` mean the caller's own objects."""

    conditions: Conditions
    models: Mapping[str, object]

    def system(self, part: Spec | Unit) -> Stage:
        """A whole system: an expander or first stages, then rerankers."""
        if isinstance(part, Unit):
            return self._first(part)
        expands = part.stages and len(part.fused) == 1 and self._kind(part.fused[0]) == "expander"
        current, done = self._expanded(part) if expands else self._fused(part)
        for place in range(done, len(part.stages)):
            spec = Spec(part.fused, part.stages[: place + 1])
            current = self._next(spec, current, part.stages[place])
        return current

    def _fused(self, part: Spec) -> tuple[Stage, int]:
        """First stages, fused where there are several, and how many stages say in which way."""
        members = tuple(self.system(member) for member in part.fused)
        if len(members) == 1:
            return members[0], 0
        unit, done = _DEFAULT_FUSION, 0
        if part.stages and self._kind(part.stages[0], FOLLOWING) == "fusion":
            unit, done = cast(Unit, part.stages[0]), 1
        fusion = read_settings(configured(unit))
        depth = unit.depth or max(member.depth for member in members)
        text = str(Spec(part.fused, part.stages[:done]))
        return Fused(text, str(unit), members, fusion, depth), done

    def _expanded(self, part: Spec) -> tuple[Stage, int]:
        """An expander and the one stage that searches with its queries."""
        unit, searching = cast(Unit, part.fused[0]), part.stages[0]
        if self._kind(searching) == "expander":
            raise UsageError(
                f"system {str(part)!r}: {searching} expands queries that {unit} expanded already. "
                f"Choose one, or fuse two systems: '({unit} | bm25) + ({searching} | bm25)'."
            )
        from r2med.expand.writing import Expander

        first = self.system(searching)
        expander = Expander(read_settings(configured(unit)), self.conditions, self._finder)
        text = str(Spec(part.fused, (searching,)))
        stage = Expanding(text, str(unit), expander, first)
        if dict(unit.options) != {"generations": "published"} or not first.published_as:
            return stage, 1
        name = f"{unit.name}:{unit.argument} | {first.published_as}"
        return replace(stage, published_as=name, deviations=first.deviations), 1

    def _finder(self, task: Task, text: str) -> Finder:
        """What an expander that reads before it writes searches with."""
        from r2med.expand.writing import Finder

        stage = self.system(parse(text))
        if not isinstance(stage, Retrieval):
            raise UsageError(f"[search={text}]: expected one retriever, as in [search=bm25].")
        return Finder(task, stage.retriever, stage.built)

    def _kind(self, part: Unit | Spec, stages: tuple[StageKind, ...] = LEADING) -> StageKind:
        if isinstance(part, Spec):
            return "retriever"
        if part.name not in self.models:
            return entry_of(part, stages).stage
        from r2med.rerank.user_models import is_reranker

        model = self.models[part.name]
        encodes = stages == LEADING and hasattr(model, "encode")
        return "reranker" if is_reranker(model) and not encodes else "retriever"

    def _first(self, unit: Unit) -> Stage:
        if refused := _NOT_FIRST.get(self._kind(unit)):
            raise UsageError(f"system {str(unit)!r}: {unit.name} {refused.format(unit=unit)}.")
        text = str(unit)
        if unit.name in self.models:
            from r2med.retrieve.user_models import retriever_of

            entry = Entry(unit.name, "retriever", "custom", "a model of the caller's own")
            entry = entry.overridden(dict(unit.options))
            model = self.models[unit.name]
            retriever = retriever_of(model, name=unit.name, conditions=self.conditions)
            return Retrieval(text, text, entry, retriever, unit.depth or entry.depth)
        entry = configured(unit)
        settings = read_settings(entry)
        depth = unit.depth or entry.depth
        if isinstance(settings, RunSettings):
            file = locate_run(settings.path, settings.repeats)
            return GivenRun(text, text, file, unit.depth, tie_order=file.ties)
        if isinstance(settings, CandidateSettings):
            return GivenCandidates(text, text, settings, depth, tie_order=entry.ties)
        module = _module(entry)
        retriever = module.build(settings, self.conditions.building(module.__name__, settings))
        stage = Retrieval(text, text, entry, retriever, depth, identity_of(settings))
        if unit.options or unit.depth is not None:
            return stage
        return replace(stage, published_as=entry.published_as, deviations=entry.deviations)

    def _next(self, spec: Spec, first: Stage, unit: Unit | Spec) -> Stage:
        kind = self._kind(unit, FOLLOWING)
        if isinstance(unit, Spec) or kind in _NOT_NEXT:
            why = _NOT_NEXT[kind]
            if isinstance(unit, Unit) and unit.name == "model":
                why += f", and write a reranker of yours as 'own:{unit.argument}'"
            raise UsageError(f"system {str(spec)!r}: {unit} {why}.")
        if unit.name in self.models:
            from r2med.rerank.user_models import reranker_of

            entry = Entry(unit.name, "reranker", "own", "a reranker of the caller's own")
            entry = entry.overridden(dict(unit.options))
            reranker = reranker_of(unit.name, self.models[unit.name], self.conditions)
            identity: Mapping[str, object] = {}
        else:
            entry = configured(unit)
            settings, module = read_settings(entry), _module(entry)
            conditions = self.conditions.building(module.__name__, settings, str(unit))
            reranker = module.build(str(unit), settings, conditions)
            identity = identity_of(settings)
        if entry.tail not in ("keep", "drop"):
            raise UsageError(
                f"system {unit}: tail={entry.tail} is not known. tail=keep leaves the first "
                "stage's order below the reranked documents, tail=drop leaves it out."
            )
        depth, tail = unit.depth or entry.depth, cast("Tail", entry.tail)
        stage = Reranking(
            str(spec), str(unit), first, reranker, depth, tail, identity, tie_order=entry.ties
        )
        published = (
            entry.published_as is not None
            and not unit.options
            and first.text == entry.published_first
            and depth in entry.published_depths
        )
        if not published:
            return stage
        name = f"{first.text} | {unit.name}@{depth}"
        return replace(stage, published_as=name, deviations=entry.deviations)


def read_settings(entry: Entry) -> Any:
    """An entry's settings as its engine declares them."""
    declared = getattr(_module(entry), ENGINES[entry.engine].partition(":")[2])
    return read(declared, entry.fields, name=entry.name)


def _module(entry: Entry) -> Any:
    return importlib.import_module(ENGINES[entry.engine].partition(":")[0])


def _check_label(label: str) -> None:
    """A label must not read as another system, nor break a table."""
    if label.lower() in entries():
        raise UsageError(f"label {label!r} is the name of another system. Choose one of its own.")
    if len(label) > _LONGEST_LABEL or not label.strip() or not label.isprintable():
        raise UsageError(
            f"label {label[:60]!r}: expected 1 to {_LONGEST_LABEL} printable characters."
        )


def _check_name(name: str) -> None:
    """The name of a model must fit into a system's text, and belong to no other system."""
    if name.lower() in entries():
        raise UsageError(f"name={name!r} is the name of another system. Give one of its own.")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"name={name!r} cannot stand in a system's text. Use letters, digits, '.', '_' and "
            "'-', as in name='my-model'."
        )
