"""`r2med tasks`: list tasks, bring their data here, check it, profile it, write about it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.cli.options import refuse_unread
from r2med.errors import MissingError, UsageError, plural
from r2med.paths import user_path
from r2med.report.console import answer, echo, notice, progress
from r2med.report.formats import show as show_value
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import TaskEntry, all_entries, resolve, suites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.audit.twins import Twin
    from r2med.tasks.load import Check

#: Twins that a warning names.
_TWINS_SHOWN = 5

tasks = command_group(
    default="list", help="List, fetch, verify and describe tasks.", no_args_is_help=False
)


@tasks.command()
def check(
    folders: Annotated[
        list[str], typer.Argument(metavar="FOLDER...", help="Folders with a task, or with several.")
    ],
    as_json: options.Json = False,
) -> None:
    """List all problems of your data at once, or describe it.

    Shows each problem with its file, line and id. Exits with 1 if there are any. Unjudged documents
    with the text of a judged one are listed as a warning.
    """
    from r2med.audit.twins import find_twins
    from r2med.report.tasks import problem_grids, summary
    from r2med.tasks.own_data import check as check_one
    from r2med.tasks.reading.source import task_folders

    paths = (path for folder in folders for path in task_folders(user_path(folder)))
    checked = [check_one(path) for path in paths]
    problems = [problem for found_problems, _ in checked for problem in found_problems]
    sound = (
        []
        if as_json
        else [summary(task) for found_problems, task in checked if task and not found_problems]
    )
    for found_problems, task in checked:
        if task and not found_problems:
            _warn_twins(task.name, find_twins(task))
    facts = [asdict(problem) for problem in problems]
    answer(facts, *problem_grids(problems), *sound, as_json=as_json)
    if problems:
        raise typer.Exit(1)


def _warn_twins(task: str, twins: Sequence[Twin]) -> None:
    """Print a warning about unjudged documents with the text of a judged one, with examples."""
    if not twins:
        return
    examples = [f"{twin.twin} like {twin.original} (query {twin.query})" for twin in twins]
    more = "" if len(twins) <= _TWINS_SHOWN else f" and {len(twins) - _TWINS_SHOWN} more"
    notice(
        f"{task}: {plural(len(twins), 'unjudged twin')} of judged documents: "
        f"{'; '.join(examples[:_TWINS_SHOWN])}{more}. `r2med eval --twins` shows their effect."
    )


@tasks.command("import")
def import_files(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="Documents, as .csv or .tsv.")],
    queries: Annotated[Path, typer.Argument(metavar="QUERIES", help="Queries, likewise.")],
    qrels: Annotated[Path, typer.Argument(metavar="QRELS", help="Judgements, likewise.")],
    folder: Annotated[Path, options.out("The folder to write.")],
    column: Annotated[
        list[str] | None,
        options.option(
            "--column",
            metavar="PART.FIELD=NAME",
            help="Name of a column, e.g. corpus.text=body; may be repeated.",
        ),
    ] = None,
    force: options.Force = False,
) -> None:
    """Make a task's folder from CSV or TSV files.

    Columns are found by usual names (id, text, title; query-id, corpus-id, score) or mapped with
    --column. `r2med tasks check` then says whether the data fits together.
    """
    from r2med.tasks.own_data import check as check_one
    from r2med.tasks.own_data import import_tables

    mapped = {}
    for mapping in column or ():
        name, equals, value = mapping.partition("=")
        if not equals or not value:
            raise UsageError(
                f"--column {mapping}: expected PART.FIELD=NAME, as in corpus.text=body."
            )
        mapped[name.strip()] = value.strip()
    tables = (corpus, queries, qrels)
    rows = import_tables(*tables, out=folder, columns=mapped, force=force, warn=notice)
    counts = map(plural, rows, ("document", "query", "judgement"))
    echo(f"wrote {folder}: {', '.join(counts)}")
    if problems := check_one(folder)[0]:
        echo(f"{plural(len(problems), 'problem')} in it: r2med tasks check {folder}")
    else:
        echo(f"Try next: r2med eval bm25 --task {folder}")


@tasks.command("list")
def list_tasks(
    context: typer.Context,
    names: options.AnyTaskArguments = None,
    by: options.By = "task",
    as_json: options.Json = False,
) -> None:
    """List the tasks, their sizes, and whether their data is downloaded."""
    from r2med.report.tasks import suite_table

    entries = _entries(names or [])
    if by == "body-system":
        raise UsageError("--by body-system groups queries; tasks are listed by task or family.")
    if as_json:
        refuse_unread(context, "on JSON", "by")
    parts: list[object] = []
    for suite in suites():
        if members := [entry for entry in entries if entry.suite == suite.name]:
            parts += [suite_table(suite, members, by), ""]
    parts.append("`r2med tasks show TASK` describes a task; `r2med fetch TASK` downloads its data.")
    answer([_facts(entry) for entry in entries], *parts, as_json=as_json)


@tasks.command()
def show(names: options.TaskArguments, as_json: options.Json = False) -> None:
    """Show everything about a task, including its licence and citation."""
    from r2med.report.tasks import task_details

    entries = _entries(names)
    parts = [part for entry in entries for part in ("", task_details(entry))]
    answer([_facts(entry) for entry in entries], *parts[1:], as_json=as_json)


@tasks.command()
def fetch(
    context: typer.Context,
    names: options.AnyTaskArguments = None,
    source: Annotated[
        Path | None,
        options.option(
            "--from", metavar="ZIP|DIR", help="Use a local archive or folder instead of the hub."
        ),
    ] = None,
    generations: Annotated[
        bool,
        options.option("--generations", help="Also download the published generations."),
    ] = False,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Download task data and check it against the manifest.

    Downloads from the hub at the pinned revision, or with --from takes a zip,
    a folder, or a folder of zips. HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN
    are respected.
    """
    if source is None and not names:
        raise UsageError("Name what to download: a suite (full, nano), tasks, or --from ZIP|DIR.")
    entries = _entries(names) if names else []
    if source is not None:
        from r2med.tasks.fetch.local import import_from

        refuse_unread(context, "with --from", "generations", "force")
        fetched = import_from(source, entries)
    else:
        from r2med.tasks.fetch.hub import fetch as fetch_data

        fetched = fetch_data(entries, force=force)
        if generations:
            fetched += fetch_data(entries, generations=True, force=force)
    for remark in (remark for task_data in fetched for remark in task_data.notices):
        notice(remark)
    rows = [asdict(task_data) | {"folder": str(task_data.folder)} for task_data in fetched]
    answer(
        rows, *(f"{task_data.task}: {task_data.outcome}" for task_data in fetched), as_json=as_json
    )


