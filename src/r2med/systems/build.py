"""Build systems from specs: which stage may follow which, and which module builds it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from r2med.errors import UsageError, nearest
from r2med.execution.resources import Resources
from r2med.plugins import load_plugins
from r2med.retrieve.run_files import CandidateSettings, RunSettings, locate_run
from r2med.settings import parse_settings, settings_identity
from r2med.systems.registry import (
    FOLLOWING,
    LEADING,
    Entry,
    StageType,
    configure,
    find_entry,
    require_entry,
    spell_registered,
)
from r2med.systems.spec import NAME, Spec, Unit, parse
from r2med.systems.stages import (
    CandidateStage,
    Expanding,
    Fused,
    Reranking,
    Retrieval,
    RunFileStage,
    Stage,
)
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.expander import Finder
    from r2med.rerank.scores import Tail

#: By backend: the module that builds its stages, and the class of its settings. Each module has
#: `build(settings, resources)`, for rerankers `build(name, settings, resources)`.
BACKENDS: Mapping[str, str] = {
    "bm25": "r2med.retrieve.bm25:Bm25Retriever",
    "dense": "r2med.retrieve.dense.retriever:Settings",
    "api": "r2med.retrieve.api:ApiSettings",
    "sparse": "r2med.retrieve.multi:SparseSettings",
    "late": "r2med.retrieve.multi:LateSettings",
    "custom": "r2med.retrieve.user_models:UserModelSettings",
    "run": "r2med.retrieve.run_files:RunSettings",
    "candidates": "r2med.retrieve.run_files:CandidateSettings",
    "fusion": "r2med.retrieve.fusion:Fusion",
    "expand": "r2med.expand.expander:Method",
    "cross-encoder": "r2med.rerank.cross_encoder:CrossEncoderSettings",
    "yes-no": "r2med.rerank.cross_encoder:YesNoSettings",
    "own-code": "r2med.rerank.user_models:OwnCodeSettings",
    "listwise": "r2med.rerank.styles:Listwise",
    "pointwise": "r2med.rerank.styles:Pointwise",
    "verdict": "r2med.rerank.styles:ReasonedVerdict",
    "setwise": "r2med.rerank.styles:Setwise",
    "groupwise": "r2med.rerank.styles:Groupwise",
    "own": "r2med.rerank.user_models:UserRerankerSettings",
}
_DEFAULT_FUSION = Unit("rrf")
_LONGEST_LABEL = 60
#: Why a stage may not be the first one, or may not follow others.
_NOT_FIRST: Mapping[StageType, str] = {
    "reranker": "sorts the documents of a first stage, so it needs one before it, as in "
    "'bm25 | {unit}'",
    "fusion": "fuses the retrievers before it, as in 'bm25 + bm25-nano | {unit}'",
    "expander": "expands queries for what follows it, as in '{unit} | bm25'",
}
_NOT_NEXT: Mapping[StageType, str] = {
    "retriever": "searches the corpus, so only an expander may come before it; fuse "
    "retrievers with '+'",
    "given": "is read, not searched, so nothing may come before it; fuse rankings with '+'",
    "fusion": "fuses retrievers joined by '+' right before it, as in 'bm25 + bm25-nano | rrf'",
    "expander": "expands queries, so it must come before the retriever",
}


@dataclass(frozen=True)
class System:
    """A system that can run, and its spec."""

    spec: Spec
    stage: Stage
    resources: Resources

    @classmethod
    def from_spec(
        cls,
        text: str | Spec,
        resources: Resources | None = None,
        *,
        models: Mapping[str, object] | None = None,
    ) -> System:
        """Build a system from its spec.

        Args:
            text: A spec such as "bm25 + minilm", as text or parsed.
            resources: Budget, clients and workers that the stages share; None creates new ones with
                default options.
            models: Python objects by the names that the spec uses for them.

        Raises:
            UsageError: If a name or option is not known.

        Examples:
            >>> str(System.from_spec("bm25 + bm25-nano | rrf[k=10]"))
            'bm25 + bm25-nano | rrf[k=10]'
        """
        spec = spell_registered(parse(text) if isinstance(text, str) else text)
        resources, models = resources or Resources(), models or {}
        for name in models:
            _check_name(name)
        if spec.label is not None:
            _check_label(spec.label)
        return cls(spec, Builder(resources, models).system(spec), resources)

    @classmethod
    def from_model(
        cls, model: object, *, name: str | None = None, resources: Resources | None = None
    ) -> System:
        """Build a system around a Python object; see docs/your-model.md."""
        from r2med.rerank.user_models import is_reranker
        from r2med.retrieve.user_models import name_model

        if is_reranker(model) and not hasattr(model, "encode"):
            raise UsageError(
                f"a {type(model).__name__} sorts documents of a first stage, so it needs one "
                "before it, as in r2med.evaluate('bm25 | mine', task, models={'mine': model})."
            )
        name = name or name_model(model)
        return cls.from_spec(Spec((Unit(name),)), resources, models={name: model})

    @property
    def label(self) -> str | None:
        """The name in tables, if the spec has a label."""
        return self.spec.label

    def __str__(self) -> str:
        return str(self.spec)


@dataclass(frozen=True)
class Builder:
    """Builds stages; names in `models` are Python objects of the caller."""

    resources: Resources
    models: Mapping[str, object]

    def system(self, spec: Spec | Unit) -> Stage:
        """Build a whole system: an expander or first stages, then rerankers."""
        if isinstance(spec, Unit):
            return self._build_first(spec)
        starts_with_expander = (
            spec.stages and len(spec.fused) == 1 and self._stage_type(spec.fused[0]) == "expander"
        )
        if starts_with_expander:
            stage, used_units = self._build_expanded(spec)
        else:
            stage, used_units = self._build_fused(spec)
        for index in range(used_units, len(spec.stages)):
            spec_so_far = Spec(spec.fused, spec.stages[: index + 1])
            stage = self._build_next(spec_so_far, stage, spec.stages[index])
        return stage

    def _build_fused(self, spec: Spec) -> tuple[Stage, int]:
        """Build the first stages, and fuse them if there are several.

        Also return how many of the units after them were used: 1 for a fusion unit, otherwise 0.
        """
        members = tuple(self.system(member) for member in spec.fused)
        if len(members) == 1:
            return members[0], 0
        unit, used_units = _DEFAULT_FUSION, 0
        if spec.stages and self._stage_type(spec.stages[0], FOLLOWING) == "fusion":
            unit, used_units = cast(Unit, spec.stages[0]), 1
        fusion = read_settings(configure(unit))
        depth = unit.depth or max(member.depth for member in members)
        text = str(Spec(spec.fused, spec.stages[:used_units]))
        return Fused(text, str(unit), members, fusion, depth), used_units

    def _build_expanded(self, spec: Spec) -> tuple[Stage, int]:
        """Build an expander and the retriever that searches with its queries.

        Also return how many of the units after the expander were used.
        """
        unit, search_unit = cast(Unit, spec.fused[0]), spec.stages[0]
        if self._stage_type(search_unit) == "expander":
            raise UsageError(
                f"system {str(spec)!r}: {search_unit} would expand queries that {unit} has already "
                "expanded. Choose one, or fuse two systems: "
                f"'({unit} | bm25) + ({search_unit} | bm25)'."
            )
        from r2med.expand.expander import Expander

        first = self.system(search_unit)
        entry = configure(unit)
        expander = Expander(read_settings(entry), self.resources, self._build_finder)
        text = str(Spec(spec.fused, (search_unit,)))
        stage = Expanding(text, str(unit), entry, expander, first)
        if dict(unit.options) != {"generations": "published"} or not first.published_as:
            return stage, 1
        name = f"{unit.name}:{unit.argument} | {first.published_as}"
        return replace(stage, published_as=name, deviations=first.deviations), 1

    def _build_finder(self, task: Task, text: str) -> Finder:
        """Build the retriever with which an expander searches for passages."""
        from r2med.expand.expander import Finder

        stage = self.system(parse(text))
        if not isinstance(stage, Retrieval):
            raise UsageError(f"[search={text}]: expected one retriever, as in [search=bm25].")
        return Finder(task, stage.retriever, stage.search_identity(task))

    def _stage_type(self, part: Unit | Spec, stages: tuple[StageType, ...] = LEADING) -> StageType:
        """Return the type of a part of a system; `stages` are the types allowed at its position.

        A user's object that can both encode and rerank is a retriever in first position.
        """
        if isinstance(part, Spec):
            return "retriever"
        if part.name not in self.models:
            return require_entry(part, stages).stage
        from r2med.rerank.user_models import is_reranker

        model = self.models[part.name]
        encodes = stages == LEADING and hasattr(model, "encode")
        return "reranker" if is_reranker(model) and not encodes else "retriever"

    def _build_first(self, unit: Unit) -> Stage:
        if refused := _NOT_FIRST.get(self._stage_type(unit)):
            raise UsageError(f"system {str(unit)!r}: {unit.name} {refused.format(unit=unit)}.")
        text = str(unit)
        if unit.name in self.models:
            from r2med.retrieve.user_models import UserModelSettings, retriever_of

            entry = Entry(unit.name, "retriever", "custom", "a model of the caller's own")
            entry = entry.override(dict(unit.options))
            model = self.models[unit.name]
            retriever = retriever_of(model, name=unit.name, resources=self.resources)
            # The same model has the same identity as an object and as `model:module:Class`.
            identity = settings_identity(UserModelSettings())
            return Retrieval(text, text, entry, retriever, unit.depth or entry.depth, identity)
        entry = configure(unit)
        settings = read_settings(entry)
        depth = unit.depth or entry.depth
        if isinstance(settings, RunSettings):
            file = locate_run(settings.path, settings.repeats)
            return RunFileStage(text, text, file, unit.depth, tie_order=file.ties)
        if isinstance(settings, CandidateSettings):
            return CandidateStage(text, text, settings, depth, tie_order=entry.ties)
        module = _module(entry)
        retriever = module.build(settings, self.resources)
        if hasattr(retriever, "worker_stage"):
            from r2med.execution.workers import StageSpec

            worker_stage = StageSpec(text, self.resources.options, build_retriever)
            retriever = replace(retriever, worker_stage=worker_stage)
        stage = Retrieval(text, text, entry, retriever, depth, settings_identity(settings))
        if unit.options or unit.depth is not None:
            return stage
        return replace(stage, published_as=entry.published_as, deviations=entry.deviations)

    def _build_next(self, spec: Spec, first: Stage, unit: Unit | Spec) -> Stage:
        stage_type = self._stage_type(unit, FOLLOWING)
        if isinstance(unit, Spec) or stage_type in _NOT_NEXT:
            reason = _NOT_NEXT[stage_type]
            if isinstance(unit, Unit) and unit.name == "model":
                reason += f", and write your reranker as 'own:{unit.argument}'"
            raise UsageError(f"system {str(spec)!r}: {unit} {reason}.")
        if unit.name in self.models:
            from r2med.rerank.user_models import UserRerankerSettings, wrap_reranker

            entry = Entry(unit.name, "reranker", "own", "a reranker of the caller's own")
            entry = entry.override(dict(unit.options))
            reranker = wrap_reranker(unit.name, self.models[unit.name], self.resources)
            identity = settings_identity(UserRerankerSettings(target=""))
        else:
            entry = configure(unit)
            settings, module = read_settings(entry), _module(entry)
            reranker = module.build(str(unit), settings, self.resources)
            if hasattr(reranker, "worker_stage"):
                from r2med.execution.workers import StageSpec

                options = self.resources.options
                reranker.worker_stage = StageSpec(str(unit), options, build_reranker)
            identity = settings_identity(settings)
        if entry.tail not in ("keep", "drop"):
            raise UsageError(
                f"system {unit}: tail={entry.tail} is not known. With tail=keep the remaining "
                "documents of the first stage follow the reranked ones; tail=drop leaves them out."
            )
        depth, tail = unit.depth or entry.depth, cast("Tail", entry.tail)
        stage = Reranking(
            str(spec),
            str(unit),
            entry,
            first,
            reranker,
            depth,
            tail,
            identity,
            llm=unit.argument if entry.argument == "llm" else None,
            tie_order=entry.ties,
        )
        is_published = (
            entry.published_as is not None
            and not unit.options
            and first.text == entry.published_first
            and depth in entry.published_depths
        )
        if not is_published:
            return stage
        name = f"{first.text} | {unit.name}@{depth}"
        return replace(stage, published_as=name, deviations=entry.deviations)


def build_retriever(spec: str, resources: Resources) -> Any:
    """Build a retriever in a worker."""
    stage = Builder(resources, {}).system(parse(spec))
    return cast(Retrieval, stage).retriever


def build_reranker(spec: str, resources: Resources) -> Any:
    """Build a reranker in a worker; `spec` is the reranker alone, without a first stage."""
    unit = parse(f"bm25 | {spec}").stages[0]
    entry = configure(cast(Unit, unit))
    return _module(entry).build(str(unit), read_settings(entry), resources)


def read_settings(entry: Entry) -> Any:
    """Return the settings of an entry as an object of its backend's settings class."""
    settings_class = getattr(_module(entry), _backend(entry).partition(":")[2])
    return parse_settings(settings_class, entry.fields, name=entry.name)


