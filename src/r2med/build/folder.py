"""The folder of a benchmark in the making: settings, the files of each stage, and their records.

    FOLDER/build.toml                settings, one table per stage
    FOLDER/items.jsonl               output of `build items`; people may edit it
    FOLDER/corpus/corpus.jsonl       output of `build corpus`: {"id", "text"}
    FOLDER/corpus/passages.jsonl     source, section, licence and offsets of every passage
    FOLDER/pool.jsonl                output of `build pool`
    FOLDER/records/STAGE.json        what a stage did
    FOLDER/results/                  judgements and reviews, as in any results folder
    FOLDER/frozen/                   output of `build freeze`

Files are replaced in one step, so a kill leaves the old file or the new one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.paths import user_path
from r2med.settings import parse_settings, read_toml
from r2med.storage import atomic_file, lock, seal, unseal, write_file

T = TypeVar("T")

Stage = Literal["items", "corpus", "pool", "judge", "review", "freeze", "check"]
STAGES: tuple[Stage, ...] = get_args(Stage)
_BENCHMARK = "benchmark"
_SETTINGS_FILE = "build.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


@dataclass(frozen=True)
class BenchmarkSettings:
    """The table `[benchmark]` of build.toml."""

    name: str
    title: str = ""
    licence: str = "not stated"
    """Licence of the queries and judgements; passages have their own."""
    language: str = "en"


@dataclass(frozen=True)
class BuildRecord:
    """The record of one run of a stage: settings, inputs, outputs and counts.

    The record has no date, so that the same inputs give the same bytes.
    """

    stage: Stage
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the stage, as JSON values."""
    models: tuple[str, ...] = ()
    """Language models and systems, by name."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Hash of every prompt, by its name."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every file that was read, by its path or name."""
    counts_in: Mapping[str, int] = field(default_factory=dict)
    """Counts of what was read, such as {"documents": 12}."""
    counts_out: Mapping[str, int] = field(default_factory=dict)
    """Counts of what was written, such as {"passages": 340}."""
    drops: Mapping[str, int] = field(default_factory=dict)
    """Counts of what was left out, by reason."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of every file that was written and that people may edit, by its name."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Other results of the stage, as JSON values."""


