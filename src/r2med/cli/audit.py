"""`r2med audit`: did the evaluation leak into training data?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.atomic import check_free, write_file
from r2med.cli import options
from r2med.cli.options import chosen, refuse_unread
from r2med.errors import UsageError
from r2med.report.console import notice, progress, work_line
from r2med.report.formats import Page, draw, show

if TYPE_CHECKING:
    from r2med.audit.training import Audit
    from r2med.audit.within import SelfAudit

_REPORTS = ("audit.md", "audit.json")
#: Parameters that choose texts of a task, and those of an audit of training data.
_OF_TEXTS = ("against", "sample", "neighbours")
_OF_TRAINING = ("training", "task", "exclusions", "name", "fields", "write_clean", "metric")


def audit(
    context: typer.Context,
    training: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRAIN...", help="Files, folders, globs, or a dataset of the hub."),
    ] = None,
    task: options.AnyTask = None,
    against: Annotated[
        str, typer.Option(help="What to look for: queries, positives, corpus.")
    ] = "queries,positives",
    itself: Annotated[
        str | None,
        typer.Option("--self", metavar="TASKS", help="Look for leaks within and between tasks."),
    ] = None,
    exclusions: Annotated[
        Path | None, typer.Option(help="An exclusion list, in place of --task and its texts.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call the training set in outcomes.")
    ] = None,
    fields: Annotated[
        list[str] | None, typer.Option("--field", help="Only this field; may be repeated.")
    ] = None,
    ngram: Annotated[
        int, typer.Option(min=8, max=13, help="Words in a run that counts as copied.")
    ] = 8,
    sample: options.Sample = None,
    neighbours: Annotated[
        str | None, typer.Option(metavar="ENCODER", help="Also texts of similar meaning.")
    ] = None,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Cosine of a neighbour.")] = 0.9,
    write_clean: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the data without such rows.")
    ] = None,
    out: Annotated[
        Path | None, options.out("A folder for the report in Markdown and JSON.")
    ] = None,
    metric: options.Metric = options.METRIC,
    limit: options.Limit = 10,
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    strict: options.Strict = False,
    force: options.Force = False,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Say with evidence whether training data holds queries or positives of a task.

    Every match is verified word by word. Outcomes are stored with the results,
    where cards and leaderboards read them; an interrupted audit goes on.
    """
    from r2med.audit.evaluation import AGAINST, ExclusionMatcher, TextMatcher, evaluation
    from r2med.audit.training import audit_training, write_without
    from r2med.audit.within import audit_self
    from r2med.results.lookup import own_tasks
    from r2med.tasks.load import load_tasks

    shown = options.format_of(form, as_json)
    if write_clean is not None:
        check_free(write_clean, "--write-clean")
    for place in [out / report for report in _REPORTS] if out is not None else []:
        check_free(place, force=force)
    if itself is not None:
        refuse_unread(context, "with --self", *_OF_TRAINING, *_OF_TEXTS)
    elif (task is None) == (exclusions is None):
        raise UsageError("Say what to look for: --task TASKS, or --exclusions FILE, not both.")
    elif exclusions is not None:
        refuse_unread(context, "with --exclusions", *_OF_TEXTS, "ngram")
    if neighbours is None:
        refuse_unread(context, "without --neighbours", "threshold")
    names = [chosen(each.strip(), tuple(AGAINST), "--against") for each in against.split(",")]
    roles = [AGAINST[each] for each in names]
    named, own = itself or task, own_tasks(results)
    tasks = list(load_tasks(named, root=data_root, strict=strict, own=own)) if named else []
    value: Audit | SelfAudit
    with progress() as bar:
        if itself is not None:
            value = audit_self(tasks, ngram=ngram, progress=work_line(bar))
        else:
            value = audit_training(
                training or [],
                ExclusionMatcher(exclusions)
                if exclusions
                else TextMatcher(evaluation(tasks, roles, sample=sample), ngram=ngram),
                name=name,
                fields=fields or [],
                neighbours=(tasks[0], neighbours, threshold) if neighbours else None,
                results=results,
                metric=metric,
                strict=strict,
                force=force,
                progress=work_line(bar),
                tell=notice,
            )
            if write_clean is not None:
                for file, (removed, kept) in write_without(
                    value, write_clean, fields or []
                ).items():
                    notice(f"{write_clean}: {file} without {removed:,} rows, {kept:,} kept")
    if out is not None:
        page = Page()
        draw(value, page, limit=1000)
        texts = (page.to_markdown() + "\n", json.dumps(value.to_json(), indent=1))
        for report, text in zip(_REPORTS, texts, strict=True):
            write_file(out / report, text)
    show(value, shown, limit=limit)
