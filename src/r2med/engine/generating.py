"""Generating without evaluating: texts for a task's queries, written in the reference layout."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from r2med.engine.estimating import Paid, of_generating
from r2med.errors import UsageError, nearest
from r2med.expand.generations import place, write_generations
from r2med.expand.method import Expansion
from r2med.expand.writing import FromModel
from r2med.home import slug
from r2med.retrieve.conditions import Conditions
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.systems.spec import Spec, Unit, parse
from r2med.systems.stages import Expanding
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Generating:
    """A method and a model, ready to write for any task."""

    name: str
    llm: str
    stage: Expanding

    @classmethod
    def of(
        cls, method: str, llm: str | None, *, samples: int | None, conditions: Conditions
    ) -> Generating:
        """From a method's text, such as `hyde`, `hyde:gpt4` or `lamer[passages=5]`."""
        unit = _unit(method, llm, samples)
        system = System.from_spec(Spec((unit,), (Unit("bm25"),)), conditions)
        assert isinstance(system.stage, Expanding)
        return cls(unit.name, str(unit.argument), system.stage)

    def estimate(self, task: Task) -> Paid:
        """What generating would use."""
        return of_generating(self._live(task), self.stage.name)

    def write(self, task: Task, out: Path) -> tuple[Expansion, Path]:
        """Generate, and write `<out>/<task>/<method>/<llm>/query_with_hydoc.jsonl`."""
        expansion = self._live(task).expand()
        path = place(out / slug(task.name), self.name, self.llm)
        write_generations(expansion.queries, path)
        return expansion, path

    def _live(self, task: Task) -> FromModel:
        return self.stage.expander.live(task, self.stage.finders)


def find_method(text: str) -> Unit:
    """The method that a text names, options and all; anything else is a UsageError."""
    spec = parse(text)
    unit = spec.fused[0]
    if len(spec.fused) > 1 or spec.stages or not isinstance(unit, Unit):
        raise UsageError(f"generate takes one method, such as hyde or lamer; got {text!r}.")
    known = entries()
    methods = [name for name, entry in known.items() if entry.stage == "expander"]
    name = unit.name.lower()
    if name in methods:
        return replace(unit, name=name)
    if name in known:
        raise UsageError(f"{name} does not generate: expected one of {', '.join(methods)}.")
    raise UsageError(f"method {unit.name!r} is not known. {nearest(name, methods)}")


def _unit(method: str, llm: str | None, samples: int | None) -> Unit:
    unit = find_method(method)
    options = dict(unit.options)
    if "generations" in options:
        raise UsageError("generate always asks the model: leave [generations=...] out.")
    if samples is not None:
        options["n"] = str(samples)
    models = sorted({name for name in (llm, unit.argument, options.pop("llm", None)) if name})
    if not models:
        raise UsageError(
            f"{unit.name}: which model? Name it with --llm, as in `r2med generate {unit.name} "
            "--llm qwen-7b`; docs/llms.md lists the names."
        )
    if len(models) > 1:
        raise UsageError(f"two models are named: {' and '.join(models)}. Name one, with --llm.")
    return Unit(unit.name, models[0], tuple(sorted(options.items())))
