"""Read a ranking from a file of any form: TREC, Parquet, or the folder of a stored result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from r2med.atomic import SEAL, unseal
from r2med.errors import DamagedError, MissingError, UsageError
from r2med.home import user_path
from r2med.retrieve.given.findings import Findings
from r2med.runs import Run
from r2med.runs.files import Repeats, read_run
from r2med.settings import setting

_RUN_FILE = "run.parquet"
_RECORD_FILE = "result.json"


@dataclass(frozen=True)
class RunSettings:
    """What `run:PATH` may say."""

    path: str = setting(identity="content")
    repeats: Repeats = "refuse"

    def __post_init__(self) -> None:
        """Refuse no path."""
        if not self.path:
            raise UsageError("run: what to read is missing, as in run:PATH.")


@dataclass(frozen=True)
class RunFile:
    """A file that holds a ranking, and the tie order it is to be measured by."""

    path: Path
    ties: str = "trec"
    repeats: Repeats = "refuse"
    stored_as: str | None = None
    """The fingerprint in the record of a stored result; another one is damage."""

    def fingerprint(self) -> str:
        """sha256 of the content, so that a changed file is another system."""
        with self.path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
        if self.stored_as not in (None, digest):
            raise DamagedError(
                f"{self.path}: its checksum differs from the one in {_RECORD_FILE}. "
                "Evaluate the system again."
            )
        return digest

    def read(self) -> tuple[Run, Findings]:
        """The ranking as the file has it, and what is odd about its form."""
        self.fingerprint()
        run, oddities = read_run(self.path, repeats=self.repeats)
        return run, Findings(**asdict(oddities), repeats=self.repeats)


def locate_run(text: str, repeats: Repeats = "refuse") -> RunFile:
    """Find what `run:TEXT` means: a run file, or the folder of a stored result."""
    path = user_path(text)
    if path.is_dir():
        if not (path / _RUN_FILE).is_file():
            raise MissingError(
                f"run {text!r}: the folder holds no {_RUN_FILE}, expected the folder of a stored "
                "result (`r2med results --json` lists them) or a run file."
            )
        return _of_result(path, repeats)
    if not path.is_file():
        raise MissingError(
            f"run {text!r}: no such file, expected a TREC run file (plain or .gz), a Parquet "
            "file with query_id, document_id and score, or the folder of a stored result."
        )
    return RunFile(path, repeats=repeats)


def _of_result(folder: Path, repeats: Repeats) -> RunFile:
    """The run of a stored result, in the tie order that its record says."""
    record = folder / _RECORD_FILE
    if not record.is_file():
        return RunFile(folder / _RUN_FILE, repeats=repeats)
    try:
        text = record.read_text(encoding="utf-8")
        content = json.loads(text)
        if SEAL in content:
            content = unseal(text, record)
        ties, sums = content["system"]["ties"], content["files"]
        return RunFile(folder / _RUN_FILE, str(ties), repeats, str(sums[_RUN_FILE]))
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise DamagedError(f"{record}: not a readable result ({problem}).") from None
