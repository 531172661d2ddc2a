"""How commands end: one message and the right exit code, whatever happened on the way."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.cli.running import Outcome, ended, no_permissions, run, start
from tests.tasks.writing import Written, write_r2med

ESCAPE = "\x1b]0;gotcha\x07\x1b[31mred\x9b2J\u202e"


def wait_for(path: Path, pattern: str) -> None:
    """Until a file of this pattern is there; the process that writes it is running."""
    while not list(path.glob(pattern)):
        time.sleep(0.01)


def interrupted(number: signal.Signals) -> Outcome:
    """A run that is stopped once its first result is stored."""
    systems = [f"bm25[k1={place / 10}]" for place in range(1, 40)]
    process = start("eval", *systems, "--task", "demo")
    wait_for(Path("r2med-results"), "*/*/*/result.json")
    process.send_signal(number)
    return ended(process)


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_ends_with_one_line_that_says_what_is_kept(
    number: signal.Signals, code: int, word: str
) -> None:
    done = interrupted(number)

    assert done.code == code
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert done.err.startswith(f"{word}: ")
    kept = re.search(r"(\d+) of 312 results are finished and stored in r2med-results", done.err)
    stored = len(list(Path("r2med-results").glob("*/*/*/result.json")))
    assert kept is not None
    assert stored - 1 <= int(kept[1]) <= stored
    assert "Run the same command again to continue" in done.err


def test_a_signal_during_an_import_is_not_swallowed_by_what_imports() -> None:
    Path("hasty.py").write_text(
        "import contextlib, os, signal\n"
        "with contextlib.suppress(BaseException):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    imported = True\n"
        "class Model:\n"
        "    def encode(self, texts, **options):\n"
        "        assert imported\n"
        "        while True:\n"
        "            signal.pause()\n"
    )

    done = ended(start("eval", "model:hasty:Model", "--task", "demo/biology"))

    assert (done.code, done.out) == (143, "")
    assert "terminated: " in done.err


def test_an_import_that_fails_is_the_only_error() -> None:
    with (
        patch.dict(sys.modules, {"r2med.cli.app": None}),
        pytest.raises(ModuleNotFoundError) as failed,
    ):
        run("--version")

    assert failed.value.__context__ is None


def test_a_signal_during_an_import_is_heard_by_the_server_that_is_imported() -> None:
    Path("serving.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "signal.signal(signal.SIGTERM, lambda number, frame: os._exit(7))\n"
        "class Model:\n"
        "    def encode(self, texts, **options):\n"
        "        time.sleep(60)\n"
    )

    assert ended(start("eval", "model:serving:Model", "--task", "demo/biology")).code == 7


@pytest.mark.parametrize("arguments", [["--help"], ["leaderboard"], ["leaderboard", "--json"]])
def test_a_reader_that_leaves_is_no_failure(arguments: list[str]) -> None:
    process = start(*arguments)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None

    done = ended(process)

    assert (done.code, done.err) == (0, "")


def test_a_command_without_streams_still_runs() -> None:
    command = f"'{sys.executable}' -m r2med eval bm25 --task demo/biology >&- 2>&-"

    assert subprocess.run(["bash", "-c", command]).returncode == 0
    assert list(Path("r2med-results").glob("*/*/*/result.json"))


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="there is no /dev/full")
def test_output_that_cannot_be_written_is_one_message() -> None:
    with Path("/dev/full").open("w") as full:
        done = ended(start("leaderboard", stdout=full))

    assert done.code == 1
    assert done.err == "error: writing to standard output: no space left on device.\n"
    assert "Traceback" not in done.err


def stored() -> None:
    assert run("eval", "bm25", "--task", "demo/biology").code == 0


REFUSED = [
    ("eval bm25 --task demo/biology --results a-file", "a-file", "not a folder"),
    ("eval bm25 --task demo/biology --results a-file/below", "a-file", "not a folder"),
    ("results --results a-file", "a-file", "not a folder"),
    ("results export --out a-file", "a-file", "not a folder"),
    (
        "diagnose bm25 --task demo/biology --out a-folder.parquet",
        "a-folder.parquet",
        "is a directory",
    ),
    (f"eval bm25 --task demo/biology --results {'x' * 300}", "xxx", "file name too long"),
]


@pytest.mark.parametrize(("command", "path", "message"), REFUSED)
def test_what_the_operating_system_refuses_is_named(command: str, path: str, message: str) -> None:
    stored()
    Path("a-file").touch()
    Path("a-folder.parquet").mkdir()

    done = run(*command.split())

    assert "Traceback" not in done.err
    assert message in done.err + done.out
    assert path in done.err + done.out
    assert done.code == 1


def test_a_full_disk_stops_with_the_folder_and_keeps_what_was_finished() -> None:
    stored()
    before = json.loads(run("results", "--json").out)

    done = ended(start(*["eval", "bm25", "--task", "demo/biology", "--force"], largest_file=6000))

    assert done.code == 1
    assert "r2med-results" in done.err
    assert "file too large" in done.err
    assert "Traceback" not in done.err
    assert json.loads(run("results", "--json").out) == before


@pytest.mark.parametrize(
    ("variable", "arguments"),
    [
        ("~nobody-of-this-name/home", ["--task", "demo/biology"]),
        ("", ["--task", "~nobody-of-this-name/data"]),
        ("", ["--task", "demo/biology", "--data-root", "~nobody-of-this-name"]),
    ],
)
def test_the_home_of_an_unknown_user_is_wrong_usage(
    variable: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("R2MED_HOME", variable)

    done = run("eval", "bm25", *arguments)

    assert done.code == 2
    assert "the home folder of '~nobody-of-this-name' is not known" in done.err


def test_names_and_texts_of_strangers_cannot_steer_the_terminal(tmp_path: Path) -> None:
    documents = tuple((f"{ESCAPE}d{place}", f"{ESCAPE} heart {place}") for place in range(12))
    query = f"{ESCAPE}q"
    written = Written(documents, ((query, f"{ESCAPE} heart"),), ((query, f"{ESCAPE}d3", 1),))
    folder = write_r2med(tmp_path / f"tas{ESCAPE}k", written)
    commands = [
        ["eval", "bm25", "bm25-lucene", "--task", str(folder)],
        ["eval", "bm25", "--task", str(folder), "--json"],
        ["results"],
        ["results", "--json"],
        ["results", "show", "bm25"],
        ["compare", "bm25", "bm25-lucene"],
        ["diagnose", "bm25", "--task", str(folder)],
        ["diagnose", "bm25", "--task", str(folder), "--query", f"{ESCAPE}q"],
        ["diagnose", "bm25", "--task", str(folder), "--query", f"{ESCAPE}none"],
        ["eval", f"bm2{ESCAPE}"],
        ["eval", "bm25", "--task", f"{ESCAPE}"],
        [f"{ESCAPE}"],
        ["eval", "bm25", f"--{ESCAPE}"],
        ["tasks", "profile", str(folder), "--dense", "none"],
        ["analyze", ESCAPE],
        ["results", "export", "--out", f"out{ESCAPE}"],
    ]

    for command in commands:
        done = run(*command)

        printed = done.out + done.err
        assert not [c for c in printed if c in "\x1b\x07\x9b\u202e"], (command, printed)
        assert "Traceback" not in printed


@pytest.mark.skipif(no_permissions() is None, reason="root may write everywhere here")
def test_folders_without_permission_are_named() -> None:
    Path("locked").mkdir(mode=0o500)

    done = ended(
        start(*["eval", "bm25", "--task", "demo/biology", "--results", "locked/here"], bound=True)
    )

    assert done.code == 1
    assert "locked/here" in done.err
    assert "permission denied" in done.err
