"""`r2med fetch`: bring task data here, from the hub or from files the user already has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.tasks.hub import Fetched
    from r2med.tasks.registry import TaskEntry


def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="SUITE|TASK...", help="Suites (full, nano), tasks, or All."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="ZIP|DIR", help="Take files you have, not the hub's."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only check what is here; never use the network.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Download again what is here and sound.")
    ] = False,
    generations: Annotated[
        bool,
        typer.Option("--generations", help="Also what published models wrote for the queries."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Bring task data here, checked against the manifest.

    Downloads from the hub at the pinned revision, or with --from takes a zip,
    a folder, or a folder of zips. HF_ENDPOINT, HF_HUB_OFFLINE and HF_TOKEN
    are respected.
    """
    from r2med.errors import UsageError

    entries = _entries(names or [])
    if source is None and not entries:
        raise UsageError("Say what to fetch: a suite (full, nano), tasks, or --from ZIP|DIR.")
    rows = _take(source, entries) if source else _download(entries, offline=offline, force=force)
    if generations and source is None:
        rows += _download_generations(entries, offline=offline, force=force)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    from r2med.report.console import console

    out = console()
    for row in rows:
        out.print(f"{row['task']}: {row['told']}", soft_wrap=True)


def _entries(names: list[str]) -> list[TaskEntry]:
    from r2med.errors import UsageError
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


def _download(entries: list[TaskEntry], *, offline: bool, force: bool) -> list[dict[str, object]]:
    from r2med.report.download_bar import DownloadBar
    from r2med.tasks.hub import fetch as fetch_from_hub

    with DownloadBar() as bar:
        found = fetch_from_hub(entries, offline=offline, force=force, progress=bar)
    return [_row(item) for item in found]


def _download_generations(
    entries: list[TaskEntry], *, offline: bool, force: bool
) -> list[dict[str, object]]:
    from r2med.report.download_bar import DownloadBar
    from r2med.tasks.hub import fetch_generations

    with DownloadBar() as bar:
        found = fetch_generations(entries, offline=offline, force=force, progress=bar)
    return [{**_row(item), "told": _generations_told(item)} for item in found]


def _generations_told(item: Fetched) -> str:
    at = f" at {item.commit[:12]}" if item.commit else ""
    return (
        f"{item.downloaded} files of generations fetched{at}"
        if item.downloaded
        else f"generations already here{at}"
    )


def _row(item: Fetched) -> dict[str, object]:
    at = f" at {item.commit[:12]}" if item.commit else ""
    told = f"{item.downloaded} files fetched{at}" if item.downloaded else f"already here{at}"
    if item.entry.hub is None:
        told = "comes with r2med"
    return {
        "task": item.entry.name,
        "told": told,
        "files": item.downloaded,
        "folder": str(item.folder),
        "commit": item.commit,
    }
