"""What runs here, whose data it is, what the labels mean, and how far evaluations have come."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from r2med.engine.status import Status
from r2med.explore.library import Library, Shelf
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.causes import CAUSES
from r2med.results.record import library_versions
from r2med.tasks.registry import suites

STATES = {
    "done": "done",
    "reused": "was stored",
    "running": "under way",
    "waiting": "waiting",
    "failed": "failed",
}


def about_page(library: Library, shelf: Shelf, link: Link, *, folder: str | None = None) -> str:
    """Versions, licences, labels; `folder` is what the results folder is called."""
    return render(
        "about.html",
        link,
        page="about",
        title="About",
        versions=library_versions(),
        suites=suites(),
        causes=CAUSES.values(),
        folder=folder or str(library.folder),
        results=len(shelf.results),
        damaged=shelf.damaged,
        older=shelf.older,
    )


def running_page(statuses: Sequence[Status], folder: str, link: Link) -> str:
    """Evaluations in this results folder, the newest first."""
    return render(
        "running.html",
        link,
        page="running",
        title="Running",
        statuses=statuses,
        answer=answer(statuses),
        states=STATES,
        folder=folder,
        left=time_left,
        moment=_moment,
        live=any(status.end is None for status in statuses),
    )


def answer(statuses: Sequence[Status]) -> str:
    """What the newest evaluation is doing, in a sentence with numbers."""
    if not statuses:
        return ""
    newest = statuses[0]
    done = newest.count("done", "reused")
    of = f"{done} of {plural(len(newest.cells), 'cell')}"
    if newest.end is None:
        left = time_left(newest.seconds_left)
        return f"An evaluation is under way: {of} are done{f', about {left} left' if left else ''}."
    if newest.end == "finished":
        failed = newest.count("failed")
        return (
            f"The last evaluation finished: {of} are done{f', {failed} failed' if failed else ''}."
        )
    how = {"failed": "failed", "interrupted": "was interrupted"}.get(newest.end, "was stopped")
    return f"The last evaluation {how} after {of}; run the same command again to go on."


def time_left(seconds: float | None) -> str:
    """A rough time, as a person would say it."""
    if seconds is None:
        return ""
    if seconds < 90:
        return plural(max(1, round(seconds)), "second")
    if seconds < 90 * 60:
        return plural(round(seconds / 60), "minute")
    return plural(round(seconds / 3600), "hour")


def _moment(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except ValueError:
        return text
