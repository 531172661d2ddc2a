"""Pages besides results: labels and licences, running evaluations, leakage audits, and errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from r2med.evaluation.status import Status
from r2med.explore.library import Snapshot
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.causes import CAUSES
from r2med.results.overlap import StoredAudit
from r2med.results.record import library_versions
from r2med.tasks.registry import suites

#: Findings of one audit that are shown.
_FINDINGS = 25
_TITLES = {
    400: "The address asks for something unknown",
    403: "This is not allowed here",
    404: "Not here",
    422: "This cannot be shown",
}


def message_page(status: int, problem: str, link: Link) -> str:
    """Return an error as a page, with a link back."""
    first, _, more_lines = problem.partition("\n")
    title = _TITLES.get(status, "This did not work")
    return render(
        "message.html", link, page="", title=title, first=first, rest=more_lines.splitlines()
    )


def about_page(snapshot: Snapshot, link: Link) -> str:
    """Return the page of versions, licences and the meaning of labels."""
    folder = snapshot.library.folder
    return render(
        "about.html",
        link,
        page="about",
        title="About",
        versions=library_versions(),
        suites=suites(),
        causes=CAUSES.values(),
        folder=folder.resolve().name if snapshot.public else str(folder),
        snapshot=snapshot,
    )


def audits_page(audits: Sequence[StoredAudit], damaged: Sequence[str], link: Link) -> str:
    """Return the page of stored leakage audits, newest first, each with its strongest findings."""
    verdicts = Counter(audit.verdict for audit in audits)
    sets = plural(len({audit.training for audit in audits}), "training set")
    outcomes = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return render(
        "audits.html",
        link,
        page="audits",
        title="Leakage audits",
        audits=sorted(audits, key=lambda audit: audit.created, reverse=True),
        damaged=damaged,
        answer=f"{plural(len(audits), 'audit')} of {sets}: {outcomes}."
        if audits
        else "No training set has been audited here.",
        most=_FINDINGS,
    )


def running_page(statuses: Sequence[Status], snapshot: Snapshot, link: Link) -> str:
    """Return the page of evaluations in this results folder, newest first."""
    return render(
        "running.html",
        link,
        page="running",
        title="Running",
        statuses=statuses,
        answer=_progress(statuses),
        folder=str(snapshot.library.folder),
        names=snapshot.names,
        left=_time_left,
        live=any(status.end is None for status in statuses),
    )


def _progress(statuses: Sequence[Status]) -> str:
    """Describe the newest evaluation in a sentence with numbers."""
    if not statuses:
        return ""
    newest = statuses[0]
    done = f"{newest.count('done', 'reused')} of {plural(len(newest.cells), 'run')} done"
    if newest.end is None:
        left = _time_left(newest.seconds_left)
        return f"An evaluation is in progress: {done}{f', about {left} left' if left else ''}."
    if newest.end == "finished":
        return f"The last evaluation finished: {done}, {newest.count('failed')} failed."
    how = f"The last evaluation did not finish ({newest.end}): {done}"
    return f"{how}; run the same command again to go on."


def _time_left(seconds: float | None) -> str:
    """Return the time left, rounded, in words; empty if it is unknown."""
    if seconds is None:
        return ""
    return plural(max(1, round(seconds / 60)), "minute") if seconds > 90 else f"{seconds:.0f} s"
