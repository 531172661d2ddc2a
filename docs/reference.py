"""Write the two references, docs/commands.md and docs/python.md, from the code: `make docs`.

Prints which of them changed; with `--check` nothing is written, and a difference exits with 1.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

import r2med
from r2med.cli import main as entry
from r2med.cli.app import COMMANDS, app

DOCS = Path(__file__).parent
NOTE = "<!-- Written by `make docs` from the code: change it there. -->"
INTRODUCTION = """\
`r2med COMMAND --help` shows the same. Systems are arguments and tasks are `--task`; where tasks
are the subject (`tasks`, `nano`), they are the arguments. Answers go to standard output, notices
and progress to standard error; `--json` prints JSON and nothing else. `r2med --install-completion`
makes the shell complete commands, options, tasks and systems.

Exit codes: {exits}"""
#: An option of so many commands is described once, above them all.
SHARED = 3


def commands_page() -> str:
    """The command reference: shared options first, then one section per command."""
    commands = list(_commands(typer.main.get_command(app)))
    uses: dict[str, list[Any]] = {}
    for _, command, _ in commands:
        for name, parameter in _options(command).items():
            uses.setdefault(name, []).append(parameter)
    shared = {
        name
        for name, found in uses.items()
        if len(found) >= SHARED and len({each.help for each in found}) == 1
    }
    exits = (inspect.getdoc(sys.modules[entry.__module__]) or "").splitlines()[-1]
    lines = [
        "# Commands",
        "",
        NOTE,
        "",
        INTRODUCTION.format(exits=exits),
        "",
        "## Options that mean the same everywhere",
        "",
        *_table((uses[name][0] for name in sorted(shared)), defaults=False),
    ]
    heading = ""
    for path, command, panel in commands:
        if panel != heading:
            heading = panel
            lines += ["", f"## {heading}"]
        same = COMMANDS[path].help if path in COMMANDS else ""
        short = [same] if same.startswith("The same as") else _described(path, command, shared)
        lines += ["", f"### r2med {path}", "", *short]
    return "\n".join(lines) + "\n"


def _commands(group: Any, path: str = "", panel: str = "") -> Iterator[tuple[str, Any, str]]:
    """Every command with its words and heading."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        listed = group.entries.get(name)
        heading = panel or (listed.heading if listed else "") or "Out of the main list"
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path}{name} ", heading)
        else:
            yield f"{path}{name}", command, heading


def _options(command: Any) -> dict[str, Any]:
    return {p.opts[0]: p for p in command.params if p.param_type_name == "option"}


def _described(path: str, command: Any, shared: set[str]) -> Iterator[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    usage = " ".join(["r2med", path, *(_metavar(p) for p in arguments), "[OPTIONS]"])
    yield f"    {usage}"
    yield ""
    yield inspect.cleandoc(command.help or "").replace("\\[", "[").replace("\b\n", "")
    options = {name: p for name, p in _options(command).items() if name != "--help"}
    own = [p for name, p in options.items() if name not in shared]
    if arguments or own:
        yield ""
        yield from _table([*arguments, *own])
    if also := [f"`{name}`" for name in options if name in shared]:
        yield ""
        yield f"Also: {', '.join(also)}."


def _table(parameters: Iterable[Any], *, defaults: bool = True) -> Iterator[str]:
    yield "| option | meaning |"
    yield "|---|---|"
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            name = f"`{_metavar(parameter)}`"
        else:
            word = parameter.metavar or parameter.opts[0].lstrip("-").upper()
            value = "" if parameter.is_flag else f" {word}".replace("|", "\\|")
            name = ", ".join(f"`{option}{value}`" for option in parameter.opts)
        default = parameter.default
        shown = defaults and default not in (None, False, []) and not callable(default)
        meaning = (parameter.help or "").replace("|", "\\|")
        yield f"| {name} | {meaning}{f' Default: {default}.' if shown else ''} |"


def _metavar(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).replace("|", "\\|")


def python_page() -> str:
    """The Python reference: every public name, with what it promises."""
    lines = ["# Python", "", NOTE, "", inspect.getdoc(r2med) or ""]
    for name in sorted(dir(r2med), key=lambda n: (n[0].islower(), n.lower())):
        thing = getattr(r2med, name)
        lines += ["", f"## r2med.{name}", ""]
        lines += _class(name, thing) if inspect.isclass(thing) else _function(name, thing)
    return "\n".join(lines) + "\n"


def _function(name: str, thing: Any) -> list[str]:
    return [*_code(f"{name}{_signature(thing)}"), "", inspect.getdoc(thing) or ""]


def _class(name: str, thing: type) -> list[str]:
    lines = [inspect.getdoc(thing) or ""]
    fields = dict(_fields(thing))
    if fields:
        lines += ["", *(f"- `{field}`{text}" for field, text in fields.items())]
    for member, value in vars(thing).items():
        doc = inspect.getdoc(value)
        if member.startswith("_") or not doc or member in {n.split(":")[0] for n in fields}:
            continue
        plain = inspect.unwrap(getattr(value, "__func__", value))
        called = f".{member}{_signature(plain)}" if callable(plain) else f".{member}"
        lines += ["", *_code(f"{name}{called}"), "", doc]
    return lines


def _fields(thing: type) -> Iterator[tuple[str, str]]:
    """The fields of a dataclass, and the string below each that describes it."""
    if "__dataclass_fields__" not in vars(thing):
        return
    tree = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            text = f": {after.value.value}" if described and after is not None else ""  # type: ignore[attr-defined]
            if not statement.target.id.startswith("_"):
                yield f"{statement.target.id}: {ast.unparse(statement.annotation)}", text


def _signature(thing: Any) -> str:
    signature = inspect.signature(thing)
    kept = [
        each.replace(annotation=_Plain(each.annotation), default=_default(each.default))
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    returned = _Plain(signature.return_annotation)
    return str(signature.replace(parameters=kept, return_annotation=returned))


def _default(value: Any) -> Any:
    """A default as one would type it."""
    if inspect.isfunction(value):
        return _Plain(value.__name__)
    return str(value) if isinstance(value, Path) else value


class _Plain(str):
    """An annotation, shown without quotes."""

    def __repr__(self) -> str:
        return str(self)


def _code(text: str) -> list[str]:
    """A call as code, one parameter per line where it is long."""
    if len(text) > 92:
        inside = text[text.index("(") + 1 : text.rindex(")")]
        parts = _split(inside)
        text = "\n".join(
            [
                text[: text.index("(") + 1],
                *(f"    {part}," for part in parts),
                text[text.rindex(")") :],
            ]
        )
    return ["```py", *text.splitlines(), "```"]


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


PAGES = {"commands.md": commands_page, "python.md": python_page}


def write(*, check: bool) -> list[str]:
    """The pages that differ from the code; they are written unless only checked."""
    stale = []
    for name, page in PAGES.items():
        path, text = DOCS / name, page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    return stale


if __name__ == "__main__":
    checking = "--check" in sys.argv
    changed = write(check=checking)
    print("\n".join(changed) or "both references are up to date")
    sys.exit(checking and bool(changed))
