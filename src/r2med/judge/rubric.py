"""Rubrics: the questions to a judge, the scores it gives, and the grade that follows from them.

A rubric is a TOML file. The package has `graded` and `reasoning`; any path to a file of the same
form is a rubric too. A judge writes scores; the grade is one of them or the lowest; a grade is
relevant, not relevant, or between the two and undecided.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.paths import user_path
from r2med.remote.completions import Message
from r2med.settings import read_toml

LOWEST = "lowest"
_FOLDER = Path(__file__).parent / "rubrics"
_KEYS = {
    "description",
    "version",
    "fields",
    "optional",
    "grade",
    "irrelevant_to",
    "relevant_from",
    "scores",
    "grades",
    "prompt",
}
_FIELD = re.compile(r"\{([a-z_]+)\}")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class ScoreScale:
    """One score that a judge gives: a whole number between two limits."""

    name: str
    least: int
    most: int


@dataclass(frozen=True)
class Rubric:
    """A validated rubric.

    `fields` are the texts that the prompt needs, by name (for relevance: query, passage, answer,
    reasoning). A rubric for other material, such as generated answers, names other fields.
    """

    name: str
    description: str
    version: int
    fields: tuple[str, ...]
    optional: tuple[str, ...]
    """Fields that may be empty."""
    scores: tuple[ScoreScale, ...]
    grade: str
    """The name of the score that is the grade, or `lowest` if the lowest score is the grade."""
    irrelevant_to: int
    """The highest grade that means not relevant."""
    relevant_from: int
    """The lowest grade that means relevant; grades between the two are undecided."""
    meanings: Mapping[int, str]
    """The meaning of each grade, shown to reviewers."""
    system: str
    user: str
    retry: str

    @property
    def scale(self) -> list[int]:
        """Every grade, lowest first."""
        return list(self.meanings)

    @property
    def hash(self) -> str:
        """Hash of everything that decides a judgement; the file's name is not included."""
        values = {key: value for key, value in asdict(self).items() if key != "name"}
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def graded_scores(self) -> tuple[ScoreScale, ...]:
        """The scores that the grade is computed from."""
        if self.grade == LOWEST:
            return self.scores
        return tuple(score for score in self.scores if score.name == self.grade)

    def grade_of(self, scores: Mapping[str, float]) -> int:
        """Return the grade that follows from scores."""
        return round(min(scores[score.name] for score in self.graded_scores))

    def is_relevant(self, grade: int) -> bool | None:
        """Whether a grade means relevant; None if it is undecided."""
        if grade >= self.relevant_from:
            return True
        return False if grade <= self.irrelevant_to else None

    def messages(self, texts: Mapping[str, str]) -> tuple[Message, ...]:
        """Return the conversation that asks for the scores of one item.

        Texts are inserted in a single pass, so that braces in a text stay unchanged.
        """
        for field in self.fields:
            if field not in self.optional and not texts.get(field, "").strip():
                raise DataError(
                    f"rubric {self.name}: the text {field!r} is missing or empty, and the prompt "
                    f"needs it."
                )
        user = _FIELD.sub(lambda match: _text(texts, match, self.fields), self.user)
        system = [Message("system", self.system.strip())] if self.system.strip() else []
        return (*system, Message("user", user.strip()))


def find_rubric(name: str) -> Rubric:
    """Return a rubric of the package by name, or the rubric in a TOML file by path.

    Raises:
        UsageError: No rubric has this name.
        MissingError: The file does not exist.
        DataError: The file is not a valid rubric.
    """
    if name.endswith(".toml") or "/" in name:
        path = user_path(name, "--rubric")
        if not path.is_file():
            raise MissingError(f"{path}: no such rubric file.")
        return read_rubric(path)
    if name not in rubric_names():
        raise UsageError(
            f"rubric {name!r} is not known. {nearest(name, rubric_names())}\n"
            "Name a custom rubric by a path ending in .toml; see docs/judge.md."
        )
    return read_rubric(_FOLDER / f"{name}.toml")


