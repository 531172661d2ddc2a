"""Import registered tasks from files that the user has: a zip, a folder, or a folder of zips.

Tasks are recognised by the names of their folders. The files of a task are copied to a temporary
folder, checked against the manifest, and put in place together. Archives are not trusted: a
suspicious one is refused completely, and the others are unpacked only in a temporary folder.
"""

from __future__ import annotations

import lzma
import re
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.errors import DataError, MissingError, UsageError
from r2med.paths import cache_folder
from r2med.storage import draft_folder
from r2med.tasks.fetch.provenance import (
    NANO_CONFIGS,
    Fetched,
    data_folder,
    files_by_part,
    install,
    is_generations,
    missing_part,
    origin_of,
)
from r2med.tasks.load import check_files, load_task
from r2med.tasks.reading.lines import MAX_FILE, MAX_RATIO, limit
from r2med.tasks.reading.source import R2MED_FILES
from r2med.tasks.registry import TaskEntry, find_suite, known_task

#: The whole benchmark with all published generations has far fewer files.
MAX_MEMBERS = 20_000
#: Members of fewer bytes may expand as they like.
_HARMLESS = 1 << 20
#: Names that are not plain relative paths: absolute, with a drive, or leading out of the folder.
_UNSAFE = re.compile(r"[\0\\]|^/|^[A-Za-z]:|(^|/)\.\.(/|$)")
#: Errors of the library for archives and members that it cannot read.
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error),
    *(EOFError, OSError, OverflowError, RuntimeError, ValueError),
)


@dataclass(frozen=True)
class _Find:
    """A task found in an archive or folder; `files` are by their path in the data folder."""

    entry: TaskEntry
    origin: Path
    files: Mapping[str, Path]


def import_from(source: Path, requested: Sequence[TaskEntry] = ()) -> list[Fetched]:
    """Import the complete tasks in a zip or folder: all, or only the requested ones.

    Files that differ from the published ones are imported with a notice if every known count and
    text statistic of the task agrees; otherwise they are refused. Links in a user's own folder are
    followed, because hub caches consist of links.
    """
    if not source.exists():
        raise MissingError(f"{source} does not exist; --from expects a zip file or a folder.")
    folders = {source: source.resolve()} if source.is_dir() else {}
    zips = sorted(source.glob("*.zip")) if source.is_dir() else [source]
    with draft_folder(cache_folder("data") / "import") as draft:
        for number, path in enumerate(zips):
            folders[path] = draft / str(number) / path.stem
            _unpack(path, folders[path])
        finds: list[_Find] = []
        for origin, folder in folders.items():
            files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
            finds += _r2med_tasks(origin, folder, files, requested)
            finds += _nano_tasks(origin, files)
        chosen = [find for find in finds if not requested or find.entry in requested]
        names = [find.entry.name for find in chosen]
        if not finds:
            raise DataError(
                f"{source} holds no whole task: expected <task>/corpus.jsonl, query.jsonl and "
                "qrels.jsonl, or for NanoR2MED corpus/, queries/ and qrels/<split>-*.parquet."
            )
        if lacking := [entry.name for entry in requested if entry.name not in names]:
            found_names = ", ".join(find.entry.name for find in finds)
            raise DataError(f"{source} does not hold {', '.join(lacking)}; it holds {found_names}.")
        if twice := {name for name in names if names.count(name) > 1}:
            raise DataError(f"{source} holds {', '.join(sorted(twice))} more than once; give one.")
        return [_take(find) for find in chosen]


def _take(find: _Find) -> Fetched:
    name, folder = find.entry.name, data_folder(find.entry)
    with draft_folder(cache_folder("data") / "import") as root:
        staged = root if find.entry.split else root / name
        for path, file in find.files.items():
            (staged / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, staged / path)
        notices: tuple[str, ...] = ()
        checks = check_files(find.entry, staged)
        if not all(check.passed for check in checks):
            try:
                task = load_task(name, root=root, use_copy=False)
            except DataError as error:  # name where the file came from, not where it lies now
                raise DataError(str(error).replace(f"{staged}/", f"{find.origin}, ")) from error
            if task.differences:
                raise DataError(
                    f"{find.origin}: {task.notices[-1]}\nThe data folder is unchanged. To use it "
                    "unchanged, give --data-root, or --task FOLDER for your own data."
                )
            if altered := ", ".join(check.fact for check in checks if check.passed is False):
                notices = (f"{name}: {altered} differ in bytes, not in counts or statistics",)
        source = f"file:{find.origin.name}"
        install(staged, folder, {path: origin_of(staged / path, source) for path in find.files})
    outcome = f"{len(find.files)} files taken from {find.origin}"
    return Fetched(name, folder, len(find.files), outcome, notices=notices)


