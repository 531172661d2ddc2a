"""`r2med audit`: did the evaluation leak into training data?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from r2med.cli import options
from r2med.cli.options import check_choice, refuse_unread
from r2med.errors import UsageError, plural
from r2med.paths import require_empty
from r2med.report.console import echo, notice, progress, work_line
from r2med.report.drawing import draw
from r2med.report.formats import Page, show
from r2med.storage import write_file

if TYPE_CHECKING:
    from r2med.audit.training import Audit, CleanCopy
    from r2med.audit.within import SelfAudit

_REPORTS = ("audit.md", "audit.json")
#: Parameters that choose texts of a task, and those of an audit of training data.
_OF_TEXTS = ("against", "sample", "neighbours")
_OF_TRAINING = (
    "training",
    "task",
    "exclusions",
    "name",
    "fields",
    "write_clean",
    "metric",
    "fail_if",
)


def audit(
    context: typer.Context,
    training: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRAIN...", help="Files, folders, globs, or a dataset of the hub."),
    ] = None,
    task: options.AnyTask = None,
    against: Annotated[
        str, options.option(help="Texts to look for: queries, positives, corpus.")
    ] = "queries,positives",
    itself: Annotated[
        str | None,
        options.option(
            "--self",
            metavar="TASKS",
            help="Look for repeated texts within and between these tasks.",
        ),
    ] = None,
    exclusions: Annotated[
        Path | None,
        options.option(help="Look for the texts of this exclusion list instead of --task."),
    ] = None,
    name: Annotated[str | None, options.option(help="Name of the training set in reports.")] = None,
    fields: Annotated[
        list[str] | None, options.option("--field", help="Read only this field; may be repeated.")
    ] = None,
    ngram: Annotated[
        int, options.option(min=8, max=13, help="Length in words of a copied passage.")
    ] = 8,
    sample: options.Sample = None,
    neighbours: Annotated[
        str | None,
        options.option(metavar="ENCODER", help="Also look for texts with a similar meaning."),
    ] = None,
    threshold: Annotated[
        float, options.option(min=0, max=1, help="Smallest cosine of similar texts.")
    ] = 0.9,
    write_clean: Annotated[
        Path | None,
        options.option(metavar="DIR", help="Write the data without leaked rows to this folder."),
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
    fail_if: Annotated[
        Literal["contaminated", "suspicious"] | None,
        options.option(
            "--fail-if",
            help="Exit with 4 if a task is contaminated (or: at least suspicious), or if a file "
            "could not be read.",
        ),
    ] = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Check whether training data contains queries or positives of a task.

    Every match is verified word by word. Findings are stored with the results and shown in cards
    and leaderboards. An interrupted audit continues where it stopped.
    """
    from r2med.audit.evaluation import AGAINST, ExclusionMatcher, TextMatcher, evaluation
    from r2med.audit.training import audit_training, write_clean_copy
    from r2med.audit.within import audit_self
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    output_format = options.format_of(form, as_json)
    if write_clean is not None:
        require_empty(write_clean, "--write-clean")
    reports = [out / name for name in _REPORTS] if out is not None else []
    if all(path.exists() for path in reports):  # one alone was left by an audit that was killed
        for path in reports:
            require_empty(path, force=force)
    if itself is not None:
        refuse_unread(context, "with --self", *_OF_TRAINING, *_OF_TEXTS)
    elif (task is None) == (exclusions is None):
        raise UsageError("Give either --task TASKS or --exclusions FILE.")
    elif exclusions is not None:
        refuse_unread(context, "with --exclusions", *_OF_TEXTS, "ngram")
    if neighbours is None:
        refuse_unread(context, "without --neighbours", "threshold")
    names = [check_choice(word.strip(), tuple(AGAINST), "--against") for word in against.split(",")]
    roles = [AGAINST[word] for word in names]
    task_names, local_tasks = itself or task, find_local_tasks(results)
    tasks = (
        list(load_tasks(task_names, root=data_root, strict=strict, local_tasks=local_tasks))
        if task_names
        else []
    )
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
                warn=notice,
            )
            if write_clean is not None:
                for copy in write_clean_copy(value, write_clean, fields or []):
                    notice(_describe_copy(copy, write_clean))
    if out is not None:
        page, shared = Page(), _hide_folders(value)
        draw(shared, page, limit=1000)
        texts = (page.to_markdown() + "\n", json.dumps(shared.to_json(), indent=1))
        for report, text in zip(_REPORTS, texts, strict=True):
            write_file(out / report, text)
    show(value, output_format, limit=limit)
    if fail_if is not None:
        problems = list(_find_failures(value, fail_if))
        if output_format == "table":
            echo("\n".join(problems) or f"passed: no task is {fail_if}")
        raise typer.Exit(4 if problems else 0)


def _hide_folders(audit: Audit | SelfAudit) -> Audit | SelfAudit:
    """Return the audit with local folders removed from the names of systems and files."""
    from r2med.audit.training import Audit
    from r2med.explore.sharing import without_folders

    if not isinstance(audit, Audit):
        return audit
    effects = tuple(
        replace(effect, system=without_folders(effect.system), name=without_folders(effect.name))
        for effect in audit.effects
    )
    failed = {
        without_folders(file): without_folders(problem)
        for file, problem in audit.scan.failed.items()
    }
    return replace(audit, effects=effects, scan=replace(audit.scan, failed=failed))


def _find_failures(audit: Audit | SelfAudit, verdict: str) -> Iterator[str]:
    """Yield a line for each task with this verdict or a worse one, and for each unread file."""
    from r2med.audit.findings import VERDICTS
    from r2med.audit.training import Audit

    if not isinstance(audit, Audit):
        return
    for task in audit.tasks:
        if VERDICTS.index(task.verdict) >= VERDICTS.index(verdict):
            yield f"failed: {task.task} is {task.verdict}: {task.reason}"
    for problem in audit.scan.failed.values():
        yield f"failed: {problem}"


def _describe_copy(copy: CleanCopy, folder: Path) -> str:
    message = f"{folder}: {copy.file} without {plural(copy.removed, 'leaked row')}"
    if copy.unreadable:
        message += f" and {plural(copy.unreadable, 'unreadable row')}"
    return f"{message}; {plural(copy.kept, 'row')} kept"
