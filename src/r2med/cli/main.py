"""Runs the command line and turns every way in which it can end into a message and an exit code.

0 done, 1 failed, 2 wrong usage, 3 limit reached, 4 check failed, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from r2med.errors import LimitError, R2MedError, UsageError

_RESUME = (
    "Results, cached model answers, embeddings and indexes are kept; "
    "run the same command again to continue."
)
#: New objects between two searches for unused reference cycles. Imports create many objects and
#: hardly any cycles; with Python's default, 700, a short command searches for a tenth of its time.
_OBJECTS_BETWEEN_COLLECTIONS = 20_000
#: Errors of a full disk, a used-up quota or a file at its size limit.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Interrupted(BaseException):
    """Ctrl-C or a request to terminate; the argument is the message for the user."""


class ClosedPipe(BaseException):
    """The program that reads the output has closed it, as `head` does."""


def main() -> None:
    """Run the command line and exit."""
    _use_utf8()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run())


def _use_utf8() -> None:
    """Restart Python in UTF-8 mode if the locale is not UTF-8, so that all paths and texts work.

    The output stays in the encoding of the locale; characters that it lacks are printed as escapes.
    """
    if sys.getfilesystemencoding().lower() in ("utf-8", "utf8") or sys.flags.utf8_mode:
        return
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    os.environ.setdefault("PYTHONIOENCODING", f"{encoding}:backslashreplace")
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _check_utf8() -> None:
    """Raise UsageError for arguments or folders that are not UTF-8; results cannot store them."""
    texts = {
        "R2MED_HOME": os.environ.get("R2MED_HOME", ""),
        "the working directory": str(Path.cwd()),
        **{f"argument {number}": text for number, text in enumerate(sys.argv[1:], start=1)},
    }
    for name, text in texts.items():
        if any("\ud800" <= character <= "\udfff" for character in text):
            readable = os.fsencode(text).decode("ascii", "backslashreplace")
            raise UsageError(
                f"{name} ({readable}) is not valid UTF-8.\nRename the file or folder and try again."
            )


def run() -> int:
    """Run the command line and return the exit code; later signals end the process at once."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            received.append(number)
        if len(received) == 1 and _importing(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # check again after the import
            return
        if received and signal.getsignal(received[0]) is not stop:
            signal.raise_signal(received[0])  # a server has installed its handler meanwhile
            return
        raise KeyboardInterrupt

    try:
        with convert_interrupts():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, stop)
            _check_utf8()
            from r2med.cli.app import app
            from r2med.cli.pyarrow_setup import PyarrowSetup

            PyarrowSetup().install()
            code = app(prog_name="r2med", standalone_mode=False)
            sys.stdout.flush()
            _end_at_once_on_signals()
            return code if isinstance(code, int) else 0
    except Interrupted as interrupted:
        first = received[0] if received else signal.SIGINT
        word, code = ("terminated", 143) if first == signal.SIGTERM else ("interrupted", 130)
        return _fail(f"{word}: {interrupted}", code)
    except ClosedPipe:
        _end_at_once_on_signals()
        _silence()
        return 0
    except R2MedError as error:
        code = 2 if isinstance(error, UsageError) else 3 if isinstance(error, LimitError) else 1
        return _fail(f"{'stopped' if code == 3 else 'error'}: {error}", code)
    except OSError as error:
        return _fail(f"error: {refusal(error)}", 1)
    except Exception as error:
        application = sys.modules.get("r2med.cli.app")  # missing if its import failed
        message = application.usage_message(error) if application else None
        if message is None:
            raise
        return _fail(f"error: {message}", 2)


@contextmanager
def convert_interrupts() -> Iterator[None]:
    """Convert KeyboardInterrupt and BrokenPipeError into exceptions that libraries do not catch."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(*(getattr(stop, "__notes__", None) or [_RESUME])) from stop
    except BrokenPipeError as error:
        if error.filename is None:
            raise ClosedPipe from error
        raise


def refusal(error: OSError) -> str:
    """Return a message for an error of the operating system, with its path and a remedy."""
    reason, full = (error.strerror or str(error)).lower(), error.errno in _FULL
    if error.errno == errno.ENOTDIR:
        reason = "not a folder"
    if not isinstance(error.filename, str | bytes | os.PathLike):
        # Files that are written are named, so these are of the output.
        output = full or error.errno == errno.EIO
        return f"{'writing to standard output' if output else 'a file or connection'}: {reason}."
    act = "Free some space there" if full else "Check the path and its permissions"
    if error.errno != errno.ENOENT:
        act += ", or name another place (--results, --out, R2MED_HOME)"
    return f"{os.fsdecode(error.filename)}: {reason}.\n{act}."


def _end_at_once_on_signals() -> None:
    """Let signals end the process at once, because all results are already stored and printed."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _importing(frame: FrameType | None) -> bool:
    """Return whether the interrupted code is importing a module.

    An interrupt during an import is often caught by the importing code, or leaves Python's import
    lock held, so that the next thread that imports waits for ever.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False


def _fail(message: str, code: int) -> int:
    """Print the message to standard error and return the exit code."""
    _end_at_once_on_signals()
    from r2med.report.console import visible

    with suppress(OSError):
        print(visible(message), file=sys.stderr, flush=True)
    _silence()
    return code


def _silence() -> None:
    """Discard output that cannot be written, so that the interpreter does not fail at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