class BuildFolder:
    """Paths, settings and records of one benchmark."""

    def __init__(self, path: Path) -> None:
        """Open an existing folder; it must have a build.toml.

        Raises:
            MissingError: There is no build.toml.
            DataError: build.toml is not valid.
        """
        self.path = path
        self.settings_path = path / _SETTINGS_FILE
        if not self.settings_path.is_file():
            raise MissingError(
                f"{path} has no {_SETTINGS_FILE}, so it is not the folder of a benchmark.\n"
                f"Create one with: r2med build new {path}"
            )
        self._tables = read_toml(self.settings_path)
        for name, table in self._tables.items():
            if name not in (_BENCHMARK, *STAGES):
                raise DataError(
                    f"{self.settings_path}: there is no table [{name}]. "
                    f"{nearest(name, (_BENCHMARK, *STAGES))}"
                )
            if not isinstance(table, dict):
                raise DataError(
                    f"{self.settings_path}: {name!r} is a value, expected a table [{name}]."
                )

    @classmethod
    def create(cls, path: Path, template: str) -> BuildFolder:
        """Create a folder with a build.toml; an existing build.toml is an error."""
        target = path / _SETTINGS_FILE
        if target.exists():
            raise UsageError(f"{target} exists; nothing was changed.")
        write_file(target, template)
        return cls(path)

    @property
    def benchmark(self) -> BenchmarkSettings:
        """Name, title and licence of the benchmark."""
        settings = self.stage_settings(_BENCHMARK, BenchmarkSettings)
        if not _NAME.fullmatch(settings.name):
            raise DataError(
                f"{self.settings_path}: [benchmark] name is {settings.name!r}, expected letters, "
                "digits, '.', '_' and '-', at most 60."
            )
        return settings

    def table(self, stage: str) -> Mapping[str, Any]:
        """Return the table of a stage from build.toml, unconverted; empty if there is none."""
        table: dict[str, Any] = self._tables.get(stage, {})
        return table

    def stage_settings(
        self, stage: str, settings: type[T], overrides: Mapping[str, object] | None = None
    ) -> T:
        """Return the table of a stage as its settings class.

        Nested tables and lists of tables are left out; read them with `table`. `overrides` are
        options of the command line; None means not given.
        """
        options = {key: value for key, value in (overrides or {}).items() if value is not None}
        flat = {key: value for key, value in self.table(stage).items() if not _is_nested(value)}
        table = {**flat, **options}
        try:
            return parse_settings(settings, table, name=f"[{stage}]")
        except UsageError as problem:
            raise UsageError(f"{self.settings_path}: {problem}") from None

    def resolve(self, text: str, option: str = "") -> Path:
        """Return a path that is written in build.toml; relative paths start at the folder."""
        path = user_path(text, option)
        return path if path.is_absolute() else self.path / path

    @property
    def items_path(self) -> Path:
        """File of the items that become queries."""
        return self.path / "items.jsonl"

    @property
    def dropped_items_path(self) -> Path:
        """File of the items that were left out, each with the reason."""
        return self.path / "items-dropped.jsonl"

    @property
    def corpus_folder(self) -> Path:
        """Folder with all files of the corpus stage."""
        return self.path / "corpus"

    @property
    def corpus_path(self) -> Path:
        """File of the passages' texts, with rows {"id", "text"}."""
        return self.corpus_folder / "corpus.jsonl"

    @property
    def passages_path(self) -> Path:
        """File of the passages' sources: id, source, section, licence, start, end, distractor."""
        return self.corpus_folder / "passages.jsonl"

    @property
    def pool_path(self) -> Path:
        """File of the candidates, each with the views, systems and ranks that found it."""
        return self.path / "pool.jsonl"

    @property
    def judged_path(self) -> Path:
        """File of the pooled candidates with their grades."""
        return self.path / "judged.jsonl"

    @property
    def task_folder(self) -> Path:
        """Folder of the working task: items and corpus as pool, judge and review use them."""
        return self.path / "task"

    @property
    def results_path(self) -> Path:
        """Results folder with judgements and reviews."""
        return self.path / "results"

    @property
    def prompts_folder(self) -> Path:
        """Folder of the user's prompts; a file in it replaces the packaged prompt of that name."""
        return self.path / "prompts"

    @property
    def frozen_folder(self) -> Path:
        """Folder of the finished benchmark."""
        return self.path / "frozen"

    @property
    def check_path(self) -> Path:
        """File of the verdicts of `build check`."""
        return self.path / "check.json"

    def record_path(self, stage: Stage) -> Path:
        """Return the path of a stage's record."""
        return self.path / "records" / f"{stage}.json"

    def hold(self, stage: Stage) -> AbstractContextManager[None]:
        """Return a context that locks a stage; entering it waits for other processes to finish."""
        return lock(self.path / f".{stage}.lock")

    def write_record(self, record: BuildRecord) -> None:
        """Store the record of a stage; write it last, since it says that the stage finished."""
        write_file(self.record_path(record.stage), seal(asdict(record)))

    def record(self, stage: Stage) -> BuildRecord | None:
        """Return the record of a stage; None if the stage has not finished.

        Raises:
            DamagedError: The record was changed since it was written.
        """
        path = self.record_path(stage)
        if not path.is_file():
            return None
        values = unseal(path.read_bytes(), path)
        chosen = {entry.name: values[entry.name] for entry in fields(BuildRecord)}
        return BuildRecord(**{**chosen, "models": tuple(chosen["models"])})

    def records(self) -> list[BuildRecord]:
        """Return the records of all finished stages, in order."""
        found_records = [self.record(stage) for stage in STAGES]
        return [record for record in found_records if record is not None]

    def check_unedited(self, stage: Stage, *, force: bool) -> None:
        """Raise UsageError if a file was edited after the stage wrote it, unless `force` is set."""
        record = self.record(stage)
        for name, written_hash in (record.outputs if record else {}).items():
            path = self.path / name
            if path.is_file() and hash_file(path) != written_hash and not force:
                raise UsageError(
                    f"{path} was edited after `r2med build {stage}` wrote it; nothing was changed."
                    "\nUse --force to overwrite it, or keep the edited file and run the next stage."
                )

    def need(self, path: Path, stage: Stage) -> Path:
        """Return `path`, a file that the earlier stage `stage` has written.

        Raises:
            MissingError: The file does not exist; the message names the command.
        """
        if not path.is_file():
            raise MissingError(
                f"{path} does not exist. Run the earlier stage first: "
                f"r2med build {stage} {self.path}"
            )
        return path


def _is_nested(value: object) -> bool:
    is_tables = isinstance(value, list) and any(isinstance(item, dict) for item in value)
    return isinstance(value, dict) or is_tables


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> int:
    """Write JSON lines in one step, and return their number."""
    count = 0
    with atomic_file(path) as draft, draft.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line numbers and objects of a JSON lines file; empty lines are left out.

    Raises:
        DataError: A line is not a JSON object in UTF-8; the message names the line.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise DataError(f"{path}, line {number}: not JSON in UTF-8 ({problem}).") from None
            if not isinstance(row, dict):
                raise DataError(
                    f"{path}, line {number}: a JSON {type(row).__name__}, expected an object."
                )
            yield number, row


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file, without reading all of it into memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
