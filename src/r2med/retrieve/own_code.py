"""Code of the user's own: found by name, kept off the results' stream, its failures told in place.

Whatever it raises becomes one message with the user's file and line, and stays as the cause.
"""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType

from r2med.errors import DataError, MissingError, R2MedError, UsageError, nearest

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_INSTALLED = tuple(
    f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)


@contextmanager
def running(what: str) -> Iterator[None]:
    """What the code prints goes to stderr; what it raises, an exit too, is a DataError."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except R2MedError:
        raise
    except (Exception, SystemExit) as problem:
        raise DataError(f"{what} failed {described(problem)}") from problem


def described(problem: BaseException) -> str:
    """Where in the user's code something was raised, and what: `in FILE, line 3: KeyError: 'x'`."""
    told = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    return f"{_place(problem)}: {type(problem).__name__}{f': {told}' if told else ''}"


def load_target(target: str) -> object:
    """Import `package.module:name`, from the working folder too; a class is made into an object.

    The folder stays on the path, because a model may import more of it when it runs.
    """
    module_name, _, attribute = target.rpartition(":")
    if not (module_name and attribute):
        raise UsageError(
            f"model {target!r}: expected package.module:Class, as in my_models.encoder:Encoder."
        )
    _refuse_path(target, module_name, attribute)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    module = _imported(target, module_name)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UsageError(
            f"model {target!r}: {module_name} has no {attribute!r}. {nearest(attribute, public)}"
        )
    return made(getattr(module, attribute), f"model {target!r}")


def made(model: object, where: str) -> object:
    """The object itself, or one of the class, which must need no arguments."""
    if not isinstance(model, type):
        return model
    with running(f"{where}: making {model.__name__}()"):
        try:
            return model()
        except TypeError as problem:
            if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                raise
            raise UsageError(
                f"{where}: the class cannot be made without arguments ({problem}).\n"
                "Give its parameters defaults, or name a ready object of the module instead."
            ) from None


def identity_of(model: object, where: str) -> str | float | Mapping[str, object] | None:
    """What the model says it is, by an attribute or a method `identity`; None where it does not."""
    with running(where):
        told = getattr(model, "identity", None)
        told = told() if callable(told) else told
    if told is not None and not _comparable(told):
        raise UsageError(
            f"{where} is {told!r}; expected a text, a number, or a mapping of such, which another "
            "run can compare. See docs/your-model.md."
        )
    return told


def _comparable(told: object) -> bool:
    """Whether another run can compare it: an object's address, say, is new every time."""
    if isinstance(told, Mapping):
        return all(isinstance(key, str) and _comparable(value) for key, value in told.items())
    return isinstance(told, str | int | float)


def _refuse_path(target: str, module_name: str, attribute: str) -> None:
    path = Path(module_name)
    named = all(part.isidentifier() for part in module_name.split("."))
    if named and path.suffix != ".py":
        return
    inside = not path.is_absolute() and ".." not in path.parts
    parts = path.with_suffix("").parts if inside else (path.stem,)
    raise UsageError(
        f"model {target!r}: {module_name!r} is no module's name. A module is named as in an "
        f"import: write {'.'.join(parts)}:{attribute}"
        + ("." if inside else f", from the folder {path.parent}.")
    )


def _imported(target: str, module_name: str) -> ModuleType:
    with running(f"model {target!r}: importing {module_name}"):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as problem:
            if not f"{module_name}.".startswith(f"{problem.name}."):
                raise
            raise MissingError(
                f"model {target!r}: module {problem.name!r} cannot be imported from {Path.cwd()} "
                "or the installed packages."
            ) from None


def _place(problem: BaseException) -> str:
    """The innermost line of the user's own, else of whichever library failed."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"in {problem.filename}, line {problem.lineno}"
    walked = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(problem.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, "<frozen "))
    ]
    own = [(file, line) for file, line in walked if not file.startswith(_INSTALLED)]
    for file, line in reversed(own or walked):
        return f"in {file}, line {line}"
    return "before any line of it ran"
