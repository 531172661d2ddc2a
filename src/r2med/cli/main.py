"""How a command ends: every way out is one message and one exit code.

0 done, 1 failed, 2 wrong usage, 3 stopped by a limit, 4 a drop, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import errno
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
    "Everything finished so far is kept (results, answers of models, vectors, indexes); "
    "run the same command again to go on from there."
)
#: What the operating system says of a disk, a quota or a file that can take no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Interrupted(BaseException):
    """Ctrl-C or a request to terminate; the argument says what is kept and how to go on."""


class ClosedPipe(BaseException):
    """The reader of the output has left, as `head` does."""


def main() -> None:
    """Run the command line and exit; closed streams lead nowhere, and none fails on a character."""
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w")
    sys.stderr = sys.stderr or nowhere.open("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run())


def run() -> int:
    """Run the command line; the exit code. From then on signals end the process at once."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if number in (signal.SIGINT, signal.SIGTERM):
            received.append(number)
        if len(received) == 1 and _importing(frame):
            signal.setitimer(signal.ITIMER_REAL, 0.02)  # look again then
            return
        if received and signal.getsignal(received[0]) is not stop:
            signal.raise_signal(received[0])  # to the server that has begun to listen meanwhile
            return
        raise KeyboardInterrupt

    try:
        with told_apart():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
                if signal.getsignal(number) != signal.SIG_IGN:
                    signal.signal(number, stop)
            from r2med.cli.app import app

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
        application = sys.modules.get("r2med.cli.app")  # absent where importing it failed
        message = application.usage_message(error) if application else None
        if message is None:
            raise
        return _fail(f"error: {message}", 2)


@contextmanager
def told_apart() -> Iterator[None]:
    """Turn an interrupt and a closed pipe into endings that no library on the way swallows."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(*(getattr(stop, "__notes__", None) or [_RESUME])) from stop
    except BrokenPipeError as error:
        if error.filename is None:
            raise ClosedPipe from error
        raise


def refusal(error: OSError) -> str:
    """What the operating system refused: where, what, and what to do."""
    what, full = (error.strerror or str(error)).lower(), error.errno in _FULL
    if not isinstance(error.filename, str | bytes | os.PathLike):
        # Files that are written are named, so these are of the output.
        output = full or error.errno == errno.EIO
        return f"{'writing to standard output' if output else 'a file or connection'}: {what}."
    act = "Free some space there" if full else "Check the path and its permissions"
    if error.errno != errno.ENOENT:
        act += ", or name another place (--results, --out, R2MED_HOME)"
    return f"{os.fsdecode(error.filename)}: {what}.\n{act}."


def _end_at_once_on_signals() -> None:
    """Once all is said, a signal finds nothing to save, and must not fail in the exit itself."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: an interrupt there can leave Python's lock taken.

    What imports swallows it then as often as not, and the next thread that imports waits for ever.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False


def _fail(message: str, code: int) -> int:
    """Say the message on standard error, whatever is left of it."""
    _end_at_once_on_signals()
    from r2med.report.console import visible

    with suppress(OSError):
        print(visible(message), file=sys.stderr, flush=True)
    _silence()
    return code


def _silence() -> None:
    """Send what cannot be written nowhere, so that the interpreter does not fail on it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
