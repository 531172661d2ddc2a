"""Settings: what an entry says becomes typed values, and all of them an identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from r2med.errors import UsageError
from r2med.settings import parse_settings, setting, settings_identity


@dataclass(frozen=True)
class Example:
    word: Literal["cls", "mean"] = "cls"
    count: int = setting(default=4, least=1)
    share: float = setting(default=0.5, least=0, most=1)
    on: bool = False
    text: str = ""
    k: int | Literal["auto"] = setting(default="auto", least=0)
    weights: tuple[float, ...] = setting(default=(), least=0)
    parts: tuple[str, ...] = ()
    batch: int = setting(default=8, identity="none")
    path: str = setting(default="", identity="content")


@dataclass(frozen=True)
class Needed:
    name: str


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("word", "mean", "mean"),
        ("count", "7", 7),
        ("count", 7, 7),
        ("share", "1", 1.0),
        ("share", 1, 1.0),
        ("on", "TRUE", True),
        ("on", True, True),
        ("text", "12", "12"),
        ("k", "auto", "auto"),
        ("k", "60", 60),
        ("weights", "0.3:0.7", (0.3, 0.7)),
        ("weights", "0.3,0.7", (0.3, 0.7)),
        ("weights", "", ()),
        ("weights", [1, 2], (1.0, 2.0)),
        ("parts", "{query}: {generated}", ("{query}: {generated}",)),
        ("parts", ["a", "b"], ("a", "b")),
    ],
)
def test_values_of_files_and_texts_of_options_become_the_declared_type(
    key: str, text: object, value: object
) -> None:
    found = getattr(parse_settings(Example, {key: text}), key)

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("word", "meen", "x[word=meen]: expected one of cls, mean."),
        ("count", "0", "x[count=0]: expected a whole number from 1."),
        ("count", "2.5", "x[count=2.5]: expected a whole number from 1."),
        ("count", True, "x[count=true]: expected a whole number from 1."),
        ("count", "9" * 5000, f"x[count={'9' * 60}...]: expected a whole number from 1."),
        ("share", "1.5", "x[share=1.5]: expected a number from 0 to 1."),
        ("share", "nan", "x[share=nan]: expected a number from 0 to 1."),
        ("share", "inf", "x[share=inf]: expected a number from 0 to 1."),
        ("on", "yes", "x[on=yes]: expected true or false."),
        ("text", 3, "x[text=3]: expected a text."),
        ("k", "-1", "x[k=-1]: expected a whole number from 0 or auto."),
        ("weights", "1:-2", "x[weights=1:-2]: expected numbers from 0, as in 0.3:0.7."),
        ("weights", 3, "x[weights=3]: expected numbers from 0, as in 0.3:0.7."),
        ("cuont", "1", "x: the setting 'cuont' does not exist. Did you mean 'count'?"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_what_could_be(
    key: str, text: object, message: str
) -> None:
    with pytest.raises(UsageError) as problem:
        parse_settings(Example, {key: text}, name="x")

    assert str(problem.value).startswith(message)


def test_a_setting_without_a_default_must_be_there() -> None:
    with pytest.raises(UsageError, match="x: the setting 'name' is missing"):
        parse_settings(Needed, {}, name="x")


def test_every_setting_is_part_of_the_identity_unless_declared_otherwise() -> None:
    identity = settings_identity(Example())

    assert set(identity) == set(Example.__dataclass_fields__) - {"batch", "path"}
    assert identity["weights"] == []