def _r2med_tasks(
    origin: Path, folder: Path, files: Sequence[Path], requested: Sequence[TaskEntry]
) -> Iterator[_Find]:
    """Yield the tasks in folders; a single folder without a task name is the requested task."""
    names: dict[Path, list[str]] = {}
    for file in files:
        names.setdefault(file.parent, []).append(file.name)
    parts = {
        folder_name: files_by_part(None, part_files) for folder_name, part_files in names.items()
    }
    complete = [
        folder_name for folder_name, part_files in parts.items() if all(part_files.values())
    ]
    entries = {
        folder_name: entry for folder_name in parts if (entry := _full_task(folder_name.name))
    }
    for folder_name, entry in entries.items():
        if any(parts[folder_name].values()):
            _require_whole(origin, entry, parts[folder_name])
    alone = requested[0] if len(requested) == 1 and len(complete) == 1 else None
    for folder_name in complete:
        entry = entries.get(folder_name, alone)
        if entry is None:
            raise UsageError(
                f"{origin}: no task is named {str(folder_name.relative_to(folder))!r}.\n"
                "Say which it is: `r2med fetch TASK --from ...`, or evaluate it as your own data "
                "with `--task FOLDER`."
            )
        own_files = {
            name for files_of_part in parts[folder_name].values() for name in files_of_part
        }
        below = {
            f.relative_to(folder_name).as_posix(): f for f in files if f.is_relative_to(folder_name)
        }
        chosen = {p: f for p, f in below.items() if p in own_files or is_generations(p)}
        yield _Find(entry, origin, chosen)


def _full_task(name: str) -> TaskEntry | None:
    entry = known_task(name)
    return entry if entry and entry.suite == "full" else None


def _require_whole(origin: Path, entry: TaskEntry, parts: Mapping[str, Sequence[str]]) -> None:
    if part := missing_part(entry.split, parts):
        expected = f"{part}/{entry.split}-*.parquet" if entry.split else R2MED_FILES[part][0]
        raise DataError(
            f"{origin}: {entry.name} is incomplete: there is no {expected}.\nNothing was taken."
        )


def _nano_tasks(origin: Path, files: Sequence[Path]) -> Iterator[_Find]:
    by_path = {f"{file.parent.name}/{file.name}": file for file in files}
    for entry in find_suite("nano").entries:
        parts = files_by_part(entry.split, by_path)
        if any(parts[config] for config in NANO_CONFIGS):
            _require_whole(origin, entry, parts)
            own_files = {
                path: by_path[path] for part_files in parts.values() for path in part_files
            }
            yield _Find(entry, origin, own_files)


def _unpack(path: Path, folder: Path) -> None:
    """Unpack a zip after checking its members; a suspicious archive is refused completely."""
    folder.mkdir(parents=True)
    reading, advice = (
        " as a zip file",
        "--from takes a zip or a folder; unpack other archives first.",
    )
    try:
        with zipfile.ZipFile(path) as archive:
            if trouble := _trouble(archive.infolist()):
                raise DataError(
                    f"{path} is refused: {trouble}.\nNothing was written. If you trust the file, "
                    "unpack it yourself and give the folder."
                )
            for info in archive.infolist():
                reading, advice = f": member {info.filename!r}", "Get the file again."
                archive.extract(info, folder)
    except _ZIP_ERRORS as error:
        raise DataError(f"{path} cannot be read{reading}: {error}.\n{advice}") from error


def _trouble(infos: Sequence[zipfile.ZipInfo]) -> str | None:
    """Return why an archive is suspicious; None if it is safe to unpack."""
    total, most, ratio = sum(info.file_size for info in infos), limit(MAX_FILE), limit(MAX_RATIO)
    if len(infos) > MAX_MEMBERS:
        return f"it lists {len(infos):,} files, more than {MAX_MEMBERS:,}"
    if total > most:
        return f"it unpacks to {total:,} bytes, more than {most:,}"
    names: set[str] = set()
    for info in infos:
        member, size = f"member {info.orig_filename!r}", info.file_size
        if _UNSAFE.search(info.orig_filename):
            return f"{member} has a name that is not a plain relative path"
        if (folded := info.filename.rstrip("/").casefold()) in names:
            return f"{member} occurs twice"
        names.add(folded)
        if info.flag_bits & 0x1:
            return f"{member} is encrypted"
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            return f"{member} is a link or a special file"
        if size > _HARMLESS and size > ratio * max(info.compress_size, 1):
            return f"{member} expands more than {ratio} times, as no text does"
    return None
