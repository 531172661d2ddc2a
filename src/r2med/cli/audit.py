"""`r2med audit`: did the evaluation leak into training data?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.options import (
    METRIC,
    RESULTS,
    AnyTask,
    DataRoot,
    Force,
    Format,
    Json,
    Limit,
    Metric,
    Results,
    Strict,
    format_of,
)
from r2med.cli.options import out as out_option
from r2med.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from r2med.tabular import Tabular
    from r2med.tasks.task import Task

_REPORTS = ("audit.md", "audit.json")


def audit(
    training: Annotated[
        list[str] | None,
        typer.Argument(metavar="TRAIN...", help="Files, folders, globs, or a dataset of the hub."),
    ] = None,
    task: AnyTask = None,
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
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, help="Take only so many of each task, for a quick try."),
    ] = None,
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
    out: Annotated[Path | None, out_option("A folder for the report in Markdown and JSON.")] = None,
    metric: Metric = METRIC,
    limit: Limit = 10,
    results: Results = RESULTS,
    data_root: DataRoot = None,
    strict: Strict = False,
    force: Force = False,
    form: Format = None,
    as_json: Json = False,
) -> None:
    """Say with evidence whether training data holds queries or positives of a task.

    Every match is verified word by word. Outcomes are stored with the results,
    where cards and leaderboards read them; an interrupted audit goes on.
    """
    from r2med.report.formats import show

    shown = format_of(form, as_json)
    _check_free(out, write_clean, force=force)
    if itself is not None:
        if training or task or exclusions or write_clean:
            raise UsageError("--self takes no TRAIN, --task, --exclusions or --write-clean.")
        value: Tabular = _self(itself, data_root, results, ngram=ngram, strict=strict)
    else:
        value = _training(
            training or [],
            task,
            against=against,
            exclusions=exclusions,
            name=name,
            fields=fields or [],
            ngram=ngram,
            sample=sample,
            neighbours=neighbours,
            threshold=threshold,
            write_clean=write_clean,
            metric=metric,
            results=results,
            data_root=data_root,
            strict=strict,
            force=force,
        )
    if out is not None:
        _write(value, out)
    show(value, shown, limit=limit)


def _training(
    training: list[str],
    task: str | None,
    *,
    against: str,
    exclusions: Path | None,
    name: str | None,
    fields: list[str],
    ngram: int,
    sample: int | None,
    neighbours: str | None,
    threshold: float,
    write_clean: Path | None,
    metric: str,
    results: Path,
    data_root: Path | None,
    strict: bool,
    force: bool,
) -> Tabular:
    from r2med.audit.cleaning import write_clean as cleaned
    from r2med.audit.evaluation import roles_of
    from r2med.audit.training import audit_training
    from r2med.report.console import notice, progress, work_line
    from r2med.results.lookup import stored_results

    if (task is None) == (exclusions is None):
        raise UsageError("Say what to look for: --task TASKS, or --exclusions FILE, not both.")
    if exclusions is not None and neighbours is not None:
        raise UsageError("--neighbours needs the texts of --task; an exclusion list has none.")
    roles = roles_of(against)
    with progress() as bar:
        try:
            outcome = audit_training(
                training,
                _tasks(task, data_root, results, strict=strict) if task else (),
                name=name,
                against=roles,
                ngram=ngram,
                sample=sample,
                fields=fields,
                exclusions=exclusions,
                neighbours=neighbours,
                threshold=threshold,
                results=results,
                stored=stored_results(results, notice),
                metric=metric,
                strict=strict,
                force=force,
                progress=work_line(bar),
                tell=notice,
            )
        except KeyboardInterrupt as stop:
            stop.add_note(
                f"What was looked through is kept in {results}; run the same command again "
                "to go on."
            )
            raise
    if write_clean is not None:
        counts = cleaned(
            outcome.sources, outcome.scan, outcome.evaluation, write_clean, fields=fields
        )
        for file, (removed, kept) in counts.items():
            notice(f"{write_clean}: {file} without {removed:,} rows, {kept:,} kept")
    return outcome


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
    import json
    from importlib import import_module

    from r2med.atomic import atomic_file
    from r2med.report.formats import Page

    page = Page()
    import_module(value.drawn_by).draw(value, page, limit=1000)
    texts = (page.to_markdown() + "\n", json.dumps(value.to_json(), indent=1))
    for name, text in zip(_REPORTS, texts, strict=True):
        with atomic_file(out / name) as draft:
            draft.write_text(text, encoding="utf-8")


def _self(
    tasks: str, data_root: Path | None, results: Path, *, ngram: int, strict: bool
) -> Tabular:
    from r2med.audit.within import audit_self
    from r2med.report.console import progress, work_line

    with progress() as bar:
        loaded = _tasks(tasks, data_root, results, strict=strict)
        return audit_self(loaded, ngram=ngram, progress=work_line(bar))


def _tasks(text: str, root: Path | None, results: Path, *, strict: bool) -> Iterator[Task]:
    from r2med.results.lookup import own_tasks
    from r2med.tasks.load import load_tasks

    return load_tasks(text, root=root, strict=strict, own=own_tasks(results))
