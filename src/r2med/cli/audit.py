"""`r2med audit`: did the evaluation leak into training data?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from r2med.cli import options
from r2med.errors import UsageError
from r2med.report.console import notice, progress, work_line
from r2med.report.formats import Page, draw, show

if TYPE_CHECKING:
    from collections.abc import Iterator

    from r2med.audit.training import Audit
    from r2med.tabular import Tabular
    from r2med.tasks.task import Task

_REPORTS = ("audit.md", "audit.json")


def audit(
    training: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRAIN...", help="Files, folders, globs, or a dataset of the hub."),
    ] = None,
    task: options.AnyTask = None,
    against: Annotated[
        str,
        typer.Option("--against", help="What to look for: queries, positives, corpus."),
    ] = "queries,positives",
    itself: Annotated[
        str | None,
        typer.Option("--self", metavar="TASKS", help="Look for leaks within and between tasks."),
    ] = None,
    exclusions: Annotated[
        Path | None,
        typer.Option("--exclusions", help="An exclusion list, in place of --task and its texts."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", help="What to call the training set in outcomes.")
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--field", help="Only this field; role=field says what it holds. May be repeated."
        ),
    ] = None,
    ngram: Annotated[
        int, typer.Option("--ngram", min=8, max=13, help="Words in a run that counts as copied.")
    ] = 8,
    sample: options.Sample = None,
    neighbours: Annotated[
        str | None,
        typer.Option("--neighbours", metavar="ENCODER", help="Also texts of similar meaning."),
    ] = None,
    threshold: Annotated[
        float, typer.Option("--threshold", min=0, max=1, help="Cosine of a neighbour.")
    ] = 0.9,
    write_clean: Annotated[
        Path | None,
        typer.Option("--write-clean", metavar="DIR", help="Write the data without such rows."),
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
    from r2med.audit.evaluation import roles_of
    from r2med.audit.within import audit_self

    shown = options.format_of(form, as_json)
    _check_free(out, write_clean, force=force)
    value: Tabular
    if itself is not None:
        if training or task or exclusions or write_clean:
            raise UsageError("--self takes no TRAIN, --task, --exclusions or --write-clean.")
        with progress() as bar:
            tasks = _tasks(itself, data_root, results, strict=strict)
            value = audit_self(tasks, ngram=ngram, progress=work_line(bar))
    else:
        if (task is None) == (exclusions is None):
            raise UsageError("Say what to look for: --task TASKS, or --exclusions FILE, not both.")
        if exclusions is not None and neighbours is not None:
            raise UsageError("--neighbours needs the texts of --task; an exclusion list has none.")
        value = audited = _audited(
            training or [],
            _tasks(task, data_root, results, strict=strict) if task else iter(()),
            results,
            name=name,
            against=roles_of(against),
            ngram=ngram,
            sample=sample,
            fields=fields or [],
            exclusions=exclusions,
            neighbours=neighbours,
            threshold=threshold,
            metric=metric,
            strict=strict,
            force=force,
        )
        if write_clean is not None:
            _write_clean(audited, write_clean, fields or [])
    if out is not None:
        _write(value, out)
    show(value, shown, limit=limit)


def _audited(training: list[str], tasks: Iterator[Task], results: Path, **settings: Any) -> Audit:
    from r2med.audit.training import audit_training
    from r2med.results.lookup import stored_results

    stored = stored_results(results, notice)
    with progress() as bar:
        settings |= {"progress": work_line(bar), "tell": notice}
        try:
            return audit_training(training, tasks, results=results, stored=stored, **settings)
        except KeyboardInterrupt as stop:
            stop.add_note(
                f"What was looked through is kept in {results}; run the same command again "
                "to go on."
            )
            raise


def _write_clean(audit: Audit, folder: Path, fields: list[str]) -> None:
    from r2med.audit.training import write_clean

    counts = write_clean(audit, folder, fields=fields)
    for file, (removed, kept) in counts.items():
        notice(f"{folder}: {file} without {removed:,} rows, {kept:,} kept")


def _check_free(out: Path | None, write_clean: Path | None, *, force: bool) -> None:
    """Refuse before the work what could not be written after it."""
    taken = [name for name in _REPORTS if out is not None and (out / name).exists()]
    if taken and not force:
        raise UsageError(
            f"--out {out}: {taken[0]} is there, and was not touched; --force replaces it."
        )
    clean = write_clean
    if clean is not None and clean.exists() and (not clean.is_dir() or any(clean.iterdir())):
        raise UsageError(f"--write-clean {clean} is not empty, and nothing in it was touched.")


def _write(value: Tabular, out: Path) -> None:
    """The report as Markdown and JSON."""
    from r2med.atomic import atomic_file

    page = Page()
    draw(value, page, limit=1000)
    texts = (page.to_markdown() + "\n", json.dumps(value.to_json(), indent=1))
    for name, text in zip(_REPORTS, texts, strict=True):
        with atomic_file(out / name) as draft:
            draft.write_text(text, encoding="utf-8")


def _tasks(text: str, root: Path | None, results: Path, *, strict: bool) -> Iterator[Task]:
    from r2med.results.lookup import own_tasks
    from r2med.tasks.load import load_tasks

    return load_tasks(text, root=root, strict=strict, own=own_tasks(results))
