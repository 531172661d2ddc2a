"""Taking over files the user already has: a zip, a folder, or a folder of zips.

Tasks are recognised by name, else by content; their files are staged, checked against the
manifest, and put in place together. Archives are strangers: a hostile one is refused whole, and
nothing is ever written under a name that an archive chose.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from r2med.atomic import draft_folder
from r2med.errors import DataError, MissingError, UsageError
from r2med.home import shelf
from r2med.tasks.fetch.provenance import (
    data_folder,
    install,
    is_generations,
    missing_parts,
    origin_of,
    parts_of,
)
from r2med.tasks.load import compared, load_task
from r2med.tasks.reading.lines import MAX_FILE, MAX_RATIO, inflated, limit
from r2med.tasks.reading.source import R2MED_FILES
from r2med.tasks.registry import TaskEntry, find_suite, find_task
from r2med.tasks.verify import check_files

#: The whole benchmark with all published generations has far fewer files.
MAX_MEMBERS = 20_000
_CHUNK = 1 << 20
_DRIVE = re.compile(r"^[A-Za-z]:")
#: What the library raises for archives and members that it cannot read.
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class Imported:
    """A task that was taken over; `notices` say how its files differ from the published ones."""

    entry: TaskEntry
    folder: Path
    files: int
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Member:
    """A file in a bundle: its path there, its size, and how to read it."""

    path: PurePosixPath
    size: int
    open: Callable[[], IO[bytes]]


@dataclass(frozen=True)
class _Bundle:
    """Files that belong together; `name` is that of the archive or folder."""

    name: str
    source: Path
    members: tuple[_Member, ...]


@dataclass(frozen=True)
class _Find:
    """A task in a bundle, and its files by the path they shall have in the data folder."""

    entry: TaskEntry
    bundle: _Bundle
    files: Mapping[str, _Member]


def import_from(source: Path, wanted: Sequence[TaskEntry] = ()) -> list[Imported]:
    """Take the tasks found in a zip or folder, or only the wanted ones; all or none of a task.

    Files that are not byte for byte the published ones are taken when every known count and
    text statistic agrees, with a notice; otherwise they are refused.
    """
    with _open_bundles(source) as bundles:
        finds = [
            find
            for bundle in bundles
            for find in (*_r2med_tasks(bundle, wanted), *_nano_tasks(bundle))
        ]
        chosen = [find for find in finds if not wanted or find.entry in wanted]
        _require(source, finds, chosen, wanted)
        return [_take(find) for find in chosen]


def _require(
    source: Path, finds: Sequence[_Find], chosen: Sequence[_Find], wanted: Sequence[TaskEntry]
) -> None:
    names = [find.entry.name for find in chosen]
    if not finds:
        raise DataError(
            f"{source} holds no task: expected <task>/corpus.jsonl, query.jsonl and qrels.jsonl, "
            "or corpus/<split>-*.parquet and so on for NanoR2MED."
        )
    if lacking := [entry.name for entry in wanted if entry.name not in names]:
        here = ", ".join(find.entry.name for find in finds)
        raise DataError(f"{source} does not hold {', '.join(lacking)}; it holds {here}.")
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(f"{source} holds {', '.join(sorted(twice))} more than once; give one.")


def _take(find: _Find) -> Imported:
    folder = data_folder(find.entry)
    with draft_folder(shelf("data") / "import") as root:
        staged = root if find.entry.split else root / find.entry.name
        for path, member in find.files.items():
            target = staged / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("wb") as sink:
                sink.writelines(_chunks(member, find.bundle.source))
        try:
            notices = _differences(find, root, staged)
        except DataError as error:
            message = str(error).replace(f"{staged}/", f"{find.bundle.source}, ")
            raise DataError(message) from error
        source = f"file:{find.bundle.source.name}"
        install(staged, folder, {path: origin_of(staged / path, source) for path in find.files})
    return Imported(find.entry, folder, len(find.files), notices)


def _differences(find: _Find, root: Path, staged: Path) -> tuple[str, ...]:
    """How the staged files differ from the published ones; other content is refused."""
    files = check_files(find.entry, staged)
    if files and all(check.passed for check in files):
        return ()
    task = load_task(find.entry.name, root=root, use_copy=False)
    wrong = [check for check in compared(task, find.entry) if check.passed is False]
    if wrong:
        shown = "; ".join(f"{c.what} is {c.found}, expected {c.expected}" for c in wrong[:3])
        more = f", and {len(wrong) - 3} more differ" if len(wrong) > 3 else ""
        raise DataError(
            f"{find.bundle.source}: this is not {find.entry.name} as published: {shown}{more}.\n"
            "The data folder is unchanged. To use it as it is, give --data-root, or "
            "--task FOLDER for data of your own."
        )
    altered = ", ".join(check.what for check in files if check.passed is False)
    notice = f"{find.entry.name}: {altered} differ in bytes, not in counts or statistics"
    return (notice,) if altered else ()


# Which registered tasks lie in a bundle.


def _r2med_tasks(bundle: _Bundle, wanted: Sequence[TaskEntry]) -> Iterator[_Find]:
    """Folders with a corpus, queries and judgements; one wanted task names a nameless folder."""
    folders: dict[PurePosixPath, dict[str, _Member]] = {}
    for member in bundle.members:
        folders.setdefault(member.path.parent, {})[member.path.name] = member
    parts = {path: _roles(names) for path, names in folders.items()}
    whole = {path: roles for path, roles in parts.items() if len(roles) == len(R2MED_FILES)}
    for path in sorted(parts.keys() - whole.keys()):
        if parts[path] and (entry := _by_name(path.name or bundle.name)):
            lacking = [" or ".join(f) for role, f in R2MED_FILES.items() if role not in parts[path]]
            here = ", ".join(member.path.name for member in parts[path].values())
            raise DataError(
                f"{bundle.source}: {entry.name} is incomplete: it has {here}, "
                f"no {'; no '.join(lacking)}."
            )
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
        yield _Find(entry, bundle, {**named, **_generations(bundle, path)})


def _roles(names: Mapping[str, _Member]) -> dict[str, _Member]:
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


def _by_content(roles: Mapping[str, _Member], source: Path) -> TaskEntry | None:
    """The published query files differ in their number of lines, and some have a checksum."""
    queries, digest = _lines_and_digest(roles["queries"], source)
    for entry in find_suite("full").entries:
        known = entry.files.get("query.jsonl")
        if (known and known.sha256 == digest) or entry.counts["queries"] == queries:
            documents, _ = _lines_and_digest(roles["corpus"], source)
            if documents == entry.counts["documents"]:
                return entry
    return None


def _lines_and_digest(member: _Member, source: Path) -> tuple[int, str]:
    """Lines of the unpacked text; a last one without a line feed counts."""
    chunks = _chunks(member, source)
    if member.path.suffix == ".gz":
        chunks = inflated(chunks, f"{source}, member {str(member.path)!r}")
    lines, digest, last = 0, hashlib.sha256(), b"\n"
    for text in chunks:
        lines += text.count(b"\n")
        digest.update(text)
        last = text[-1:] or last
    return lines + (last != b"\n"), digest.hexdigest()


def _generations(bundle: _Bundle, folder: PurePosixPath) -> dict[str, _Member]:
    """Published generations, kept as <method>/<llm>/query_with_hydoc.jsonl below the task."""
    below = {
        member.path.relative_to(folder).as_posix(): member
        for member in bundle.members
        if member.path.is_relative_to(folder)
    }
    return {path: member for path, member in below.items() if is_generations(path)}


def _nano_tasks(bundle: _Bundle) -> Iterator[_Find]:
    members = {f"{each.path.parent.name}/{each.path.name}": each for each in bundle.members}
    for entry in find_suite("nano").entries:
        parts = parts_of(entry, members)
        if not any(parts.values()):
            continue
        if lacking := missing_parts(entry, parts):
            raise DataError(
                f"{bundle.source}: {entry.name} is incomplete, no {' and no '.join(lacking)}."
            )
        yield _Find(entry, bundle, {path: members[path] for own in parts.values() for path in own})


# What zips and folders hold.


@contextmanager
def _open_bundles(source: Path) -> Iterator[list[_Bundle]]:
    """The bundles of a zip, a folder, or a folder of zips (the benchmark is one zip per task)."""
    if not source.exists():
        raise MissingError(f"{source} does not exist; --from expects a zip file or a folder.")
    with ExitStack() as stack:
        if source.is_dir():
            zips = [_zip(path, stack) for path in sorted(source.glob("*.zip"))]
            yield [_folder(source), *zips]
        else:
            yield [_zip(source, stack)]


def _folder(source: Path) -> _Bundle:
    """A user's own folder is trusted, links included: hub caches consist of them."""
    members = [
        _Member(
            PurePosixPath(file.relative_to(source).as_posix()),
            file.stat().st_size,
            lambda file=file: file.open("rb"),  # type: ignore[misc]
        )
        for file in sorted(source.rglob("*"))
        if file.is_file() and file.suffix != ".zip"
    ]
    return _Bundle(source.resolve().name, source, tuple(members))


