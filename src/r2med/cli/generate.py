"""`r2med generate`: generate and store query expansions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import LimitError, UsageError, nearest
from r2med.paths import slug
from r2med.report.console import answer, echo, progress

if TYPE_CHECKING:
    from r2med.expand.expander import Expander
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
    llm: options.Llm = None,
    task: options.Task = "demo",
    data_root: options.DataRoot = None,
    folder: Annotated[Path, options.out("Folder to write to.")] = Path("r2med-generations"),
    n: Annotated[int | None, options.option("--n", help="Generations per query.")] = None,
    write_prompts: Annotated[
        Path | None,
        options.option(
            "--write-prompts",
            metavar="DIR",
            help="Only copy the method's prompts to this folder, to edit them.",
        ),
    ] = None,
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
    """Generate query expansions with a language model; nothing is searched or scored.

    Every answer is stored when it arrives, so a stopped run continues where it was. Files are
    OUT/<task>/<method>/<llm>/query_with_hydoc.jsonl; eval reads them when [generations=OUT]
    follows the model's name.
    """
    from r2med.expand.prompts import write_prompts as copy_prompts
    from r2med.report.estimates import generation_table
    from r2med.systems.build import System
    from r2med.systems.spec import Spec, Unit
    from r2med.systems.stages import Expanding
    from r2med.tasks.load import load_tasks

    unit = _unit(method, llm, n)
    limits, where = ("max_tokens", "max_cost", "concurrency"), ("engine", "worker_timeout")
    if write_prompts is not None:
        unread = ("llm", "task", "data_root", "folder", "n", "as_json", "llm_url")
        refuse_unread(context, "with --write-prompts", *unread, "prompts", "fresh", *limits, *where)
        count, target = len(copy_prompts(unit.name, write_prompts)), write_prompts / unit.name
        echo(f"{count} prompts written to {target}; existing files are kept.")
        return
    if not unit.argument:
        raise UsageError(
            f"{unit.name}: which model? Name it with --llm, as in `r2med generate {unit.name} "
            "--llm qwen-7b`; docs/llms.md lists the names."
        )
    with progress() as bar:
        allowed = options.open_resources(context.params, bar)
        stage = System.from_spec(Spec((unit,), (Unit("bm25"),)), allowed).stage
        assert isinstance(stage, Expanding)
        writer = stage.expander.method
        if not writer.search:
            mode = f"on {writer.prompts}: it searches nothing, and the language model is asked "
            refuse_unread(context, f"{mode}from this process", *where)
        rows, tasks = [], list(load_tasks(task, root=data_root))
        stopped: LimitError | None = None
        try:
            for loaded in tasks:
                rows.append(_write_task(stage.expander, loaded, folder))
        except LimitError as limit:
            stopped = LimitError(f"{limit}\n{len(rows)} of {len(tasks)} tasks are finished.")
        finally:
            allowed.close()
    tables = [generation_table(rows, f"{writer.prompts} by {writer.llm}")] if rows else []
    answer(rows, *tables, as_json=as_json)
    if stopped is not None:
        raise stopped


def _unit(text: str, llm: str | None, samples: int | None) -> Unit:
    """Parse a method with its options, and add the model and the number of samples."""
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
    model = models[0] if models else None
    options |= {} if samples is None else {"n": str(samples)}
    remaining = tuple(sorted(options.items()))
    return replace(unit, name=unit.name.lower(), argument=model, options=remaining, depth=None)


def _write_task(expander: Expander, task: Task, out: Path) -> dict[str, object]:
    """Write a task's generations to a file and return a row of the table."""
    from r2med.expand.generations import generations_path, write_generations

    expansion = expander.bind_live(task).expand()
    path = generations_path(out / slug(task.name), expander.method.prompts, expander.method.llm)
    write_generations(expansion.queries, path)
    counts = ("generations", "truncated", "empty", "refused", "calls", "cached")
    used = ("prompt_tokens", "completion_tokens", "money")
    facts = {name: expansion.facts()[name] for name in (*counts, *used)}
    return {"task": task.name, **facts, "file": str(path)}
