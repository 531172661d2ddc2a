"""The shape of the command line: headings, renamed commands, shared options, completion."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from r2med.cli.app import RENAMED, app
from tests.cli.running import run


def commands(
    group: Any = None, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with its words, groups taken apart."""
    group = typer.main.get_command(app) if group is None else group
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def test_commands_stand_under_four_headings_and_the_odd_ones_are_hidden() -> None:
    done = run("--help")

    headings = [line for line in done.out.splitlines() if line.endswith(":") and line[0] != " "]
    assert headings == ["Options:", "Run:", "Understand:", "Data:", "Store:"]
    assert "analyze" not in done.out
    assert run().out == done.out


@pytest.mark.parametrize("name", RENAMED)
def test_a_removed_command_answers_with_its_new_name(name: str) -> None:
    if name in {words[0] for words, _ in commands() if len(words) == 1}:
        pytest.skip("still there")

    done = run(name, "anything")

    assert done.code == 2
    assert f"`r2med {name}` is now `{RENAMED[name]}`" in done.err
    new = tuple(word for word in RENAMED[name].split()[1:] if word.islower() and word[0] != "-")
    assert any(words == new[: len(words)] for words, _ in commands())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("r2med lead", "leaderboard"),
        ("r2med tasks ver", "verify"),
        ("r2med eval bm25 --ta", "--task"),
        ("r2med eval bm25 --task demo/bio", "demo/biology"),
        ("r2med eval bm25 --task demo/biology,demo/medq", "demo/biology,demo/medqa-diag"),
        ("r2med eval bm25-lu", "bm25-lucene"),
        ("r2med eval bm25 --by sc", "scenario"),
    ],
)
def test_the_shell_completes_commands_options_tasks_and_systems(words: str, offered: str) -> None:
    environment = {
        **os.environ,
        "_R2MED_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    program = "from r2med.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )

    assert offered in done.stdout.split()


def test_a_command_loads_no_other_command() -> None:
    code = "import sys; sys.argv = ['r2med', 'info']; from r2med.cli.main import run; run();"
    code += "print(*(name for name in sys.modules if name.startswith('r2med.cli.')))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = {name.removeprefix("r2med.cli.") for name in done.stdout.splitlines()[-1].split()}
    assert loaded == {"app", "group", "info", "main", "options"}