@tasks.command(short_help="Check data against the manifest.")
def verify(
    names: options.AnyTaskArguments = None,
    data_root: options.DataRoot = None,
    as_json: options.Json = False,
) -> None:
    """Check counts, text statistics and sha256 of data against the manifest.

    For Nano tasks, also checks the figures of their candidate subsets. Shows only the differences
    of several tasks; for one task, or with --json, shows every fact. Exits with 1 if anything
    differs or files are missing.
    """
    from r2med.nano.profiles import check_profile
    from r2med.nano.profiles import profile as measured_profile
    from r2med.report.tasks import check_summary, check_table
    from r2med.tasks.load import check_files, compare_with_manifest, load_task
    from r2med.tasks.partial import (
        check_partial_files,
        describe_partial_checks,
        find_partial_folder,
    )

    entries = _entries(names or [])
    if not names and data_root is not None:
        raise UsageError("With --data-root name tasks to check, e.g. `r2med tasks verify full`.")
    if not names:
        entries = [entry for entry in entries if is_present(entry)]
    if not entries:
        raise MissingError("No task data has been downloaded. Try: r2med fetch nano")
    checks: list[Check] = []
    incomplete: list[str] = []
    with progress() as bar:
        line = bar.add_task("verifying", total=len(entries))
        for entry in entries:
            bar.update(line, description=f"verifying {entry.name}")
            partial = find_partial_folder(entry, data_root)
            if partial is not None:
                checks += check_partial_files(entry, partial)
                incomplete.append(entry.name)
                bar.advance(line)
                continue
            task = load_task(entry.name, root=data_root, use_copy=False)
            checks += [*compare_with_manifest(task, entry), *check_files(entry, task.source)]
            if entry.suite == "nano":
                checks += check_profile(measured_profile(task), entry)
            bar.advance(line)
    differing = [check for check in checks if check.passed is False]
    several = [check_summary(entries, checks), *([check_table(differing)] if differing else [])]
    parts = several if len(entries) > 1 else [check_table(checks)]
    answer([asdict(check) for check in checks], *parts, as_json=as_json)
    for name in incomplete:
        notice(f"{name}: {describe_partial_checks(name, checks)}")
    if differing or incomplete:
        raise typer.Exit(1)


