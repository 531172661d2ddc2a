"""Pack stored results into one archive, and verify an archive by measuring its runs again.

An archive is a zip file with `manifest.json` (the sha256 of every other file), the folders of the
results, their stored generations and traces, and the prompts of their expanders and rerankers in
folders named by the hashes that records have. Corpora and judgements are not part of it, but stored
generations contain the queries, and a record has the first text that each model read. Verification
reads data only; it never runs code.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pyarrow as pa

from r2med.errors import DamagedError, DataError, MissingError, R2MedError
from r2med.execution.resources import Warn, log_warning
from r2med.expand.prompts import hash_prompt_file
from r2med.measure import measure
from r2med.paths import home_folder
from r2med.results.record import Result
from r2med.results.store import read_result
from r2med.storage import write_file
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.load import load_task

MANIFEST = "manifest.json"
_FORMAT = 1
#: An archive that would unpack to more bytes is refused.
_MOST_BYTES = 16 * 2**30
#: Scores of the same run and judgements differ by less, whatever the machine.
_TOLERANCE = 1e-9
#: All files of an archive have this date, so that equal content gives equal archives.
_DATE = (1980, 1, 1, 0, 0, 0)

_PROMPT_HASH = re.compile(r"[0-9a-f]{16}")

Outcome = Literal["confirmed", "different", "damaged", "not measured"]


def pack_results(
    results: Sequence[Result],
    path: Path,
    *,
    prompts: Path | None = None,
    warn: Warn = log_warning,
) -> dict[str, str]:
    """Write results with their runs, generations and prompts into an archive.

    Args:
        results: The results to pack.
        path: The archive to write.
        prompts: The user's folder of prompts, if results were made with it.
        warn: Callback for warnings about prompts that are not found.

    Returns:
        The sha256 of every file in the archive.
    """
    contents = dict(_collect_files(results))
    contents |= _collect_prompts(results, prompts, warn)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    manifest = {
        "format": _FORMAT,
        "r2med": version("r2med"),
        "results": [
            {"key": result.key, "system": result.system, "task": result.task} for result in results
        ],
        "files": hashes,
    }
    contents[MANIFEST] = json.dumps(manifest, indent=2).encode()
    with tempfile.SpooledTemporaryFile() as buffer:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in sorted(contents):
                archive.writestr(zipfile.ZipInfo(name, _DATE), contents[name])
        buffer.seek(0)
        write_file(path, buffer.read())
    return hashes


def _collect_files(results: Sequence[Result]) -> Iterator[tuple[str, bytes]]:
    """Names in the archive and contents; a file of two results is there once."""
    for result in results:
        for file in sorted(result.folder.iterdir()):
            if file.is_file():
                yield f"results/{result.folder.name}/{file.name}", file.read_bytes()
        for stage in result.record.stages:
            stored = [stage.generations.path if stage.generations else None, stage.trace]
            for relative in filter(None, stored):
                file = home_folder() / relative
                if file.is_file():
                    yield f"generations/{PurePosixPath(relative)}", file.read_bytes()


def _collect_prompts(
    results: Sequence[Result], user_folder: Path | None, warn: Warn
) -> dict[str, bytes]:
    """Return the prompts that the results were made with, found by the hashes in their records."""
    known_prompts = _read_prompts(user_folder)
    contents: dict[str, bytes] = {}
    missing: dict[str, str] = {}
    for result in results:
        for prompt_hash in _find_prompt_hashes(result.record.system.identity):
            if prompt_hash in known_prompts:
                name, content = known_prompts[prompt_hash]
                contents[f"prompts/{prompt_hash}/{name}"] = content
            else:
                missing.setdefault(prompt_hash, result.system)
    for prompt_hash, system in missing.items():
        warn(
            f"the archive lacks the prompt {prompt_hash} of {system}: it is not a prompt of this "
            "version. Name the folder with your prompts: --prompts FOLDER."
        )
    return contents


def _read_prompts(user_folder: Path | None) -> dict[str, tuple[str, bytes]]:
    """Return the names and contents of the prompts of r2med and of the user, by hash."""
    sources: list[Traversable] = [
        files("r2med.expand") / "prompts",
        files("r2med.rerank") / "prompts",
    ]
    if user_folder is not None:
        if not user_folder.is_dir():
            raise MissingError(f"--prompts {user_folder}: no such folder.")
        sources.append(user_folder)
    prompts = {}
    for source in sources:
        for name, file in _toml_files(source):
            content = file.read_bytes()
            if prompt_hash := hash_prompt_file(content):
                prompts[prompt_hash] = (name, content)
    return prompts


def _toml_files(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir() and not prefix:
            yield from _toml_files(entry, f"{entry.name}/")
        elif entry.name.endswith(".toml"):
            yield f"{prefix}{entry.name}", entry


def _find_prompt_hashes(identity: object) -> Iterator[str]:
    """Yield the hashes of the prompts of a system's stages; settings name prompts by words."""
    if isinstance(identity, Mapping):
        for key, value in identity.items():
            if key == "prompt" and isinstance(value, str) and _PROMPT_HASH.fullmatch(value):
                yield value
            else:
                yield from _find_prompt_hashes(value)
    elif isinstance(identity, list | tuple):
        for value in identity:
            yield from _find_prompt_hashes(value)


