"""The shape of the command line: headings, renamed commands, shared options, completion."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import r2med
from r2med.cli.app import app
from tests.cli.running import run

#: Calls that write to a stream as they are told, and the files that may use them.
PRINTING = {"print", "typer.echo", "typer.secho", "sys.stdout.write", "sys.stderr.write", "Console"}
DOORS = {"report/console.py", "cli/main.py"}


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


#: Options whose help names the files or conditions of the command.
BY_COMMAND = ("--out", "--from", "--fail-if", "--help")


def test_an_option_has_one_meaning_in_every_command() -> None:
    meanings: dict[str, set[str]] = {}
    for words, command in commands():
        if words == ("run",):  # the reference scripts' own flags
            continue
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("-") and option not in BY_COMMAND:
                    meanings.setdefault(option, set()).add(str(parameter.help))

    assert {option: texts for option, texts in meanings.items() if len(texts) > 1} == {}


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
    assert loaded == {"app", "info", "main", "options", "pyarrow_setup", "sweep"}


def test_everything_printed_goes_through_the_door() -> None:
    package = Path(r2med.__file__).parent
    past = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in PRINTING
    ]

    assert {place.partition(":")[0] for place in past} <= DOORS, past


@pytest.mark.parametrize("words", [words for words, _ in commands()], ids=" ".join)
def test_options_are_shown_under_headings(words: tuple[str, ...]) -> None:
    lines = run(*words, "--help").out.splitlines()

    headings = [line.rstrip(":") for line in lines if line.endswith(":") and line[0] != " "]
    order = ["Arguments", "What to run", "Models", "Limits", "Output"]
    assert headings == [heading for heading in order if heading in headings]
    assert "Output" in headings


def test_a_command_line_of_the_reference_scripts_is_sent_to_run() -> None:
    done = run("--mode", "eval_retrieval", "--task", "Biology")

    assert done.code == 2
    assert "r2med run --mode eval_retrieval --task Biology" in done.err
    assert "run " in run("--help").out
