"""Answer sets: the answers of one model on one task, stored separately from results.

A set has one model, prompt, k and data, so that all of its answers are comparable; systems and
samples are added to it. Its records are append-only and hold everything that scores need.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from r2med.answer.conditions import Condition
from r2med.answer.correctness import final_answer
from r2med.answer.prompt import AnswerPrompt
from r2med.errors import DamagedError, MissingError, UsageError, nearest
from r2med.judge.log import RecordLog, Warn
from r2med.judge.store import check_name
from r2med.paths import slug
from r2med.storage import lock, seal, unseal, write_file
from r2med.tasks.task import Task, column_hash

FOLDER = "answers"
_DESCRIPTION = "set.json"
_SUFFIX = ".answered"
_SCHEMA = 1
_LOCAL = "local"


@dataclass(frozen=True)
class AnswerKey:
    """The question and the condition that an answer belongs to."""

    query_id: str
    condition: Condition
    system: str
    sample: int


@dataclass(frozen=True)
class StoredAnswer:
    """One answer with the passages that were shown and the scores that need no judge."""

    query_id: str
    condition: Condition
    system: str
    sample: int
    prompt_hash: str
    question: str
    reference: str
    passage_ids: tuple[str, ...]
    relevant: tuple[int, ...]
    """Numbers of the shown passages that are judged relevant."""
    positives: int
    text: str
    finish: str
    """How the model ended: `stop`, `length`, `refusal`, `empty` or `too-long`."""
    option: float | None
    match: float
    f1: float
    is_short: bool
    """Whether the reference is short enough for match and F1 to decide."""
    abstained: bool
    cited: tuple[int, ...]
    retrieval: Mapping[str, float]
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float | None = None
    seconds: float = 0.0
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def key(self) -> AnswerKey:
        """Query, condition, system and sample."""
        return AnswerKey(self.query_id, self.condition, self.system, self.sample)

    @property
    def is_missing(self) -> bool:
        """Whether the model wrote nothing, refused, or could not read the prompt."""
        return not self.text.strip() or self.finish in ("refusal", "too-long")

    @property
    def item_id(self) -> str:
        """The id under which a judge grades the answer; equal final answers are graded once."""
        return answer_id(final_answer(self.text))


@dataclass(frozen=True)
class AnswerSetDescription:
    """What all answers of a set have in common."""

    name: str
    task: str
    suite: str | None
    data: str
    """Hash of the task's data and reference answers."""
    model: Mapping[str, Any]
    """Identity of the model: model, server, parameters; never a secret."""
    llm: str
    """The name by which the user chose the model."""
    prompt: AnswerPrompt
    k: int
    distractors: str
    created: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def identity(self) -> dict[str, Any]:
        """All settings that decide the meaning of the answers."""
        return {
            "data": self.data,
            "model": dict(self.model),
            "prompt": self.prompt.hash,
            "k": self.k,
        }


class AnswerSet:
    """A stored set: its description and its log of answers."""

    def __init__(self, folder: Path, description: AnswerSetDescription, *, warn: Warn) -> None:
        self.folder = folder
        self.description = description
        self.warn = warn
        self._log = RecordLog(folder, _SUFFIX, content="answers", warn=warn)

    @property
    def name(self) -> str:
        """The name of the set in commands."""
        return self.description.name

    def add(self, answers: Sequence[StoredAnswer]) -> None:
        """Append answers; once this returns, a kill cannot lose them."""
        self._log.append([vars(answer) for answer in answers])

    def answers(self) -> dict[AnswerKey, StoredAnswer]:
        """Return the newest answer of every key."""
        stored = [_read_answer(record) for record in self._log.read()]
        return {answer.key: answer for answer in stored}

    def close(self) -> None:
        """End this process's log file."""
        self._log.close()


