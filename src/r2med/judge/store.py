"""Judgement sets: named, append-only collections of judgements, stored beside results.

Sets are never mixed with the benchmark's own judgements on disk. A set belongs to the texts of one
task and to one rubric, judge and way of combining votes, so that all of its judgements mean the
same; other settings need another name.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from r2med.errors import DamagedError, MissingError, UsageError, nearest
from r2med.judge.log import RecordLog, Warn
from r2med.judge.rubric import Rubric, read_stored_rubric
from r2med.paths import slug
from r2med.storage import lock, seal, unseal, write_file
from r2med.tasks.task import Task, column_hash

Purpose = Literal["pool", "calibration"]
Pair = tuple[str, str]
"""A query id and the id of the judged item."""

FOLDER = "judgements"
_DESCRIPTION = "set.json"
_SUFFIX = ".judged"
_SCHEMA = 1
_LOCAL = "local"
#: Names that --judgements gives a special meaning.
RESERVED = ("benchmark", "all", "review")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=-]{0,79}")


@dataclass(frozen=True)
class Vote:
    """One readable or unreadable answer of one judge model."""

    model: str
    sample: int
    scores: Mapping[str, int]
    problem: str = ""


@dataclass(frozen=True)
class Judgement:
    """The judges' decision about one pair."""

    query_id: str
    item_id: str
    """Id of the judged document, or of other material such as a generated answer."""
    grade: int | None
    """None if no answer could be read; `problem` says why."""
    scores: Mapping[str, float]
    rationale: str
    votes: tuple[Vote, ...]
    prompt_hash: str
    purpose: Purpose = "pool"
    systems: tuple[str, ...] = ()
    """Systems that retrieved the pair within the pool's depth."""
    duplicate_of: str | None = None
    """Id of the item with the same text whose judgement was copied."""
    problem: str = ""
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def pair(self) -> Pair:
        """Query id and item id."""
        return self.query_id, self.item_id


@dataclass(frozen=True)
class SetDescription:
    """What all judgements of a set have in common."""

    name: str
    task: str
    suite: str | None
    texts: str
    """Hash of the task's documents and queries; see `texts_hash`."""
    rubric: Rubric
    judges: tuple[Mapping[str, Any], ...]
    """Identity of each judge model: model, server, parameters; never a secret."""
    samples: int = 1
    combine: str = "majority"
    depth: int = 10
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def models(self) -> list[str]:
        """The names of the judge models."""
        return [str(judge["model"]) for judge in self.judges]

    def identity(self) -> dict[str, Any]:
        """All settings that decide the meaning of the set's judgements."""
        return {
            "texts": self.texts,
            "rubric": self.rubric.hash,
            "judges": [dict(judge) for judge in self.judges],
            "samples": self.samples,
            "combine": self.combine,
        }


class JudgementSet:
    """A stored set: its description and its log of judgements."""

    def __init__(self, folder: Path, description: SetDescription, *, warn: Warn) -> None:
        self.folder = folder
        self.description = description
        self._log = RecordLog(folder, _SUFFIX, content="judgements", warn=warn)

    @property
    def name(self) -> str:
        """The name in --judgements and in `r2med judge list`."""
        return self.description.name

    @property
    def rubric(self) -> Rubric:
        """The rubric of all judgements."""
        return self.description.rubric

    def add(self, judgements: Sequence[Judgement]) -> None:
        """Append judgements; once this returns, a kill cannot lose them."""
        self._log.append([_to_record(judgement) for judgement in judgements])

    def judgements(self) -> dict[Pair, Judgement]:
        """Return the newest judgement of every pair.

        `systems` is the union over all judgements of the pair, since later runs pool other systems.
        """
        newest: dict[Pair, Judgement] = {}
        systems: dict[Pair, dict[str, None]] = {}
        for record in self._log.read():
            judgement = _read_judgement(record)
            newest[judgement.pair] = judgement
            systems.setdefault(judgement.pair, {}).update(dict.fromkeys(judgement.systems))
        return {
            pair: replace(judgement, systems=tuple(systems[pair]))
            for pair, judgement in newest.items()
        }

    def grades(self) -> dict[Pair, int]:
        """Return the grade of every pair that has one."""
        return {
            pair: judgement.grade
            for pair, judgement in self.judgements().items()
            if judgement.grade is not None
        }

    def close(self) -> None:
        """End this process's log file."""
        self._log.close()


