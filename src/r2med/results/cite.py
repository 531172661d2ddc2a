"""BibTeX entries of r2med, of benchmarks and datasets, and of works whose figures are shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from r2med.results.published import Publication, printed_figures, works
from r2med.tasks.registry import TaskEntry, find_suite

_ARXIV = re.compile(r"arXiv[: ](\d{4}\.\d{4,5})")
_KEY = re.compile(r"[^a-z0-9]+")
_PUBLISHED_SUITES = ("full", "nano")


@dataclass(frozen=True)
class Citation:
    """One BibTeX entry."""

    key: str
    fields: tuple[tuple[str, str], ...]

    def to_bibtex(self) -> str:
        """The entry as text; braces keep names as they are written."""
        lines = [f"  {name} = {{{_escape(value)}}}," for name, value in self.fields if value]
        return "\n".join([f"@misc{{{self.key},", *lines, "}"])


def cite_all(entries: Iterable[TaskEntry], systems: Sequence[str] = ()) -> list[Citation]:
    """Return citations of r2med, of R2MED, of the tasks' data, and of works with published figures.

    Args:
        entries: The tasks that were used.
        systems: Only works that print figures of these systems; by default all works.
    """
    benchmark = find_suite("full").entries[0].citation
    datasets = [entry.citation for entry in entries if entry.citation]
    citations = [_cite_tool()]
    citations += [_cite_dataset(text) for text in dict.fromkeys([benchmark, *datasets])]
    citations += [_cite_work(work) for work in _find_works(systems)]
    return list({citation.key: citation for citation in citations}.values())


def _find_works(systems: Sequence[str]) -> list[Publication]:
    if not systems:
        return list(works().values())
    works_by_id = {
        work.id: work
        for suite in _PUBLISHED_SUITES
        for system, figures in printed_figures(suite, "ndcg@10").items()
        for figure in figures
        for work in figure.works
        if system in systems
    }
    return list(works_by_id.values())


def _cite_tool() -> Citation:
    return Citation(
        "r2med-tool",
        (
            ("author", "{The r2med developers}"),
            ("title", "{r2med}: an instrument for reasoning-driven medical retrieval"),
            ("note", f"Version {version('r2med')}"),
        ),
    )


def _cite_dataset(text: str) -> Citation:
    """Make an entry from `Authors. Title. arXiv:NUMBER, YEAR.`; other texts become a note.

    In a text of another form, an arXiv number is that of a related paper, so it is not used.
    """
    arxiv = _ARXIV.search(text)
    parts = [part.strip() for part in text.split(". ") if part.strip()]
    year = re.search(r"\b(20\d\d)\b\W*$", text)
    authored = len(parts) == 3 and arxiv is not None
    fields = [
        ("author", parts[0].replace(", ", " and ") if authored else ""),
        ("title", parts[1] if authored else parts[0].rstrip(".")),
        ("note", "" if authored else text),
        ("eprint", arxiv[1] if authored and arxiv else ""),
        ("archivePrefix", "arXiv" if authored else ""),
        ("year", year[1] if year else ""),
    ]
    return Citation(_make_key(parts[1] if authored else parts[0]), tuple(fields))


def _cite_work(work: Publication) -> Citation:
    arxiv = _ARXIV.search(f"{work.revision} {work.table}")
    fields = [
        ("title", f"{{{work.name}}}"),
        ("howpublished", work.revision),
        ("note", f"Figures from {work.table}" if work.table else ""),
        ("eprint", arxiv[1] if arxiv else ""),
        ("archivePrefix", "arXiv" if arxiv else ""),
        ("year", work.date[:4]),
    ]
    return Citation(f"work-{_make_key(work.id)}", tuple(fields))


def _make_key(text: str) -> str:
    return _KEY.sub("-", text.lower().partition(":")[0]).strip("-")[:40]


def _escape(text: str) -> str:
    return re.sub(r"([&%$#_])", r"\\\1", text)
