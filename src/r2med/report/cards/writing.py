"""Write pages into a folder: Markdown, HTML and JSON of every task, and an index for a group."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from r2med.atomic import atomic_file
from r2med.errors import UsageError
from r2med.nano.profiles import group_means
from r2med.report.cards.blocks import Page
from r2med.report.cards.facts import Facts, gather
from r2med.report.cards.group_page import group_page
from r2med.report.cards.html import html
from r2med.report.cards.markdown import markdown
from r2med.report.cards.prose import Prose, prose_of
from r2med.report.cards.task_page import task_page
from r2med.results.record import Result
from r2med.tasks.task import Task

SCHEMA = 1


def write_cards(
    tasks: Iterable[Task],
    out: Path,
    title: str,
    *,
    results: Sequence[Result],
    folder: Path,
    dense: str | None,
    force: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> list[str]:
    """Write the pages of tasks, and for several a group page; return the files' names."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())) and not force:
        raise UsageError(
            f"--out {out} is not empty, and nothing in it was touched.\n"
            "Choose another folder, or --force to write the pages into it (other files stay)."
        )
    group = [gather(task, results, dense=dense, folder=folder, tell=tell) for task in tasks]
    files: dict[str, str] = {}
    for facts in group:
        prose = prose_of(facts.entry)
        page = task_page(facts, prose)
        files |= _forms(page) | {f"{page.name}.json": _json(_task_json(facts, prose))}
    if len(group) > 1:
        index = group_page(title, group)
        files |= _forms(index) | {"index.json": _json(_group_json(title, group))}
    for name, text in files.items():
        with atomic_file(out / name) as draft:
            draft.write_text(text, encoding="utf-8", newline="\n")
    return sorted(files)


def _forms(page: Page) -> dict[str, str]:
    return {f"{page.name}.md": markdown(page), f"{page.name}.html": html(page)}


def _task_json(facts: Facts, prose: Prose) -> dict[str, object]:
    entry = facts.entry
    return {
        "schema": SCHEMA,
        "task": facts.name,
        "suite": facts.suite,
        "source": entry.source if entry else None,
        "family": entry.family if entry else None,
        "scenario": entry.scenario if entry else None,
        "hash": facts.hash,
        "prose": asdict(prose),
        "profile": asdict(facts.profile),
        "results": [asdict(scored) for scored in facts.scored],
        "failures_of": facts.failures_of,
        "failures": [asdict(failure) for failure in facts.failures],
        "examples": [asdict(pair) for pair in facts.pairs],
        "audit": asdict(facts.audit) if facts.audit else "not_audited",
        "citation": entry.citation if entry else None,
        "licence": entry.licence if entry else None,
    }


def _group_json(title: str, group: Sequence[Facts]) -> dict[str, object]:
    means = group_means([facts.profile for facts in group])
    return {
        "schema": SCHEMA,
        "title": title,
        "tasks": [facts.name for facts in group],
        "means": [asdict(mean) for mean in means],
    }


def _json(told: dict[str, object]) -> str:
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