class JudgementStore:
    """The judgement sets under a results folder."""

    def __init__(self, results: Path, *, warn: Warn) -> None:
        self.root = results / FOLDER
        self._warn = warn

    def open(self, description: SetDescription) -> JudgementSet:
        """Return the set that a description names, creating it if necessary.

        Raises:
            UsageError: The name is taken by a set with another rubric, judge or data.
        """
        check_name(description.name)
        folder = self._folder(description.suite, description.task, description.name)
        with lock(folder.with_name(f".{folder.name}.lock")):
            if not (folder / _DESCRIPTION).is_file():
                folder.mkdir(parents=True, exist_ok=True)
                record = {"schema": _SCHEMA, **asdict(description)}
                write_file(folder / _DESCRIPTION, seal(record))
                return JudgementSet(folder, description, warn=self._warn)
        stored = self._read(folder)
        differing = _difference(stored.description, description)
        if differing:
            raise UsageError(
                f"judgement set {description.name!r} on {description.task} has another "
                f"{differing}.\nChoose another name with --set, or delete the set: "
                f"r2med judge delete {description.name} --task {description.task}"
            )
        return stored

    def sets(self, task: Task | None = None) -> list[JudgementSet]:
        """Return the readable sets, of all tasks or of one; damaged ones are reported."""
        pattern = "*/*/*" if task is None else self._task_pattern(task)
        sets = []
        for path in sorted(self.root.glob(f"{pattern}/{_DESCRIPTION}")):
            try:
                sets.append(self._read(path.parent))
            except DamagedError as problem:
                self._warn(f"{problem} The judgement set is left out.")
        return sets

    def graded_sets(self, task: Task) -> list[JudgementSet]:
        """Return a task's sets with at least one grade; interrupted commands leave empty sets."""
        return [judged for judged in self.sets(task) if judged.grades()]

    def find(self, name: str, task: Task) -> JudgementSet:
        """Return the judgement set of a task by name.

        Raises:
            MissingError: The task has no set of this name.
        """
        stored = {judged.name: judged for judged in self.sets(task)}
        if name not in stored:
            hint = nearest(name, stored) if stored else "The task has none."
            raise MissingError(
                f"{task.name} has no judgement set {name!r} in {self.root.parent}. {hint}"
            )
        return stored[name]

    def delete(self, judged: JudgementSet) -> None:
        """Remove a set in one step."""
        judged.close()
        removed = judged.folder.with_name(f".{judged.folder.name}.deleted")
        judged.folder.rename(removed)
        shutil.rmtree(removed)

    def _folder(self, suite: str | None, task: str, name: str) -> Path:
        return self.root / slug(suite or _LOCAL) / slug(task) / name

    def _task_pattern(self, task: Task) -> str:
        return f"{slug(task.suite or _LOCAL)}/{slug(task.name)}/*"

    def _read(self, folder: Path) -> JudgementSet:
        path = folder / _DESCRIPTION
        values = unseal(path.read_bytes(), path)
        if values.pop("schema", None) != _SCHEMA:
            raise DamagedError(f"{path}: expected a judgement set of schema {_SCHEMA}.")
        try:
            description = _read_description(values)
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedError(f"{path}: not a readable judgement set ({problem!r}).") from None
        return JudgementSet(folder, description, warn=self._warn)


def texts_hash(task: Task) -> str:
    """Return a hash of a task's documents and queries, without its judgements."""
    return column_hash([task.corpus.ids, task.corpus.texts, task.queries.ids, task.queries.texts])


def check_name(name: str, content: str = "judgement set") -> None:
    """Raise UsageError for a name that cannot be a folder or has a meaning in --judgements."""
    if name in RESERVED or not _NAME.fullmatch(name):
        raise UsageError(
            f"{content} {name!r}: a name has letters, digits, '.', '_', '=' and '-', at most "
            f"80, and is not {', '.join(RESERVED)}."
        )


def _difference(stored: SetDescription, new: SetDescription) -> str:
    stored_identity, new_identity = stored.identity(), new.identity()
    names = {"texts": "corpus or queries", "judges": "judge", "combine": "way of combining votes"}
    keys = [key for key in new_identity if stored_identity[key] != new_identity[key]]
    differing = [names.get(key, key) for key in keys]
    return " and ".join(differing)


def _to_record(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as JSON values; `asdict` would take ten times as long."""
    return {**vars(judgement), "votes": [vars(vote) for vote in judgement.votes]}


def _read_judgement(record: Mapping[str, Any]) -> Judgement:
    values = {entry.name: record[entry.name] for entry in fields(Judgement)}
    values["votes"] = tuple(Vote(**vote) for vote in values["votes"])
    values["systems"] = tuple(values["systems"])
    return Judgement(**values)


def _read_description(values: Mapping[str, Any]) -> SetDescription:
    rubric = read_stored_rubric(values["rubric"])
    return SetDescription(**{**values, "rubric": rubric, "judges": tuple(values["judges"])})
