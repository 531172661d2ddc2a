"""Which registered tasks lie in files a user hands over: told by name, else by content."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from r2med.errors import DataError, UsageError
from r2med.tasks.bundle import MAX_RATIO, Bundle, Member, read_chunks
from r2med.tasks.location import NANO_CANDIDATES, NANO_CONFIGS, R2MED_FILES, is_generations
from r2med.tasks.registry import TaskEntry, find_suite, find_task

_SHARD = re.compile(r"(?P<split>\w+?)(-\d{5}-of-\d{5})?\.parquet")


@dataclass(frozen=True)
class Find:
    """A task found in a bundle, and its files by the path they shall have in the data folder."""

    entry: TaskEntry
    bundle: Bundle
    files: Mapping[str, Member]


def recognise(bundle: Bundle, wanted: Sequence[TaskEntry]) -> list[Find]:
    """The tasks in a bundle; one wanted task names a folder that says nothing of itself."""
    return [*_r2med_tasks(bundle, wanted), *_nano_tasks(bundle)]


def _r2med_tasks(bundle: Bundle, wanted: Sequence[TaskEntry]) -> Iterator[Find]:
    folders: dict[PurePosixPath, dict[str, Member]] = {}
    for member in bundle.members:
        folders.setdefault(member.path.parent, {})[member.path.name] = member
    found = {path: _roles(names) for path, names in folders.items()}
    whole = {path: roles for path, roles in found.items() if len(roles) == len(R2MED_FILES)}
    for path in sorted(found.keys() - whole.keys()):
        if found[path] and (entry := _by_name(path.name or bundle.name)):
            raise _incomplete(entry, bundle, found[path])
    for path, roles in sorted(whole.items()):
        alone = wanted[0] if len(wanted) == 1 and len(whole) == 1 else None
        entry = _by_name(path.name or bundle.name) or alone or _by_content(roles, bundle.source)
        if entry is None:
            raise UsageError(
                f"{bundle.source}, folder {str(path)!r}: this is no task I know by name or "
                "content.\nSay which: `r2med fetch TASK --from ...`, or evaluate it as your own "
                "data with `--task FOLDER`."
            )
        named = {member.path.name: member for member in roles.values()}
        yield Find(entry, bundle, {**named, **_generations(bundle, path)})


def _roles(names: Mapping[str, Member]) -> dict[str, Member]:
    chosen = {
        role: next((names[form] for form in forms if form in names), None)
        for role, forms in R2MED_FILES.items()
    }
    return {role: member for role, member in chosen.items() if member is not None}


def _by_name(name: str) -> TaskEntry | None:
    try:
        entry = find_task(name)
    except UsageError:
        return None
    return entry if entry.suite == "full" else None


def _by_content(roles: Mapping[str, Member], source: Path) -> TaskEntry | None:
    """The published query files differ in their number of lines, and some have a checksum."""
    lines, digest = _lines_and_digest(roles["queries"], source)
    for entry in find_suite("full").entries:
        known = entry.files.get("query.jsonl")
        if (known and known.sha256 == digest) or entry.counts["queries"] == lines:
            corpus_lines, _ = _lines_and_digest(roles["corpus"], source)
            if corpus_lines == entry.counts["documents"]:
                return entry
    return None


def _lines_and_digest(member: Member, source: Path) -> tuple[int, str]:
    """Non-empty content decides: a last line without a line feed counts."""
    inflate = zlib.decompressobj(wbits=31) if member.path.suffix == ".gz" else None
    lines, digest, last = 0, hashlib.sha256(), b"\n"
    for chunk in read_chunks(member, source):
        text = inflate.decompress(chunk, MAX_RATIO * len(chunk)) if inflate else chunk
        lines += text.count(b"\n")
        digest.update(text)
        last = text[-1:] or last
    return lines + (last != b"\n"), digest.hexdigest()


def _generations(bundle: Bundle, folder: PurePosixPath) -> dict[str, Member]:
    """Published generations, kept as <method>/<llm>/query_with_hydoc.jsonl below the task."""
    found = {}
    for member in bundle.members:
        if not member.path.is_relative_to(folder):
            continue
        path = member.path.relative_to(folder).as_posix()
        if is_generations(path):
            found[path] = member
    return found


def _nano_tasks(bundle: Bundle) -> Iterator[Find]:
    splits = {entry.split: entry for entry in find_suite("nano").entries}
    found: dict[str, dict[str, Member]] = {}
    for member in bundle.members:
        config, shard = member.path.parent.name, _SHARD.fullmatch(member.path.name)
        if shard and shard["split"] in splits and config in (*NANO_CONFIGS, *NANO_CANDIDATES):
            found.setdefault(shard["split"], {})[f"{config}/{member.path.name}"] = member
    for split, files in sorted(found.items()):
        entry = splits[split]
        lacking = [c for c in NANO_CONFIGS if not any(p.startswith(f"{c}/") for p in files)]
        if lacking:
            raise DataError(
                f"{bundle.source}: {entry.name} is incomplete, no {' and no '.join(lacking)}."
            )
        yield Find(entry, bundle, files)


def _incomplete(entry: TaskEntry, bundle: Bundle, roles: Mapping[str, Member]) -> DataError:
    lacking = [" or ".join(f) for role, f in R2MED_FILES.items() if role not in roles]
    here = ", ".join(member.path.name for member in roles.values())
    return DataError(
        f"{bundle.source}: {entry.name} is incomplete: found {here}, no {'; no '.join(lacking)}."
    )
