"""`r2med review`: people label pairs, in a browser or in a file, and agreement is measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import UsageError, need, plural
from r2med.report.console import echo, notice
from r2med.report.formats import show

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from r2med.judge.review import ReviewQueue, ReviewStore
    from r2med.judge.store import JudgementSet, Pair
    from r2med.tasks.task import Task

review = command_group(
    default="page",
    help="Label pairs by hand; `r2med review --task T --reviewer NAME` opens a page.",
)


@review.command("page")
def open_page(
    task: options.Task,
    reviewer: options.Reviewer,
    judgements: options.Judgements = "all",
    size: options.QueueSize = 200,
    port: options.Port = None,
    open_browser: options.OpenBrowser = True,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
) -> None:
    """Open a page to label pairs, blind and by keyboard; Ctrl-C ends it.

    The queue is a stratified sample of judged pairs, the same for all reviewers and in another
    order for each. Every label is on disk before the next pair shows.
    """
    need("starlette", "uvicorn", "jinja2", extra="web")
    from r2med.explore.review import ReviewSession, create_review_app
    from r2med.judge.review import check_reviewer
    from r2med.serve.listener import open_listener, run_server

    loaded, store, queue, _ = _open_review(task, judgements, size, data_root, results)
    session = ReviewSession(queue, store, check_reviewer(reviewer), _texts(loaded), loaded.name)
    listener = open_listener("127.0.0.1", port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    app = create_review_app(session)
    try:
        echo(f"r2med review: {url} ({plural(len(queue.pairs), 'pair')}; Ctrl-C ends it)")
        run_server(app, listener, browse=url if open_browser else None)
    except KeyboardInterrupt as stop:
        stop.add_note("the review has ended; every label is stored.")
        raise
    finally:
        store.close()


@review.command("export")
def export_file(
    task: options.Task,
    reviewer: options.Reviewer,
    file: Annotated[Path, options.out("The file to write: .csv or .xlsx.")],
    judgements: options.Judgements = "all",
    size: options.QueueSize = 200,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    force: options.Force = False,
) -> None:
    """Write the queue of a reviewer as a CSV or spreadsheet file, to label without r2med."""
    from r2med.judge.review import check_reviewer
    from r2med.judge.review_files import export_review
    from r2med.paths import require_empty

    require_empty(file, force=force)
    loaded, store, queue, _ = _open_review(task, judgements, size, data_root, results)
    count = export_review(file, queue, check_reviewer(reviewer), _texts(loaded), store)
    echo(f"wrote {file} ({plural(count, 'pair')})")


@review.command("import")
def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A labelled .csv or .xlsx file.")],
    task: options.Task,
    reviewer: options.Reviewer,
    partial: options.Partial = False,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
) -> None:
    """Read a labelled file; all of its rows are checked before any label is stored."""
    from r2med.judge.review import ReviewStore, check_reviewer
    from r2med.judge.review_files import import_review

    loaded = _load_task(task, data_root, results)
    store = ReviewStore(results, loaded.name, loaded.suite, warn=notice)
    name = check_reviewer(reviewer)
    outcome = import_review(file, store.queue(), name, store, partial=partial)
    store.close()
    echo(
        f"{file}: stored {plural(outcome.labels, 'label')} of {name}, {outcome.unchanged:,} were "
        f"stored before, {outcome.unlabelled:,} rows have none."
    )


@review.command("agreement")
def show_agreement(
    task: options.Task,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Show agreement of reviewers with each other and with the judges."""
    from r2med.judge.review import ReviewStore
    from r2med.judge.review_report import report_review
    from r2med.judge.store import JudgementStore

    loaded = _load_task(task, data_root, results)
    store = ReviewStore(results, loaded.name, loaded.suite, warn=notice)
    sets = JudgementStore(results, warn=notice).sets(loaded)
    show(report_review(loaded, store.queue(), store, sets), options.format_of(form, as_json))


def _open_review(
    task: str, judgements: str, size: int, root: Path | None, results: Path
) -> tuple[Task, ReviewStore, ReviewQueue, list[JudgementSet]]:
    """Create or extend the queue of a task; return the task, its review, the queue and the sets."""
    from r2med.judge.review import ReviewStore, build_queue
    from r2med.judge.store import JudgementStore

    loaded = _load_task(task, root, results)
    sets_of = JudgementStore(results, warn=notice)
    sets = (
        sets_of.graded_sets(loaded) if judgements == "all" else [sets_of.find(judgements, loaded)]
    )
    store = ReviewStore(results, loaded.name, loaded.suite, warn=notice)
    queue = store.open(build_queue(loaded, sets, size=size))
    return loaded, store, queue, sets


def _load_task(task: str, root: Path | None, results: Path) -> Task:
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    tasks = list(load_tasks(task, root=root, local_tasks=find_local_tasks(results)))
    if len(tasks) != 1:
        raise UsageError(f"--task {task}: review one task at a time.")
    return tasks[0]


def _texts(task: Task) -> Callable[[Pair], Mapping[str, str]]:
    """Return a function that returns the texts of a pair."""
    from r2med.judge.pool import query_texts, texts_of

    queries = query_texts(task)

    def find(pair: Pair) -> Mapping[str, str]:
        passage = texts_of(task, [pair[1]]).get(pair[1], "")
        return {**queries[pair[0]], "passage": passage}

    return find