def rubric_names() -> list[str]:
    """Return the names of the package's rubrics."""
    return sorted(path.stem for path in _FOLDER.glob("*.toml"))


def read_rubric(path: Path) -> Rubric:
    """Read and validate a rubric file."""
    values = read_toml(path)
    try:
        return _validate(path.stem, values)
    except (KeyError, TypeError, ValueError) as problem:
        finding = (
            f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
        )
        raise DataError(
            f"{path}: {finding}. A rubric has fields, scores, grade, irrelevant_to, relevant_from, "
            "grades and prompt; see docs/judge.md."
        ) from None


def read_stored_rubric(values: Mapping[str, Any]) -> Rubric:
    """Return the rubric that is stored in a record."""
    restored = dict(values)
    restored["scores"] = tuple(ScoreScale(**score) for score in values["scores"])
    restored["meanings"] = {int(grade): text for grade, text in values["meanings"].items()}
    restored["fields"] = tuple(values["fields"])
    restored["optional"] = tuple(values["optional"])
    return Rubric(**restored)


def _validate(name: str, values: Mapping[str, Any]) -> Rubric:
    unknown = values.keys() - _KEYS
    if unknown:
        raise ValueError(f"the key {sorted(unknown)[0]!r} is not known")
    scores = tuple(ScoreScale(**score) for score in values["scores"])
    names = [score.name for score in scores]
    if not scores or len(set(names)) < len(names) or not all(map(_NAME.fullmatch, names)):
        raise ValueError("scores need different names of small letters")
    for score in scores:
        if not (_is_whole(score.least) and _is_whole(score.most) and score.least < score.most):
            raise ValueError(f"score {score.name!r} needs whole numbers with least below most")
    grade = values["grade"]
    if grade != LOWEST and grade not in names:
        raise ValueError(f"grade is {grade!r}, expected {LOWEST!r} or a score's name")
    prompt = values["prompt"]
    rubric = Rubric(
        name=name,
        description=str(values.get("description", "")),
        version=int(values.get("version", 1)),
        fields=_texts(values["fields"], "fields"),
        optional=_texts(values.get("optional", []), "optional"),
        scores=scores,
        grade=grade,
        irrelevant_to=int(values["irrelevant_to"]),
        relevant_from=int(values["relevant_from"]),
        meanings={int(key): str(text) for key, text in sorted(values["grades"].items())},
        system=str(prompt.get("system", "")),
        user=str(prompt["user"]),
        retry=str(prompt["retry"]),
    )
    _check_grades(rubric)
    _check_fields(rubric)
    return rubric


def _check_grades(rubric: Rubric) -> None:
    graded = rubric.graded_scores
    least, most = min(s.least for s in graded), min(s.most for s in graded)
    if sorted(rubric.scale) != list(range(least, most + 1)):
        raise ValueError(f"[grades] needs a meaning for every grade from {least} to {most}")
    if not least <= rubric.irrelevant_to < rubric.relevant_from <= most:
        raise ValueError(
            f"irrelevant_to ({rubric.irrelevant_to}) must be below relevant_from "
            f"({rubric.relevant_from}), both from {least} to {most}"
        )


def _check_fields(rubric: Rubric) -> None:
    used = set(_FIELD.findall(rubric.user))
    for field in rubric.fields:
        if field not in used:
            raise ValueError(f"the prompt does not contain {{{field}}}, which fields declares")
    for field in used - set(rubric.fields):
        raise ValueError(f"the prompt contains {{{field}}}, which fields does not declare")
    if any(field == "id" or field.endswith("_id") for field in rubric.fields):
        raise ValueError("ids are never shown to a judge; remove the id from fields")


def _text(texts: Mapping[str, str], match: re.Match[str], fields: Sequence[str]) -> str:
    name = match[1]
    return texts.get(name, "") if name in fields else match[0]


def _texts(values: Sequence[object], key: str) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key} must be a list of texts")
    return tuple(str(value) for value in values)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
