"""Which stored result or run file a text names, which of several is newest, and its ranking."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from r2med.errors import DamagedError, DataError, MissingError, R2MedError, UsageError, nearest
from r2med.results.record import RECORD_FILE, Record, Result
from r2med.results.store import LOCAL, Store, read_result
from r2med.retrieve.conditions import Tell, log
from r2med.retrieve.given import fitted, locate_run
from r2med.runs import Run
from r2med.runs.run import ordered
from r2med.systems.registry import parts_of, registered
from r2med.systems.spec import parse
from r2med.tasks.registry import registered_task
from r2med.tasks.task import SAMPLE, Task

_RUN_ENDINGS = (".trec", ".run", ".txt", ".res", ".gz", ".parquet")
_KEY = re.compile(r"[0-9a-f]{8,64}")
#: So many differences of two identities are named.
_LISTED = 3


def all_results(folder: Path, tell: Tell, *, suite: str | None = None) -> list[Result]:
    """Every readable result under a results folder, or of one suite in it, newest first.

    A damaged one is named and left out.
    """
    results = []
    for place in Store(folder).folders(suite):
        try:
            results.append(read_result(place))
        except DamagedError as problem:
            tell(f"{problem} It is left out; evaluate again to rebuild it.")
    return newest_first(results)


def stored_results(
    results: str | Path | Sequence[Result], tell: Tell, *, suite: str | None = None
) -> list[Result]:
    """The results that tables and comparisons read, newest first: of a folder, or these.

    Of a folder, samples of queries are left out.
    """
    if not isinstance(results, str | Path):
        return newest_first(results)
    stored = all_results(Path(results), tell, suite=suite)
    return [each for each in stored if each.suite != SAMPLE]


def newest_first(results: Iterable[Result]) -> list[Result]:
    """Results by the time at which they were stored."""
    return sorted(results, key=lambda result: result.record.created, reverse=True)


def own_tasks(results: str | Path | Sequence[Result]) -> dict[str, Path]:
    """The user's own tasks among results: where their data lies, by the names of tables.

    Of a folder only the records are read; damaged ones are passed over.
    """
    records: list[tuple[Path, Record]] = []
    if isinstance(results, str | Path):
        root = Path(results)
        for folder in Store(root).folders(LOCAL) if root.is_dir() else ():
            path = folder / RECORD_FILE
            with suppress(R2MedError, OSError, UnicodeDecodeError):
                records.append((root, Record.from_json(path.read_text(encoding="utf-8"), path)))
    else:
        records = [(result.root, result.record) for result in results]
    newest: dict[str, tuple[str, Path]] = {}
    for root, record in records:
        if record.task.suite is None and record.task.folder:
            place = (record.created, (root / record.task.folder).resolve())
            newest[record.task.name] = max(place, newest.get(record.task.name, place))
    return {name: path for name, (_, path) in newest.items()}


@dataclass(frozen=True, eq=False)
class Named:
    """What a text names: a run file, or results of one system, newest first."""

    name: str
    file: Path | None = None
    results: tuple[Result, ...] = ()


def find_named(
    text: str, results: Sequence[Result], folder: Path, *, task: str | None = None
) -> Named:
    """A run file, the folder of a stored result, or a system among `results` (newest first).

    With `task` only results on that task count. The error says what to run.
    """
    if is_file(text):
        return Named(text, file=Path(text))
    if is_file(Path(text) / RECORD_FILE):
        return Named(text, results=(read_result(Path(text)),))
    stored_text = any(text == result.system for result in results)  # such as run:mine.trec
    if not stored_text and (text.endswith(_RUN_ENDINGS) or text.startswith((".", os.sep, "~"))):
        raise MissingError(f"{text}: no such run file or result folder.")
    among = [result for result in results if task is None or result.task == task]
    own = of_system(text, among)
    if own:
        return Named(own[0].name, results=own)
    spec = str(registered(parse(text)).unlabelled)
    stored = {name for result in among for name in (result.system, result.name)}
    where = f" on {task}" if task else ""
    raise MissingError(
        f"system {spec!r} has no stored result{where} in {folder}."
        f"{f' {nearest(spec, stored)}' if stored else ''}\n"
        f"Run it first: r2med eval {quote(spec)} --task {quote(task) if task else 'TASK'}"
    )


def of_system(text: str, results: Sequence[Result]) -> tuple[Result, ...]:
    """The results that carry a label, those of the system that a text names, or one by its key."""
    label = text.strip().strip('"')
    if _KEY.fullmatch(label) and (own := [r for r in results if r.record.key.startswith(label)]):
        return tuple(own)
    labelled = tuple(r for r in results if label == (r.alias or r.record.system.label))
    meant = {result.system for result in labelled}
    if len(meant) > 1:
        raise UsageError(
            f"label {text!r} names {len(meant)} systems: {', '.join(sorted(meant))}. Name one."
        )
    if labelled:
        return labelled
    spec = str(registered(parse(text)).unlabelled)
    return tuple(result for result in results if result.system == spec)


def written_out(text: str, folder: Path) -> str:
    """The text of a system; a label or key stands for the stored system that has it."""
    with suppress(UsageError):
        if all(entry for _, entry in parts_of(text)):
            return text
    for stored in of_system(text, all_results(folder, log)):
        return str(replace(parse(stored.system), label=stored.record.system.label))
    return text


@dataclass(frozen=True, eq=False)
class Ranking:
    """A named run with its ties resolved; `result` is None for a run file."""

    name: str
    run: Run
    result: Result | None = None


def find_ranking(
    text: str, results: Sequence[Result], task: Task, folder: Path, tell: Tell = log
) -> Ranking:
    """The run of a run file, a stored result's folder, or a system in `results` (newest first)."""
    named = find_named(text, results, folder, task=task.name)
    if named.file is not None:
        return Ranking(text, ordered(file_run(named.file, task, tell)))
    same = [result for result in named.results if result.data == task.hash]
    if not same:
        record = named.results[0].record.task
        raise DataError(
            f"{named.name}: its stored result is of {record.name}, data {record.hash[:12]}; "
            f"{task.name} is now data {task.hash[:12]}.\n"
            f"Run it again: r2med eval '{named.results[0].system}' --task {task.name}"
        )
    tell_versions([same], tell)
    return Ranking(named.name, same[0].ranked, same[0])