def _zip(path: Path, stack: ExitStack) -> _Bundle:
    try:
        archive = stack.enter_context(zipfile.ZipFile(path))
        infos = archive.infolist()
    except _ZIP_ERRORS as error:
        raise DataError(
            f"{path} cannot be read as a zip file: {error}.\n"
            "--from takes a zip or a folder; unpack other archives first."
        ) from error
    if trouble := _trouble(infos):
        raise DataError(
            f"{path} is refused: {trouble}.\n"
            "Nothing was written. If you trust the file, unpack it yourself and give the folder."
        )
    members = [
        _Member(
            PurePosixPath(info.filename),
            info.file_size,
            lambda info=info: archive.open(info),  # type: ignore[misc]
        )
        for info in infos
        if not info.is_dir()
    ]
    return _Bundle(path.stem, path, tuple(members))


def _trouble(infos: Sequence[zipfile.ZipInfo]) -> str | None:
    """Why an archive is not to be trusted, in words."""
    if len(infos) > MAX_MEMBERS:
        return f"it lists {len(infos):,} files, more than {MAX_MEMBERS:,}"
    total, most = sum(info.file_size for info in infos), limit(MAX_FILE)
    if total > most:
        return f"it unpacks to {total:,} bytes, more than {most:,}"
    names: set[str] = set()
    for info in infos:
        name = info.orig_filename.rstrip("/").casefold()
        trouble = "occurs twice" if name in names else _trouble_of(info)
        if trouble:
            return f"member {info.orig_filename!r} {trouble}"
        names.add(name)
    return None


def _trouble_of(info: zipfile.ZipInfo) -> str | None:
    name = info.orig_filename
    if "\0" in name or "\\" in name or _DRIVE.match(name):
        return "has a name that is not a plain relative path"
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        return "points outside the archive"
    if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    if info.flag_bits & 0x1:
        return "is encrypted"
    ratio = limit(MAX_RATIO)
    if info.file_size > _CHUNK and info.file_size > ratio * max(info.compress_size, 1):
        return f"expands more than {ratio} times, as no text does"
    return None


def _chunks(member: _Member, source: Path) -> Iterator[bytes]:
    """The bytes of a member; a damaged one, or one longer than declared, is an error."""
    received = 0
    try:
        with member.open() as stream:
            while chunk := stream.read(_CHUNK):
                received += len(chunk)
                if received > member.size:
                    raise zipfile.BadZipFile("it is longer than declared")
                yield chunk
    except _ZIP_ERRORS as error:
        raise DataError(
            f"{source}, member {str(member.path)!r} cannot be read: {error}. Get the file again."
        ) from error
