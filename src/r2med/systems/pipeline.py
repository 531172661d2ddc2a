"""From a system's text to something that runs: stages that take plain values and return them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from r2med.errors import UsageError
from r2med.retrieve.conditions import Conditions
from r2med.systems.building import Builder
from r2med.systems.registry import Entry, entries, registered
from r2med.systems.retrieval import Retrieval
from r2med.systems.spec import Spec, Unit, parse
from r2med.systems.stage import Part, Stage

_PLAIN = Conditions()


@dataclass(frozen=True)
class System:
    """A runnable system and the text that names it."""

    spec: Spec
    part: Part
    conditions: Conditions = _PLAIN

    @property
    def stage(self) -> Stage:
        """What runs."""
        return self.part.stage

    @classmethod
    def from_spec(
        cls,
        text: str | Spec,
        conditions: Conditions = _PLAIN,
        *,
        models: Mapping[str, object] | None = None,
    ) -> System:
        """Build a system from its text; unknown names and options are UsageErrors.

        `models` gives names to objects of the caller's own, so that the text may use them:
        `from_spec("bm25 | mine@50", models={"mine": reranker})`.
        """
        spec = registered(parse(text) if isinstance(text, str) else text)
        own = {_own_name(name): model for name, model in (models or {}).items()}
        return cls(spec, Builder(conditions, own).system(spec), conditions)

    @classmethod
    def from_model(
        cls, model: object, *, name: str | None = None, conditions: Conditions = _PLAIN
    ) -> System:
        """A system around a model of the caller's own: see r2med.retrieve.custom."""
        from r2med.retrieve.custom import retriever_of

        retriever = retriever_of(model, name=name, conditions=conditions)
        unit = Unit(_own_name(retriever.name))
        entry = Entry(unit.name, "retriever", "custom", "a model given as a Python object")
        stage = Retrieval(unit.name, entry, retriever, entry.depth)
        return cls(Spec((unit,)), Part(unit.name, stage), conditions)

    def __str__(self) -> str:
        return str(self.spec)


def _own_name(name: str) -> str:
    """The name, if a system's text can hold it and it belongs to no other system."""
    if name.lower() in entries():
        raise UsageError(f"name={name!r} is the name of another system. Give one of its own.")
    try:
        plain = parse(name) == Spec((Unit(name),))
    except UsageError:
        plain = False
    if not plain:
        raise UsageError(
            f"name={name!r} cannot stand in a system's text. Use letters, digits, '.', '_' and "
            "'-', as in name='my-model'."
        )
    return name
