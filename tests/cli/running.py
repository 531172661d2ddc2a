"""Run the command line in this process, as a user would."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from r2med.cli import main


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


def run(*arguments: str) -> Outcome:
    """What the command printed and returned; nobody is at the terminal."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    handlers = {number: signal.getsignal(number) for number in numbers}
    with (
        patch.object(sys, "argv", ["r2med", *arguments]),
        patch.object(sys, "stdin", io.StringIO()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    return Outcome(code, out.getvalue(), err.getvalue())


def no_permissions() -> list[str] | None:
    """What to put before a command so that permissions bind it; None where root cannot do it."""
    if os.geteuid() != 0:
        return []
    tool = shutil.which("setpriv")
    caps = "-dac_override,-dac_read_search"
    return [tool, f"--bounding-set={caps}", f"--inh-caps={caps}"] if tool else None


def start(
    *arguments: str,
    bound: bool = False,
    largest_file: int | None = None,
    announced: bool = False,
    **settings: Any,
) -> subprocess.Popen[str]:
    """The command as a process of its own, in this test's folder and home.

    `bound` makes permissions hold for root too; `largest_file` makes larger files fail, as a
    full disk does; `announced` prints a line when the program has begun.
    """
    begun = "print('begun', flush=True);" if announced else ""
    program = f"from r2med.cli import main; {begun} main()"
    if largest_file is not None:
        limit = f"resource.RLIMIT_FSIZE, ({largest_file}, {largest_file})"
        program = f"import resource; resource.setrlimit({limit}); {program}"
    return subprocess.Popen(
        [*((no_permissions() or []) if bound else []), sys.executable, "-c", program, *arguments],
        stdin=subprocess.DEVNULL,
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings},
    )


def ended(process: subprocess.Popen[str]) -> Outcome:
    """How a process ended; a signal counts as a shell counts it."""
    out, err = process.communicate(timeout=120)
    code = process.returncode
    return Outcome(128 - code if code < 0 else code, out or "", err or "")
