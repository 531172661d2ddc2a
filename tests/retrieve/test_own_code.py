"""Code of the user's own: found by name, its prints and failures handled where they happen."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import r2med
from r2med.errors import DataError, UsageError
from r2med.retrieve.own_code import load_target, running
from tests.retrieve.small_task import own_task

Write = Callable[[str, str], str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into the working folder; the path is as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def written(name: str, code: str) -> str:
        (tmp_path / f"{name}.py").write_text(code)
        return name

    return written


def test_a_module_with_a_syntax_error_is_told_with_file_and_line(write: Write) -> None:
    write("unfinished", "x = 1\ndef y(:\n")

    with pytest.raises(DataError, match=r"importing unfinished failed in .*unfinished\.py, line 2"):
        load_target("unfinished:X")


def test_a_module_that_needs_another_is_told_where_it_does(write: Write) -> None:
    write("needy", "import numpy\nimport nowhere_to_be_found\n")

    with pytest.raises(DataError, match=r"needy\.py, line 2: ModuleNotFoundError.*nowhere_to_be"):
        load_target("needy:X")


def test_a_class_that_fails_is_told_with_the_line_and_stays_the_cause(write: Write) -> None:
    write("failing", "class X:\n    def __init__(self):\n        raise TypeError('no weights')\n")

    with pytest.raises(
        DataError, match=r"X\(\) failed in .*, line 3: TypeError: no weights"
    ) as caught:
        load_target("failing:X")

    assert isinstance(caught.value.__cause__, TypeError)


def test_the_line_is_the_users_own_even_where_a_library_fails(write: Write) -> None:
    write("lawless", "import json\n\nclass X:\n    told = json.loads('{')\n")

    with pytest.raises(DataError, match=r"lawless\.py, line 4: JSONDecodeError"):
        load_target("lawless:X")


def test_a_module_that_exits_does_not_end_the_program(write: Write) -> None:
    write("leaving", "raise SystemExit('bye')\n")

    with pytest.raises(DataError, match=r"leaving\.py, line 1: SystemExit: bye"):
        load_target("leaving:X")


@pytest.mark.parametrize(
    ("target", "wanted"),
    [
        ("./my_encoder.py:Letters", "write my_encoder:Letters."),
        ("my_encoder.py:Letters", "write my_encoder:Letters."),
        ("models/my_encoder.py:Letters", "write models.my_encoder:Letters."),
        ("../other/my_encoder.py:Letters", "write my_encoder:Letters, from the folder ../other."),
    ],
)
def test_a_path_in_place_of_a_module_is_told_how_to_write_it(target: str, wanted: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_target(target)

    assert str(caught.value).endswith(wanted)


def test_a_model_may_import_from_the_working_folder_while_it_runs(write: Write) -> None:
    write("late_help", "def vectors(texts):\n    return [[len(text), 1.0] for text in texts]\n")
    write("late", "def encode(texts):\n    import late_help\n    return late_help.vectors(texts)\n")
    before = list(sys.path)

    assert r2med.evaluate("model:late:encode", own_task()).run.ranking("q1")
    load_target("late:encode")

    assert sys.path == [str(Path.cwd()), *before]


def test_what_a_model_prints_stays_off_the_results_stream(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    code = (
        "print('importing')\n"
        "class Loud:\n"
        "    def __init__(self):\n        print('making')\n"
        "    def encode(self, texts):\n"
        "        print('encoding')\n        return [[len(text), 1.0] for text in texts]\n"
    )
    write("loud", code)

    r2med.evaluate("model:loud:Loud", own_task())

    shown = capsys.readouterr()
    assert shown.out == ""
    assert all(word in shown.err for word in ("importing", "making", "encoding"))


def test_an_error_of_ours_passes_as_it_is() -> None:
    ours = UsageError("said already")

    with pytest.raises(UsageError) as caught, running("anything"):
        raise ours

    assert caught.value is ours
