"""`r2med eval`: run systems on tasks and show their scores."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.estimate import estimate
from r2med.cli.llm_options import (
    Concurrency,
    Fresh,
    LlmUrl,
    MaxCost,
    MaxTokens,
    Prompts,
    with_llm,
)
from r2med.cli.model_options import (
    Device,
    Model,
    TrustRemoteCode,
    Verbose,
    seen_texts,
    with_models,
    with_own_models,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from r2med.report.scores_table import Grouping
    from r2med.results.record import Result
    from r2med.retrieve.conditions import Conditions


def evaluate(
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="SYSTEM...", help="Systems, e.g. bm25 or 'bm25 + wordllama'."),
    ] = None,
    task: Annotated[
        str,
        typer.Option(
            "--task",
            "-t",
            help="Tasks, suites (full, nano, demo), All, or folders; comma-separated.",
        ),
    ] = "demo",
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder with task data you have, as ROOT/<task>/corpus.jsonl ..."),
    ] = None,
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    metrics: Annotated[
        str | None, typer.Option(help="Metrics to show, e.g. ndcg@10,recall@20,mrr.")
    ] = None,
    by: Annotated[str, typer.Option(help="Rows of the table: task, scenario or family.")] = "task",
    force: Annotated[bool, typer.Option("--force", help="Run again what is stored.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail on judgements and runs with unknown ids.")
    ] = False,
    model: Model = None,
    trust_remote_code: TrustRemoteCode = False,
    device: Device = None,
    verbose: Verbose = False,
    llm_url: LlmUrl = None,
    prompts: Prompts = None,
    fresh: Fresh = False,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    concurrency: Concurrency = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what paid models would be asked.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Run systems on tasks and show their scores.

    Finished results are reused; --force runs again, --fresh also asks models again.
    """
    from r2med.cli.choices import chosen
    from r2med.measure import HEADLINE, parse_metric

    grouping: Grouping = chosen(by, ("task", "scenario", "family"), "--by")
    names = [str(parse_metric(name)) for name in metrics.split(",")] if metrics else list(HEADLINE)
    named = with_own_models(systems, model)
    running = partial(with_models, trust_remote_code=trust_remote_code, device=device)
    asking = partial(
        with_llm,
        llm_url=llm_url,
        prompts=prompts,
        fresh=fresh,
        max_tokens=max_tokens,
        max_cost=max_cost,
        concurrency=concurrency,
    )
    if dry_run:
        estimate(named, task, data_root, lambda plain: running(asking(plain)), as_json=as_json)
        return
    again = force or fresh
    found = _run(
        named,
        task,
        data_root,
        results,
        names,
        force=again,
        strict=strict,
        conditions=lambda plain: running(asking(plain)),
    )
    if verbose:
        for result in found:
            for line in seen_texts(result):
                typer.echo(line, err=True)
    if as_json:
        typer.echo(json.dumps([_json(result, names) for result in found], indent=2))
    else:
        _show(found, names, grouping)


def _run(
    systems: Sequence[str],
    tasks: str,
    root: Path | None,
    results: Path,
    metrics: list[str],
    *,
    force: bool,
    strict: bool,
    conditions: Callable[[Conditions], Conditions],
) -> list[Result]:
    from r2med.engine.evaluate import each_result
    from r2med.report.console import notice, progress
    from r2med.report.work_line import work_line
    from r2med.retrieve.conditions import Conditions
    from r2med.systems.pipeline import System
    from r2med.tasks.registry import resolve

    wanted = [item if isinstance(item, Path) else item.name for item in resolve(tasks)]
    found = []
    with progress() as bar:
        plain = Conditions(strict=strict, tell=notice, progress=work_line(bar))
        built = [System.from_spec(system, conditions(plain)) for system in systems]
        line = bar.add_task("evaluating", total=len(wanted) * len(built))
        for result in each_result(
            built,
            wanted,
            root=root,
            results=results,
            metrics=metrics,
            force=force,
            strict=strict,
            tell=notice,
        ):
            found.append(result)
            bar.update(line, advance=1, description=f"{result.task} · {result.system}")
    return found


def _json(result: Result, metrics: list[str]) -> dict[str, object]:
    reranking = result.record.reranking
    reranked = (
        {}
        if not reranking
        else {
            "reranked": reranking.depth,
            "tail": reranking.tail,
            "ceiling": {name: reranking.ceiling[name] for name in metrics},
        }
    )
    return {
        "system": result.system,
        "task": result.task,
        "suite": result.suite,
        "queries": result.record.task.judged_queries,
        "metrics": {name: result.metrics[name] for name in metrics},
        "seconds": dict(result.seconds),
        "result": str(result.folder),
        **reranked,
    }


def _show(found: list[Result], metrics: list[str], by: Grouping) -> None:
    from r2med.report.console import console
    from r2med.report.reranking_notes import reranking_notes
    from r2med.report.scores_table import score_tables

    out = console()
    for table in score_tables(found, metrics, by=by):
        out.print(table)
    for note in reranking_notes(found, metrics):
        out.print(note, soft_wrap=False)