@tasks.command()
def profile(
    names: options.TaskArguments,
    dense: options.Dense = "wordllama",
    data_root: options.DataRoot = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Show the observed profile and the three retrieval profiles.

    A Nano task is profiled by the candidates beside its data; for others
    they are made here. Published figures are shown too, labelled.
    """
    from r2med.nano.folder import task_group
    from r2med.nano.profiles import Profiles, profile_with_candidates, published_profile

    output_format = options.format_of(form, as_json)
    if data_root is None and (entries := _only_published(names)):
        show_value(Profiles("NanoR2MED", tuple(map(published_profile, entries))), output_format)
        return
    title, group = task_group(names, data_root)
    encoder = None if dense == "none" else dense
    profiles = (profile_with_candidates(task, encoder, warn=notice)[0] for task in group)
    show_value(Profiles(title, tuple(profiles)), output_format)


@tasks.command(short_help="Write a task's page in Markdown, HTML and JSON.")
def card(
    names: options.TaskArguments,
    out: Annotated[Path, options.out("The folder to write the pages into.")],
    results: options.Results = options.RESULTS,
    dense: options.Dense = "wordllama",
    data_root: options.DataRoot = None,
    force: options.Force = False,
) -> None:
    """Write a task's page in Markdown, HTML and JSON; for several, a group page.

    Figures and failures come from the data, its candidates and stored
    results.
    """
    from r2med.nano.folder import task_group
    from r2med.report.cards.pages import write_cards
    from r2med.results.overlap import stored_audits
    from r2med.results.select import ResultSet, find_local_tasks

    title, group = task_group(names, data_root, find_local_tasks(results))
    pages = write_cards(
        group,
        out,
        title,
        results=ResultSet.open(results, notice).results,
        audits=stored_audits(results, notice),
        dense=None if dense == "none" else dense,
        force=force,
        tell=notice,
    )
    echo(f"{out}: {plural(len(pages), 'page')}, as .md, .html and .json")


@tasks.command(short_help="Write an exclusion list for training data.")
def exclusions(
    names: options.TaskArguments,
    out: Annotated[Path, options.out("The file to write; .gz is gzipped.")],
    data_root: options.DataRoot = None,
    force: options.Force = False,
    as_json: options.Json = False,
) -> None:
    """Write a list of texts that training data must not contain: ids, hashes and fingerprints.

    Covers queries, positives and documents of the same source; docs/exclusions.md documents the
    format, which holds no text.
    """
    from r2med.audit.evaluation import write_exclusions
    from r2med.nano.folder import task_group

    _, group = task_group(names, data_root)
    counts = write_exclusions(list(group), out, force=force)
    line = (
        f"{out}: {counts['query']:,} queries, {counts['positive']:,} positives, "
        f"{counts['same-source']:,} same-source documents"
    )
    answer({"out": str(out), **counts}, line, as_json=as_json)


def _entries(names: Sequence[str]) -> list[TaskEntry]:
    """Return the registered tasks of these names, or all tasks; UsageError for a folder."""
    entries = []
    for item in resolve(",".join(names)) if names else all_entries():
        if not isinstance(item, TaskEntry):
            raise UsageError(
                f"{item} is a folder, and the manifest knows registered tasks only.\n"
                "`--data-root DIR` checks your copy of one, `r2med fetch --from DIR` takes it."
            )
        entries.append(item)
    return entries


def _facts(entry: TaskEntry) -> dict[str, object]:
    local = {"present": is_present(entry), "folder": str(data_folder(entry))}
    positives = entry.statistics.get("relevant_docs", {}).get("average_relevant_docs_per_query")
    return {**asdict(entry), **local, "positives_per_query": positives}


def _only_published(names: Sequence[str]) -> list[TaskEntry]:
    """Return the tasks if all are Nano tasks without data here, else an empty list."""
    items = resolve(",".join(names))
    entries = [item for item in items if isinstance(item, TaskEntry) and item.candidates]
    return entries if len(entries) == len(items) and not any(map(is_present, entries)) else []