def _module(entry: Entry) -> Any:
    return importlib.import_module(_backend(entry).partition(":")[0])


def _check_label(label: str) -> None:
    """Raise UsageError if a label is the name of a system, or cannot be shown in a table."""
    if find_entry(label):
        raise UsageError(f"label {label!r} is the name of another system. Choose another label.")
    if len(label) > _LONGEST_LABEL or not label.strip() or not label.isprintable():
        raise UsageError(
            f"label {label[:60]!r}: expected 1 to {_LONGEST_LABEL} printable characters."
        )


def _check_name(name: str) -> None:
    """Raise UsageError if a model's name is the name of a system, or not valid in a spec."""
    if find_entry(name):
        raise UsageError(f"name={name!r} is the name of another system. Choose another name.")
    if not NAME.fullmatch(name):
        raise UsageError(
            f"name={name!r} cannot be used in a spec. Use letters, digits, '.', '_' and "
            "'-', as in name='my-model'."
        )


def _backend(entry: Entry) -> str:
    """Return the module and the settings class of an entry's backend, as `module:Class`."""
    if entry.backend in BACKENDS:
        return BACKENDS[entry.backend]
    plugin_backends = load_plugins().backends
    if entry.backend in plugin_backends:
        return plugin_backends[entry.backend]
    raise UsageError(
        f"{entry.name}: backend {entry.backend!r} is not known. "
        f"{nearest(entry.backend, [*BACKENDS, *plugin_backends])}"
    )
