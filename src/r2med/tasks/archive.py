"""Taking over files the user already has: staged, checked against the manifest, put in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.atomic import draft_folder
from r2med.errors import DataError
from r2med.home import shelf
from r2med.tasks.bundle import Member, open_bundles, read_chunks
from r2med.tasks.location import data_folder
from r2med.tasks.provenance import install, origin_of
from r2med.tasks.recognise import Find, recognise
from r2med.tasks.registry import TaskEntry
from r2med.tasks.verify import Check, check_content, check_files


@dataclass(frozen=True)
class Imported:
    """A task that was taken over; `notices` say how its files differ from the published ones."""

    entry: TaskEntry
    folder: Path
    files: int
    notices: tuple[str, ...] = ()


def import_from(source: Path, wanted: Sequence[TaskEntry] = ()) -> list[Imported]:
    """Take the tasks found in a zip or folder, or only the wanted ones; all or none of a task.

    Files that are not byte for byte the published ones are taken when every known count and
    text statistic agrees, with a notice; otherwise they are refused.
    """
    with open_bundles(source) as bundles:
        found = [find for bundle in bundles for find in recognise(bundle, wanted)]
        chosen = [f for f in found if not wanted or f.entry in wanted]
        _require(source, found, chosen, wanted)
        return [_take(find) for find in chosen]


def _require(
    source: Path, found: Sequence[Find], chosen: Sequence[Find], wanted: Sequence[TaskEntry]
) -> None:
    names = [find.entry.name for find in chosen]
    if not found:
        raise DataError(
            f"{source} holds no task: expected <task>/corpus.jsonl, query.jsonl and qrels.jsonl, "
            "or corpus/<split>-*.parquet and so on for NanoR2MED."
        )
    if lacking := [entry.name for entry in wanted if entry.name not in names]:
        here = ", ".join(find.entry.name for find in found)
        raise DataError(f"{source} does not hold {', '.join(lacking)}; it holds {here}.")
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(f"{source} holds {', '.join(sorted(twice))} more than once; give one.")


def _take(find: Find) -> Imported:
    folder = data_folder(find.entry)
    with draft_folder(shelf("data") / "import") as root:
        staged = root if find.entry.split else root / find.entry.name
        for path, member in find.files.items():
            _copy(member, find.bundle.source, staged / path)
        notices = _judge(find, root, staged)
        source = f"file:{find.bundle.source.name}"
        install(staged, folder, {p: origin_of(staged / p, source) for p in find.files})
    return Imported(find.entry, folder, len(find.files), notices)


def _copy(member: Member, source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as sink:
        sink.writelines(read_chunks(member, source))


def _judge(find: Find, root: Path, staged: Path) -> tuple[str, ...]:
    files = check_files(find.entry, staged)
    if files and all(check.passed for check in files):
        return ()
    content = check_content(find.entry, root)
    if wrong := [check for check in content if check.passed is False]:
        raise DataError(
            f"{find.bundle.source}: this is not {find.entry.name} as published: "
            f"{_told(wrong)}.\nThe data folder is unchanged. To use it as it is, give "
            "--data-root, or --task FOLDER for data of your own."
        )
    altered = [check.what for check in files if check.passed is False]
    return (
        (f"{find.entry.name}: {', '.join(altered)} differ in bytes, not in counts or statistics",)
        if altered
        else ()
    )


def _told(wrong: Sequence[Check]) -> str:
    told = [f"{check.what} is {check.found}, expected {check.expected}" for check in wrong[:3]]
    more = f", and {len(wrong) - 3} more differ" if len(wrong) > 3 else ""
    return "; ".join(told) + more
