"""Generating without evaluating: texts for a task's queries, written in the reference layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from r2med.errors import UsageError, nearest
from r2med.expand.generations import place, write_generations
from r2med.home import slug
from r2med.retrieve.conditions import Conditions
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.systems.spec import Spec, Unit, parse
from r2med.systems.stages import Expanding
from r2med.tasks.task import Task


def generating(
    method: str, llm: str | None, *, samples: int | None, conditions: Conditions
) -> Expanding:
    """The expander of a method's text, such as `hyde`, `hyde:gpt4` or `lamer[passages=5]`."""
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
    unit = Unit(unit.name, models[0], tuple(sorted(options.items())))
    stage = System.from_spec(Spec((unit,), (Unit("bm25"),)), conditions).stage
    assert isinstance(stage, Expanding)
    return stage


def written(stage: Expanding, task: Task, out: Path) -> dict[str, object]:
    """What it took to write `<out>/<task>/<method>/<llm>/query_with_hydoc.jsonl`."""
    method, expansion = stage.expander.method, stage.expander.live(task).expand()
    path = place(out / slug(task.name), method.prompts, method.llm)
    write_generations(expansion.queries, path)
    counts = ("generations", "truncated", "empty", "refused", "calls", "cached")
    used = ("prompt_tokens", "completion_tokens", "money")
    facts = {name: expansion.facts()[name] for name in (*counts, *used)}
    return {"task": task.name, **facts, "file": str(path)}


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
