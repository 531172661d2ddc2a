"""`r2med judge`: judge unjudged results with language models, and see what that changes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import MissingError, UsageError, plural
from r2med.report.console import agreed, echo, echo_json, notice, progress, work_line
from r2med.report.formats import Page, show

if TYPE_CHECKING:
    from r2med.judge.panel import Panel
    from r2med.judge.pool import Pool
    from r2med.judge.store import JudgementSet
    from r2med.remote.budget import RequestEstimate
    from r2med.results.select import Ranking
    from r2med.tasks.task import Task

judge = command_group(
    default="pool",
    takes_arguments=True,
    help="Judge unjudged results with language models; `r2med judge SYSTEM...` runs `pool`.",
)

_OUTCOME = (
    "{task}: judged {asked:,} pairs ({already:,} already judged, {copied:,} equal texts, "
    "{unreadable_answers:,} unreadable answers); {set} has {pairs:,} pairs, {relevant:,} relevant, "
    "{undecided:,} undecided."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A judgement set.")]


@judge.command("pool")
def judge_systems(
    context: typer.Context,
    systems: options.Stored,
    judges: options.Judges,
    task: options.Task = "demo",
    depth: options.Depth = 10,
    rubric: options.Rubric = None,
    samples: options.Samples = 1,
    combine: Annotated[
        Literal["majority", "mean"],
        options.option("--combine", help="How several answers become one: majority or mean."),
    ] = "majority",
    calibration: options.CalibrationSize = 100,
    name: options.SetName = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    estimate: Annotated[
        bool, options.option("--estimate", help="Show the estimated cost and exit.")
    ] = False,
    llm_url: options.LlmUrl = None,
    fresh: options.Fresh = False,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    as_json: options.Json = False,
) -> None:
    """Judge the documents that systems retrieved and the benchmark did not judge.

    Systems are stored systems, result folders or run files. Judgements are stored in the results
    folder, apart from the benchmark's own; an interrupted command continues where it stopped.
    `r2med judge report` shows how they change the scores.
    """
    from r2med.judge.judging import default_rubric, items_of, judge_pool, open_set
    from r2med.judge.listing import describe_set
    from r2med.judge.panel import open_panel
    from r2med.judge.pool import pool_runs, sample_calibration
    from r2med.judge.rubric import find_rubric

    rows = []
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        for loaded in _load_tasks(task, data_root, results):
            rankings = _find_rankings(systems, loaded, results)
            chosen = find_rubric(rubric) if rubric else default_rubric(loaded)
            panel = open_panel(judges, chosen, resources.remote, samples=samples, combine=combine)
            pool = pool_runs(loaded, {r.name: r.run for r in rankings}, depth=depth)
            sample = sample_calibration(loaded, calibration)
            items = items_of(loaded, pool.ask, calibration=sample, systems=pool.systems)
            _warn_of_favours(panel, rankings)
            _describe_pool(loaded, pool, len(rankings), len(sample))
            for model, cost in panel.estimate(items):
                notice(f"{model}: {_describe_cost(cost)}.")
            if estimate:
                continue
            judged = open_set(loaded, panel, results, name=name, depth=depth, warn=notice)
            outcome = judge_pool(loaded, pool, sample, panel, judged, show=work_line(bar))
            judged.close()
            row = describe_set(judged)
            rows.append(
                {
                    "set": judged.name,
                    "task": loaded.name,
                    "asked": outcome.judged_now,
                    "already": outcome.already,
                    "copied": outcome.copied,
                    "unreadable_answers": outcome.answers.problems.total(),
                    "pairs": row.pairs,
                    "relevant": row.relevant,
                    "undecided": row.undecided,
                }
            )
            if not as_json:
                echo(_OUTCOME.format(**rows[-1]))
    if as_json:
        echo_json(rows)
    elif rows:
        notice(f"next: r2med judge report SYSTEM... --task {task} --judgements {rows[0]['set']}")


@judge.command("list")
def list_sets(
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """List the judgement sets of a results folder."""
    from r2med.judge.listing import StoredSets, describe_set
    from r2med.judge.store import JudgementStore

    sets = JudgementStore(results, warn=notice).sets()
    output_format = options.format_of(form, as_json)
    if not sets and output_format == "table":
        echo(f"No judgement sets in {results}. Try: r2med judge bm25 --task demo --judge LLM")
        return
    show(StoredSets([describe_set(judged) for judged in sets]), output_format)


@judge.command("show")
def show_set(
    name: Name,
    task: options.Task,
    query: Annotated[
        str | None, typer.Argument(metavar="[QUERY]", help="Only the query with this id.")
    ] = None,
    limit: options.Limit = 20,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    as_json: options.Json = False,
) -> None:
    """Show the judgements of a set with their rationales."""
    from r2med.judge.listing import judgement_row

    for loaded, judged in _find_sets(name, task, data_root, results):
        stored = [j for j in judged.judgements().values() if query in (None, j.query_id)]
        if query is not None and not stored:
            raise MissingError(f"{name} on {loaded.name}: query {query!r} has no judgement.")
        if as_json:
            echo_json([judgement_row(judgement, judged) for judgement in stored])
            continue
        for judgement in stored[:limit]:
            scores = ", ".join(f"{key} {value:g}" for key, value in judgement.scores.items())
            grade = "no grade" if judgement.grade is None else f"grade {judgement.grade}"
            echo(f"{judgement.query_id} · {judgement.item_id} · {grade} ({scores})")
            if judgement.duplicate_of:
                echo(f"  same text as {judgement.duplicate_of}")
            if judgement.rationale:
                echo(f"  {' '.join(judgement.rationale.split())}")
        if len(stored) > limit:
            echo(f"{len(stored) - limit:,} more; use --limit or --json, or name a query.")


@judge.command("export")
def export_sets(
    name: Name,
    task: options.Task,
    file: Annotated[Path, options.out("The file to write: .jsonl, .csv, or TREC judgements.")],
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    force: options.Force = False,
) -> None:
    """Write a judgement set as TREC judgements, JSON lines or CSV, by the file's ending."""
    from r2med.judge.listing import EXPORT_FORMATS, export_set
    from r2med.paths import require_empty
    from r2med.storage import write_file

    sets = _find_sets(name, task, data_root, results)
    if len(sets) > 1:
        raise UsageError(f"--task {task} names {len(sets)} tasks; export one at a time.")
    require_empty(file, force=force)
    write_file(file, export_set(sets[0][1], EXPORT_FORMATS.get(file.suffix.lower(), "qrels")))
    echo(f"wrote {file}")


