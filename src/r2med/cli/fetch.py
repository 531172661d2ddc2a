"""`r2med fetch`: bring task data here, from the hub or from files the user already has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.options import AnyTaskArguments, Force, Json
from r2med.errors import UsageError

if TYPE_CHECKING:
    from r2med.tasks.hub import Fetched
    from r2med.tasks.registry import TaskEntry


def fetch(
    names: AnyTaskArguments = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="ZIP|DIR", help="Take files you have, not the hub's."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only check what is here; never use the network.")
    ] = False,
    generations: Annotated[
        bool,
        typer.Option("--generations", help="Also what published models wrote for the queries."),
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Bring task data here, checked against the manifest.

    Downloads from the hub at the pinned revision, or with --from takes a zip,
    a folder, or a folder of zips. HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN
    are respected.
    """
    from r2med.report.console import echo, echo_json

    entries = _entries(names or [])
    if source is None and not entries:
        raise UsageError("Say what to fetch: a suite (full, nano), tasks, or --from ZIP|DIR.")
    rows = _take(source, entries) if source else _download(entries, offline=offline, force=force)
    if generations and source is None:
        rows += _download(entries, offline=offline, force=force, generations=True)
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        echo(f"{row['task']}: {row['told']}")


def _entries(names: list[str]) -> list[TaskEntry]:
    from r2med.tasks.registry import TaskEntry, resolve

    found = [item for name in names for item in resolve(name)]
    for item in found:
        if not isinstance(item, TaskEntry):
            raise UsageError(
                f"{item} is a folder; to take files from it: r2med fetch --from {item}"
            )
    return list(dict.fromkeys(item for item in found if isinstance(item, TaskEntry)))


def _take(source: Path, entries: list[TaskEntry]) -> list[dict[str, object]]:
    from r2med.report.console import notice
    from r2med.tasks.archive import import_from

    taken = import_from(source, entries)
    for item in taken:
        for remark in item.notices:
            notice(remark)
    return [
        {
            "task": item.entry.name,
            "told": f"{item.files} files taken from {source}",
            "files": item.files,
            "folder": str(item.folder),
            "notices": list(item.notices),
        }
        for item in taken
    ]


def _download(
    entries: list[TaskEntry], *, offline: bool, force: bool, generations: bool = False
) -> list[dict[str, object]]:
    from r2med.report.console import DownloadBar
    from r2med.tasks.hub import fetch as fetch_data
    from r2med.tasks.hub import fetch_generations

    fetching = fetch_generations if generations else fetch_data
    with DownloadBar() as bar:
        fetched = fetching(entries, offline=offline, force=force, progress=bar)
    return [
        {
            "task": item.entry.name,
            "told": _outcome(item, generations),
            "files": item.downloaded,
            "folder": str(item.folder),
            "commit": item.commit,
        }
        for item in fetched
    ]


def _outcome(item: Fetched, generations: bool) -> str:
    at = f" at {item.commit[:12]}" if item.commit else ""
    if item.downloaded:
        return f"{item.downloaded} files{' of generations' if generations else ''} fetched{at}"
    if generations:
        return f"generations already here{at}"
    return "comes with r2med" if item.entry.hub is None else f"already here{at}"
