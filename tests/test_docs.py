"""The documentation runs: every console and python block of the guides, each guide in a folder."""

from __future__ import annotations

import doctest
import inspect
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import r2med
from tests.cli.running import run

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: Path) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in _BLOCK.finditer(guide.read_text(encoding="utf-8"))]


def commands(block: str) -> str:
    """The lines after a prompt, with their continuations, as a shell script."""
    lines = block.splitlines()
    kept: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            kept.append(line[2:])
        elif kept and kept[-1].endswith("\\"):
            kept.append(line)
    return "\n".join(kept)


#: Logs every connection and name lookup that leaves the machine, independently of offline mode.
WATCH_CONNECTIONS = """
import sys

def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if host and str(host) != "localhost" and not str(host).startswith(("127.", "::1")):
        with open({log!r}, "a") as log:
            print(host, sys.argv, file=log)

sys.addaudithook(watch)
"""


@pytest.mark.parametrize("guide", [g for g in GUIDES if blocks(g)], ids=lambda guide: guide.name)
def test_every_block_of_a_guide_runs_offline(guide: Path, tmp_path: Path) -> None:
    connections, watching = tmp_path / "connections.log", tmp_path / "watching"
    watching.mkdir()
    program = WATCH_CONNECTIONS.format(log=str(connections))
    (watching / "sitecustomize.py").write_text(program, encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(watching),
        "R2MED_OFFLINE": "1",
    }

    for language, block in blocks(guide):
        python = [sys.executable, "-c", block]
        shell = ["bash", "-euo", "pipefail", "-c", commands(block)]
        done = subprocess.run(
            python if language == "python" else shell,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    assert not connections.exists(), connections.read_text(encoding="utf-8")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_every_link_to_a_file_leads_somewhere(guide: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", guide.read_text(encoding="utf-8"))

    missing = [link for link in links if not (guide.parent / link).exists()]

    assert not missing


def test_the_references_say_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "reference.py"), "--check"],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, f"stale, run `make docs`: {done.stdout}{done.stderr}"


def test_the_readme_names_every_extra_that_users_install() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for_contributors = {"bench", "dev", "docs", "lint", "quick", "test"}
    extras = set(project["optional-dependencies"]) - for_contributors

    named = re.findall(r"r2med\[([a-z-]+)\]", (ROOT / "README.md").read_text(encoding="utf-8"))

    assert set(named) == extras


def test_the_readme_shows_what_the_command_prints() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    command, shown = re.findall(r"```console\n\$ r2med (.*)\n```\n\n```text\n([^`]*)```", text)[0]

    printed = [line.rstrip() for line in run(*command.split()).out.splitlines()]

    assert printed[: len(shown.splitlines())] == shown.splitlines()


def test_every_guide_is_listed_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")

    site_pages = {"index.md", "api.md"}
    guides = {guide.name for guide in GUIDES[1:]} - site_pages
    assert [name for name in sorted(guides) if f"docs/{name}" not in readme] == []


def test_the_glossary_is_sorted_and_defines_each_word_once() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:\[([^]]+)\]\([^)]*\)|([^|]+?)) \|", text, re.MULTILINE)
    words = [(linked or plain).lower() for linked, plain in rows][1:]

    assert words == sorted(words)
    assert len(set(words)) == len(words)


def test_every_message_of_the_troubleshooting_guide_is_in_the_code() -> None:
    guide = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `([^`]+)` \|", guide, re.MULTILINE)
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))

    assert len(messages) >= 20
    assert [message for message in messages if message not in code] == []


def test_the_readme_is_short_and_names_the_first_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    first_screen = "\n".join(lines[:30])

    assert len(lines) < 120
    assert "make demo" in first_screen and "make test" in first_screen and "![" in first_screen


def test_a_guide_is_read_in_five_minutes() -> None:
    """Guides have at most 1,600 words, tables and commands included; references may be longer."""
    references = {"commands.md", "python.md"}
    words = {guide.name: len(guide.read_text(encoding="utf-8").split()) for guide in GUIDES}

    assert {name for name, count in words.items() if count > 1600} <= references


@pytest.mark.parametrize("name", ["diagnose", "evaluate", "leaderboard", "load_task", "score"])
def test_the_example_of_a_public_function_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    function = getattr(r2med, name)
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestFinder(recurse=False).find(
        inspect.unwrap(function), name, globs={name: function}
    )

    outcome = [doctest.DocTestRunner().run(example) for example in examples]

    assert sum(result.attempted for result in outcome) > 0
    assert sum(result.failed for result in outcome) == 0