def file_run(path: Path, task: Task, tell: Tell) -> Run:
    """The run in a file, fitted to a task; what does not fit is told."""
    run, findings = locate_run(str(path)).read()
    fit, findings = fitted(run, task, findings, str(path))
    for notice in findings.notices():
        tell(f"{path}: {notice}")
    return fit


def is_file(path: str | Path) -> bool:
    """Whether a text names a file; one that no file system could hold is none."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def tell_versions(groups: Iterable[Sequence[Result]], tell: Tell) -> None:
    """Say once of one system's results, by task and newest first, that others share the name.

    Different systems can: other prompts, other generations, another model behind it. The note says
    what sets them apart on the first of the tasks.
    """
    shared = [group for group in groups if len({each.record.key for each in group}) > 1]
    if not shared:
        return
    first, *others = shared[0]
    others = [each for each in others if each.record.key != first.record.key]
    more = f" and {len(shared) - 1} more" if len(shared) > 1 else ""
    tell(
        f"{first.system} on {first.task}{more}: {len(others) + 1} stored systems share this name, "
        f"and the newest is taken ({first.folder}). {difference(first, others[0])} "
        "Name the folder of a result to choose it."
    )


def newest_by_system(results: Sequence[Result], tell: Tell) -> dict[str, Result]:
    """The newest result of every system among results on one task, newest first."""
    by_system: dict[str, list[Result]] = {}
    for result in results:
        by_system.setdefault(result.system, []).append(result)
    for own in by_system.values():
        tell_versions([own], tell)
    return {system: own[0] for system, own in by_system.items()}


def distinct_results(results: Sequence[Result]) -> list[Result]:
    """The newest result of every system on every task, and older ones that ran something else.

    The results are newest first. An older one counts on the data of the newest; it is called by
    its label, or by what differs.
    """
    newest: dict[tuple[str, str], Result] = {}
    apart: dict[tuple[str, str, str], Result] = {}
    for result in results:
        first = newest.setdefault((result.system, result.task), result)
        if result.data != first.data:
            continue
        if result.record.key != first.record.key:
            theirs = (f"{name} {value}" for name, (_, value) in _differing(first, result).items())
            other = f"{result.name} ({', '.join(theirs) or 'another order of ties'})"
            result = replace(result, alias=other if result.name == first.name else result.name)
        apart.setdefault((result.system, result.task, result.alias), result)
    return list(apart.values())


def shared_names(results: Sequence[Result]) -> list[str]:
    """A note for every name that several stored systems share on the same data of a task."""
    groups: dict[tuple[str, str, str], dict[str, Result]] = {}
    for result in results:
        name = (result.task, result.data, result.system)
        groups.setdefault(name, {})[result.record.key] = result
    notes = []
    for (task, _, system), by_key in groups.items():
        first, *others = by_key.values()
        notes += [
            f"{system} on {task}, {first.key} and {other.key}: {difference(first, other)}"
            for other in others
        ]
    return notes


def other_data(result: Result) -> str | None:
    """Why a result may not be held against published figures; None when its data is the task's."""
    record = result.record.task
    entry = registered_task(result.task) if result.suite else None
    if entry is None:
        return f"{result.task} is a folder of your own, not verified data"
    differing = record.differences
    if not differing and entry.data not in (None, record.hash):
        differing = (f"other data than edition {entry.edition}",)
    if not differing:
        return None
    return f"The data differs from the manifest of {entry.name}: {'; '.join(differing)}"


def difference(first: Result, other: Result) -> str:
    """What sets apart two systems that share a name, as a sentence."""
    values = [f"{name} ({a} and {b})" for name, (a, b) in _differing(first, other).items()]
    return f"They differ in {', '.join(values) or 'the order of ties'}."


def _differing(first: Result, other: Result) -> dict[str, tuple[str, str]]:
    """The first settings in which two systems differ, with the value of each."""
    ours, theirs = (dict(leaves(each.record.system.identity)) for each in (first, other))

    def value(own: Mapping[str, object], name: str) -> str:
        text = json.dumps(own[name], ensure_ascii=False) if name in own else "none"
        return text if len(text) <= 24 else f"{text[:20]}..."

    names = [name for name in ours | theirs if ours.get(name) != theirs.get(name)]
    return {name: (value(ours, name), value(theirs, name)) for name in names[:_LISTED]}


def leaves(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """The single values of an identity, by their path."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from leaves(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from leaves(part, f"{name}[{place}]")
    else:
        yield name, value