@dataclass(frozen=True)
class VerifiedResult:
    """The outcome of verifying one packed result."""

    system: str
    task: str
    key: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True, eq=False)
class Verification(Tabular):
    """The outcome of verifying an archive."""

    archive: str
    files: int
    results: tuple[VerifiedResult, ...]

    is_drawn = True

    @property
    def passed(self) -> bool:
        """Whether the archive is undamaged and no score differs."""
        return all(result.outcome in ("confirmed", "not measured") for result in self.results)

    def to_arrow(self) -> pa.Table:
        """One row per result."""
        return make_table(table_columns(VerifiedResult), map(vars, self.results))

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        return {
            "archive": self.archive,
            "files": self.files,
            "passed": self.passed,
            "results": [asdict(result) for result in self.results],
        }


def verify_archive(path: Path, root: Path | None = None) -> Verification:
    """Check the files of an archive and measure its runs again where the task's data is here.

    Args:
        path: An archive that `pack_results` wrote.
        root: Folder of the tasks' data; by default the fetched data is used.

    Raises:
        DataError: The file is not such an archive, or its names leave the folder.
        DamagedError: A file is missing or its checksum differs.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        manifest = _unpack(path, folder)
        results = tuple(
            _verify_result(result_folder, root)
            for result_folder in sorted((folder / "results").iterdir())
        )
    return Verification(str(path), len(manifest["files"]), results)


def _unpack(path: Path, folder: Path) -> dict[str, Any]:
    """Write the files of an archive to a folder after checking names, sizes and checksums."""
    try:
        archive = zipfile.ZipFile(path)
        manifest = json.loads(archive.read(MANIFEST))
        hashes = dict(manifest["files"])
    except FileNotFoundError:
        raise DataError(f"{path} does not exist, expected an archive.") from None
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError):
        raise DataError(
            f"{path} is not an archive of results: it has no readable {MANIFEST}.\n"
            "Make one with `r2med results pack`."
        ) from None
    with archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if sum(sizes.values()) > _MOST_BYTES:
            raise DataError(f"{path} unpacks to {sum(sizes.values()):,} bytes, which is too much.")
        for name, expected in hashes.items():
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts or "\\" in name or not parts:
                raise DataError(f"{path}: the name {name!r} leaves the archive's folder.")
            if name not in sizes:
                raise DamagedError(f"{path}: {name} is missing.")
            content = archive.read(name)
            if hashlib.sha256(content).hexdigest() != expected:
                raise DamagedError(f"{path}: the checksum of {name} differs from its manifest.")
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    return dict(manifest)


def _verify_result(folder: Path, root: Path | None) -> VerifiedResult:
    try:
        result = read_result(folder)
        run = result.run
    except R2MedError as problem:
        return VerifiedResult("", "", folder.name, "damaged", str(problem).splitlines()[0])

    def outcome(name: Outcome, detail: str) -> VerifiedResult:
        return VerifiedResult(result.system, result.task, result.key, name, detail)

    try:
        task = load_task(result.task, root=root)
    except R2MedError:
        return outcome("not measured", "the data of the task is not here")
    if task.hash != result.data:
        return outcome("not measured", "the data of the task here is another edition")
    ties = result.record.system.ties
    names = list(result.metrics)
    means = measure(run, task.judgements, names, ties=ties).means()
    different = [
        name for name, value in result.metrics.items() if abs(means[name] - value) > _TOLERANCE
    ]
    if different:
        first = different[0]
        return outcome(
            "different",
            f"{first} is {means[first]:.4f}, recorded {result.metrics[first]:.4f}"
            + (f" and {len(different) - 1} more metrics" if different[1:] else ""),
        )
    return outcome("confirmed", f"{len(names)} metrics measured again from the run")
