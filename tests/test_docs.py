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
from tests.connections import read_connections, watch_connections

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Seconds after which an example is ended: servers, and evaluations with a language model.
_EXAMPLE_SECONDS = 8
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


def examples(guide: Path) -> list[str]:
    """The commands of `sh` blocks, which need data, servers or files that a test lacks."""
    scripts = re.findall(r"^```sh\n(.*?)^```$", guide.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    lines = "".join(scripts).replace("\\\n", " ").splitlines()
    return [line for line in dict.fromkeys(lines) if line.startswith("r2med ")]


def offline_environment(folder: Path) -> dict[str, str]:
    """Offline mode, and a log of connections in `folder` that does not depend on it."""
    return {
        **os.environ,
        **watch_connections(folder),
        "BROWSER": "true",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "R2MED_OFFLINE": "1",
    }


@pytest.mark.parametrize("guide", [g for g in GUIDES if blocks(g)], ids=lambda guide: guide.name)
def test_every_block_of_a_guide_runs_offline(guide: Path, tmp_path: Path) -> None:
    environment = offline_environment(tmp_path)

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
    assert read_connections(tmp_path) == []


@pytest.mark.parametrize("guide", [g for g in GUIDES if examples(g)], ids=lambda guide: guide.name)
def test_no_example_that_needs_data_or_a_server_leaves_the_machine_offline(
    guide: Path, tmp_path: Path
) -> None:
    """Examples in `sh` blocks end with a result or a message, or are ended if they take long."""
    environment = offline_environment(tmp_path)

    for command in examples(guide):
        done = subprocess.run(
            ["timeout", str(_EXAMPLE_SECONDS), "bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        outside = [host for host in read_connections(tmp_path) if host not in command]

        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
        assert outside == [], command


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
