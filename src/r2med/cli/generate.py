"""`r2med generate`: have a model write for a task's queries, and keep what it wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import LimitError, UsageError, nearest
from r2med.home import slug
from r2med.report.console import answer, echo, progress

if TYPE_CHECKING:
    from r2med.expand.writing import Expander
    from r2med.systems.spec import Unit
    from r2med.tasks.task import Task


def generate(
    context: typer.Context,
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="hyde, query2doc, lamer, search-o1 or search-r1; options in []."
        ),
    ],
    llm: Annotated[
        str | None, typer.Option("--llm", help="The language model, e.g. smollm2 or gpt4.")
    ] = None,
    task: options.Task = "demo",
    data_root: options.DataRoot = None,
    folder: Annotated[Path, options.out("Where the files go.")] = Path("r2med-generations"),
    n: Annotated[int | None, typer.Option("--n", help="Samples for each query.")] = None,
    write_prompts: Annotated[
        Path | None,
        typer.Option(
            "--write-prompts", metavar="DIR", help="Only copy the method's prompts there, to edit."
        ),
    ] = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    engine: options.Engine = "local",
    worker_timeout: options.WorkerTimeout = None,
    llm_url: options.LlmUrl = None,
    prompts: options.Prompts = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
) -> None:
    """Have a model write for the queries of tasks; nothing is searched or scored.

    Every answer is kept the moment it arrives: a run that was stopped goes on
    where it was. Files are OUT/<task>/<method>/<llm>/query_with_hydoc.jsonl;
    eval reads them when [generations=OUT] follows the model's name.
    """
    from r2med.expand.prompts import write_prompts as copy_prompts
    from r2med.report.estimates import estimate_row, estimate_table, generation_table
    from r2med.systems.build import System
    from r2med.systems.spec import Spec, Unit
    from r2med.systems.stages import Expanding
    from r2med.tasks.load import load_tasks

    unit = _unit(method, llm, n)
    limits, where = ("max_tokens", "max_cost", "concurrency"), ("engine", "worker_timeout")
    if write_prompts is not None:
        others = ("llm", "task", "data_root", "folder", "n", "dry_run", "as_json", "llm_url")
        refuse_unread(context, "with --write-prompts", *others, "prompts", "fresh", *limits, *where)
        count, place = len(copy_prompts(unit.name, write_prompts)), write_prompts / unit.name
        echo(f"{count} prompts written to {place}; what was there is untouched.")
        return
    if not unit.argument:
        raise UsageError(
            f"{unit.name}: which model? Name it with --llm, as in `r2med generate {unit.name} "
            "--llm qwen-7b`; docs/llms.md lists the names."
        )
    if dry_run:
        refuse_unread(context, "with --dry-run", "folder", *limits, *where)
    with progress() as bar:
        allowed = options.conditions(context.params, bar)
        stage = System.from_spec(Spec((unit,), (Unit("bm25"),)), allowed).stage
        assert isinstance(stage, Expanding)
        writer = stage.expander.method
        if not writer.search:
            mode = f"on {writer.prompts}: it searches nothing, and the language model is asked "
            refuse_unread(context, f"{mode}from this process", *where)
        rows, tasks = [], list(load_tasks(task, root=data_root))
        stopped: LimitError | None = None
        try:
            for each in tasks:
                if dry_run:
                    estimate = stage.expander.live(each).estimate()
                    rows.append(estimate_row(stage.name, each.name, estimate))
                else:
                    rows.append(_written(stage.expander, each, folder))
        except LimitError as limit:
            stopped = LimitError(f"{limit}\n{len(rows)} of {len(tasks)} tasks are finished.")
        finally:
            allowed.close()
    table = estimate_table if dry_run else generation_table
    shown = [table(rows, f"{writer.prompts} by {writer.llm}")] if rows else []
    answer(rows, *shown, as_json=as_json)
    if stopped is not None:
        raise stopped


def _unit(text: str, llm: str | None, samples: int | None) -> Unit:
    """The method that a text names, options and all, with its one model and its samples."""
    from r2med.systems.registry import entries
    from r2med.systems.spec import Unit, parse

    spec = parse(text)
    unit = spec.fused[0]
    methods = [name for name, entry in entries().items() if entry.stage == "expander"]
    several = len(spec.fused) > 1 or spec.stages
    if several or not isinstance(unit, Unit) or unit.name.lower() not in methods:
        raise UsageError(f"generate takes one method, not {text!r}. {nearest(text, methods)}")
    options = dict(unit.options)
    if "generations" in options:
        raise UsageError("generate always asks the model: leave [generations=...] out.")
    models = sorted({name for name in (llm, unit.argument, options.pop("llm", None)) if name})
    if len(models) > 1:
        raise UsageError(f"two models are named: {' and '.join(models)}. Name one, with --llm.")
    named = models[0] if models else None
    options |= {} if samples is None else {"n": str(samples)}
    rest = tuple(sorted(options.items()))
    return replace(unit, name=unit.name.lower(), argument=named, options=rest, depth=None)


def _written(expander: Expander, task: Task, out: Path) -> dict[str, object]:
    """What it took to write `<out>/<task>/<method>/<llm>/query_with_hydoc.jsonl`."""
    from r2med.expand.generations import file_in, write_generations

    expansion = expander.live(task).expand()
    path = file_in(out / slug(task.name), expander.method.prompts, expander.method.llm)
    write_generations(expansion.queries, path)
    counts = ("generations", "truncated", "empty", "refused", "calls", "cached")
    used = ("prompt_tokens", "completion_tokens", "money")
    facts = {name: expansion.facts()[name] for name in (*counts, *used)}
    return {"task": task.name, **facts, "file": str(path)}