@judge.command("delete")
def delete_sets(
    name: Name,
    task: options.Task,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    yes: options.Yes = False,
) -> None:
    """Delete a judgement set, after asking; cached answers of the judge stay."""
    from r2med.judge.listing import describe_set
    from r2med.judge.store import JudgementStore

    sets = _find_sets(name, task, data_root, results)
    count = sum(describe_set(judged).pairs for _, judged in sets)
    if not yes and not agreed(f"Delete {name} with {plural(count, 'judgement')}?"):
        echo("nothing was deleted")
        raise typer.Exit(1)
    for _, judged in sets:
        JudgementStore(results, warn=notice).delete(judged)
    echo(f"deleted {name} ({plural(count, 'judgement')})")


@judge.command("report")
def report(
    systems: options.Stored,
    task: options.Task = "demo",
    judgements: options.Judgements = "all",
    metric: options.Metric = options.METRIC,
    file: Annotated[Path | None, options.out("Write the report as HTML to this file.")] = None,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Show what added judgements change: scores, bounds, the order of systems, calibration."""
    from r2med.judge.reporting import report_task

    output_format = options.format_of(form, as_json)
    reports = []
    for loaded in _load_tasks(task, data_root, results):
        rankings = _find_rankings(systems, loaded, results)
        stored = {r.name: r.result for r in rankings if r.result is not None}
        runs = {r.name: r.run for r in rankings}
        reports.append(
            report_task(
                loaded, runs, judgements, results, metric=metric, stored=stored, warn=notice
            )
        )
    if file is not None:
        _write_html(reports, file)
        echo(f"wrote {file}")
        return
    if output_format == "json":
        echo_json([item.to_json() for item in reports])
        return
    for item in reports:
        show(item, output_format)
        if output_format == "table" and item is not reports[-1]:
            echo("")


def _warn_of_favours(panel: Panel, rankings: Sequence[Ranking]) -> None:
    """Warn if a judge and a system are of one model family, or if only one system is judged."""
    from r2med.judge.families import family_warnings

    stored = {ranking.name: ranking.result for ranking in rankings if ranking.result is not None}
    names = [name for chat in panel.judges for name in (chat.llm.name, chat.llm.model)]
    for warning in family_warnings(names, stored):
        notice(f"warning: {warning}")
    if len(rankings) == 1:
        notice(
            f"warning: only {rankings[0].name} is judged. Judging one system's results alone "
            "favours it; name the systems that it is compared with too."
        )


def _describe_pool(task: Task, pool: Pool, systems: int, calibration: int) -> None:
    notice(
        f"{task.name}: {pool.size:,} pooled pairs of {plural(systems, 'system')}, {pool.judged:,} "
        f"judged by the benchmark, {len(pool.judged_copies) + len(pool.copies):,} with the text of "
        f"another, {len(pool.ask):,} to judge, {calibration:,} for calibration."
    )


def _describe_cost(cost: RequestEstimate) -> str:
    tokens = cost.prompt_tokens + cost.completion_tokens
    money = "unknown" if cost.money is None else f"${cost.money:,.2f}"
    return (
        f"{cost.calls:,} calls, {cost.cached:,} answers cached, about {tokens:,} tokens, "
        f"cost {money} ({cost.basis})"
    )


def _write_html(reports: Sequence[object], file: Path) -> None:
    from r2med.report.cards.pages import html
    from r2med.report.drawing import draw
    from r2med.storage import write_file

    page = Page()
    for item in reports:
        draw(item, page)
    write_file(file, html(page, "Judgement report", "r2med judge report"))


def _load_tasks(task: str, root: Path | None, results: Path) -> list[Task]:
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    return list(load_tasks(task, root=root, local_tasks=find_local_tasks(results)))


def _find_rankings(systems: list[str], task: Task, results: Path) -> list[Ranking]:
    from r2med.results.select import ResultSet

    result_set = ResultSet.open(results, notice)
    rankings = [result_set.find_ranking(system, task, notice) for system in systems]
    if len({ranking.name for ranking in rankings}) < len(rankings):
        raise UsageError("one system is named twice.")
    return rankings


def _find_sets(
    name: str, task: str, root: Path | None, results: Path
) -> list[tuple[Task, JudgementSet]]:
    from r2med.judge.store import JudgementStore

    store = JudgementStore(results, warn=notice)
    return [(loaded, store.find(name, loaded)) for loaded in _load_tasks(task, root, results)]
