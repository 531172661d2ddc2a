r"""Specs: the grammar of systems written as text, with a parser and a printer.

    system = [label "="] fused ("|" unit)*
    fused  = unit ("+" unit)*
    unit   = name [":" arg] ["[" key "=" value ("," key "=" value)* "]"] ["@" integer]
           | "(" system ")"

An argument or value is a bare word, or "quoted" with the escapes \" \\ \n \t. A label may come
before the whole system; it is the system's name in tables and has no other effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from r2med.errors import UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
_LABEL = re.compile(r'(?:([A-Za-z0-9][A-Za-z0-9._/-]*)|"((?:[^"\\]|\\["\\nt])+)")\s*=')
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BARE = re.compile(r'[^\s|+@\[\](),"]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\nt])*)"')
_PATH = re.compile(r'(?:\.{1,2}/|/|~)[^\s|+@\[\](),"]*')
_DEPTH = re.compile(r"[1-9][0-9]{0,8}(?![0-9])")
#: Nested parentheses that are allowed; more would exhaust the stack.
_MOST_NESTED = 100
_DEPTH_DESCRIPTION = "a depth, a whole number from 1 to 999999999"
#: Characters of a long text that an error shows before and after the wrong position.
_CONTEXT = 60
_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}


@dataclass(frozen=True)
class Unit:
    """One named stage with its argument, options (sorted by key) and depth."""

    name: str
    argument: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    depth: int | None = None

    def __str__(self) -> str:
        argument = "" if self.argument is None else f":{_format_value(self.argument)}"
        options = ",".join(f"{key}={_format_value(value)}" for key, value in self.options)
        depth = "" if self.depth is None else f"@{self.depth}"
        return f"{self.name}{argument}{f'[{options}]' if options else ''}{depth}"


@dataclass(frozen=True)
class Spec:
    """A system: first stages that are fused, then the stages that follow.

    Parentheses around a single unit are dropped, so equal systems have equal trees.
    """

    fused: tuple[Unit | Spec, ...]
    stages: tuple[Unit | Spec, ...] = ()
    label: str | None = None
    """The name of the whole system in tables; None shows the spec itself."""

    def __str__(self) -> str:
        first = " + ".join(_format_member(part) for part in self.fused)
        text = " | ".join([first, *(_format_member(stage) for stage in self.stages)])
        if self.label is None:
            return text
        label = self.label if NAME.fullmatch(self.label) else _quote(self.label)
        return f"{label}={text}"

    @property
    def unlabelled(self) -> Spec:
        """The system without its label; results are stored under this spec."""
        return Spec(self.fused, self.stages)


@cache
def parse(text: str) -> Spec:
    """Parse a spec; a UsageError marks the position that is wrong.

    Equal texts return the same object, which is safe because specs are immutable.
    """
    reader = _Reader(text)
    label_match = reader.take(_LABEL)
    spec = reader.system()
    if reader.position < len(text):
        reader.fail("expected '|', '+' or the end")
    if label_match is None:
        return spec
    return Spec(spec.fused, spec.stages, label_match[1] or _unescape(label_match[2]))


def map_units(spec: Spec, change: Callable[[Unit], Unit]) -> Spec:
    """Return the system with every unit changed, at any depth."""

    def change_member(member: Unit | Spec) -> Unit | Spec:
        return change(member) if isinstance(member, Unit) else map_units(member, change)

    fused = tuple(change_member(member) for member in spec.fused)
    stages = tuple(change_member(member) for member in spec.stages)
    return Spec(fused, stages, spec.label)


def units_of(spec: Spec) -> list[Unit]:
    """Return all units of a system, in the order of its text."""
    units: list[Unit] = []
    for part in (*spec.fused, *spec.stages):
        units += [part] if isinstance(part, Unit) else units_of(part)
    return units


def _format_member(part: Unit | Spec) -> str:
    return str(part) if isinstance(part, Unit) else f"({part})"


def _format_value(value: str) -> str:
    return value if _BARE.fullmatch(value) else _quote(value)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


@cache
def _symbol_pattern(symbol: str) -> re.Pattern[str]:
    return re.compile(re.escape(symbol))


class _Reader:
    """A cursor over the text; each method reads one rule of the grammar and the spaces after it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.nested = 0
        self.position = 0
        self.take("")

    def system(self) -> Spec:
        fused = [self.unit()]
        while self.take("+"):
            fused.append(self.unit())
        stages = []
        while self.take("|"):
            stages.append(self.unit())
            if self.is_at("+"):
                self.fail("after '|' a fusion needs parentheses, as in 'a | (b + c)'")
        return Spec(tuple(fused), tuple(stages))

    def unit(self) -> Unit | Spec:
        if self.take("("):
            self.nested += 1
            if self.nested > _MOST_NESTED:
                self.fail(f"expected at most {_MOST_NESTED} nested parentheses")
            inner = self.system()
            self.expect(")")
            self.nested -= 1
            is_single_unit = not inner.stages and len(inner.fused) == 1
            return inner.fused[0] if is_single_unit else inner
        name = self.expect(NAME, self.describe_name())
        argument = self.value() if self.take(":") else None
        options = self.options() if self.take("[") else ()
        depth = int(self.expect(_DEPTH, _DEPTH_DESCRIPTION)) if self.take("@") else None
        return Unit(name, argument, options, depth)

    def options(self) -> tuple[tuple[str, str], ...]:
        options: dict[str, str] = {}
        while not options or self.take(","):
            start = self.position
            key = self.expect(_KEY, "an option, as in [k1=1.2]")
            if key in options:
                self.position = start
                self.fail(f"option {key!r} is given twice")
            self.expect("=")
            options[key] = self.value()
        self.expect("]")
        return tuple(sorted(options.items()))

    def value(self) -> str:
        quoted = self.take(_QUOTED)
        if quoted is not None:
            return _unescape(quoted[0][1:-1])
        if self.is_at('"'):
            self.fail('a quoted value must end with ", and allows the escapes \\" \\\\ \\n \\t')
        return self.expect(_BARE, 'a value (quote it if it has spaces or | + @ [ ] ( ) , ")')

    def describe_name(self) -> str:
        """Return the description of the expected name; before a path, the prefixes it may need."""
        match = _PATH.match(self.text, self.position)
        if not match:
            return "the name of a system"
        path = match[0] if len(match[0]) <= _CONTEXT else "PATH"
        return (
            f"a prefix before the path: 'dense:{path}' for an encoder, 'run:{path}' for a run "
            f"file or, after '|', 'ce:{path}' (tasks are given with --task, separated by commas)"
        )

    def expect(self, rule: str | re.Pattern[str], description: str = "") -> str:
        match = self.take(rule)
        if match is None:
            self.fail(f"expected {description or repr(rule)}")
        return match[0]

    def take(self, rule: str | re.Pattern[str]) -> re.Match[str] | None:
        """Read a symbol or pattern at the cursor and the spaces after it; None if it is absent."""
        pattern = _symbol_pattern(rule) if isinstance(rule, str) else rule
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
            while self.text[self.position : self.position + 1].isspace():
                self.position += 1
        return match

    def is_at(self, symbol: str) -> bool:
        return self.text.startswith(symbol, self.position)

    def fail(self, reason: str) -> NoReturn:
        start, end = max(0, self.position - _CONTEXT), self.position + _CONTEXT
        excerpt = self.text[start:end].replace("\n", " ")
        marker = " " * (self.position - start) + "^"
        raise UsageError(
            f"system: {reason}.\n  {excerpt}\n  {marker}\n"
            "Examples of systems are 'bm25', 'bm25 + minilm', 'hyde:gpt4 | bm25' and "
            "'bm25 | monobert@100'; see docs/systems.md."
        )


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: _ESCAPES[escape[1]], text)