class AnswerStore:
    """The answer sets under a results folder."""

    def __init__(self, results: Path, *, warn: Warn) -> None:
        self.root = results / FOLDER
        self._warn = warn

    def open(self, description: AnswerSetDescription) -> AnswerSet:
        """Return the set that a description names, creating it if necessary.

        Raises:
            UsageError: The name is taken by a set with another model, prompt, k or data.
        """
        check_name(description.name, "answer set")
        folder = self._folder(description.suite, description.task) / description.name
        with lock(folder.with_name(f".{folder.name}.lock")):
            if not (folder / _DESCRIPTION).is_file():
                folder.mkdir(parents=True, exist_ok=True)
                record = {"schema": _SCHEMA, **asdict(description)}
                write_file(folder / _DESCRIPTION, seal(record))
                return AnswerSet(folder, description, warn=self._warn)
        stored = self._read(folder)
        new_identity = description.identity()
        differing = [
            key
            for key, value in stored.description.identity().items()
            if new_identity[key] != value
        ]
        if differing:
            raise UsageError(
                f"answer set {description.name!r} on {description.task} has another "
                f"{' and '.join(differing)}.\nChoose another name with --set, or delete the set: "
                f"r2med answer delete {description.name} --task {description.task}"
            )
        return stored

    def read_answers(self, description: AnswerSetDescription) -> dict[AnswerKey, StoredAnswer]:
        """Return the stored answers of a description's set; empty if the set does not exist."""
        folder = self._folder(description.suite, description.task) / description.name
        if not (folder / _DESCRIPTION).is_file():
            return {}
        return self.open(description).answers()

    def sets(self, task: Task | None = None) -> list[AnswerSet]:
        """Return the readable sets, of all tasks or of one; damaged ones are reported."""
        folder = self.root / "*" / "*" if task is None else self._folder(task.suite, task.name)
        pattern = str(folder.relative_to(self.root))
        sets = []
        for path in sorted(self.root.glob(f"{pattern}/*/{_DESCRIPTION}")):
            try:
                sets.append(self._read(path.parent))
            except DamagedError as problem:
                self._warn(f"{problem} The answer set is left out.")
        return sets

    def find(self, name: str, task: Task) -> AnswerSet:
        """Return the answer set of a task by name.

        Raises:
            MissingError: The task has no set of this name.
        """
        stored = {answers.name: answers for answers in self.sets(task)}
        if name not in stored:
            hint = nearest(name, stored) if stored else "The task has none."
            raise MissingError(
                f"there is no answer set {name!r} on {task.name} in {self.root.parent}. {hint}"
            )
        return stored[name]

    def delete(self, answers: AnswerSet) -> None:
        """Remove a set with its grades and labels, in one step."""
        answers.close()
        removed = answers.folder.with_name(f".{answers.folder.name}.deleted")
        answers.folder.rename(removed)
        shutil.rmtree(removed)

    def _folder(self, suite: str | None, task: str) -> Path:
        return self.root / slug(suite or _LOCAL) / slug(task)

    def _read(self, folder: Path) -> AnswerSet:
        path = folder / _DESCRIPTION
        values = unseal(path.read_bytes(), path)
        if values.pop("schema", None) != _SCHEMA:
            raise DamagedError(f"{path}: expected an answer set of schema {_SCHEMA}.")
        try:
            prompt = AnswerPrompt(**values.pop("prompt"))
            description = AnswerSetDescription(**values, prompt=prompt)
        except (KeyError, TypeError, ValueError) as problem:
            raise DamagedError(f"{path}: not a readable answer set ({problem!r}).") from None
        return AnswerSet(folder, description, warn=self._warn)


def data_hash(task: Task) -> str:
    """Return a hash of a task's data and its reference answers."""
    answers = column_hash([task.queries.answers])
    return hashlib.sha256(f"{task.hash}/{answers}".encode()).hexdigest()


def answer_id(text: str) -> str:
    """Return the id of an answer's text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _read_answer(record: Mapping[str, Any]) -> StoredAnswer:
    values = {entry.name: record[entry.name] for entry in fields(StoredAnswer)}
    for name in ("passage_ids", "relevant", "cited"):
        values[name] = tuple(values[name])
    return StoredAnswer(**values)
