r"""A system's short text and its tree: one grammar, whose parser and printer are inverse.

    system = [label "="] fused ("|" unit)*
    fused  = unit ("+" unit)*
    unit   = name [":" arg] ["[" key "=" value ("," key "=" value)* "]"] ["@" integer]
           | "(" system ")"

An argument or value is a bare word, or "quoted" with the escapes \" \\ \n \t. A label stands only
before the whole system: it is what tables call it, and decides nothing else.
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
#: Parentheses within parentheses; deeper ones are a mistake, and would exhaust the stack.
_MOST_NESTED = 100
_WANTED_DEPTH = "a depth, a whole number from 1 to 999999999"
#: Characters of a long text that an error shows on either side of the mark.
_SHOWN = 60
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
    """First stages that are fused, then stages that follow one another.

    A parenthesised system of one unit is that unit, so equal systems have equal trees.
    """

    fused: tuple[Unit | Spec, ...]
    stages: tuple[Unit | Spec, ...] = ()
    label: str | None = None
    """What tables call the system; None calls it by its text. Only a whole system has one."""

    def __str__(self) -> str:
        first = " + ".join(_member(part) for part in self.fused)
        text = " | ".join([first, *(_member(stage) for stage in self.stages)])
        if self.label is None:
            return text
        return f"{self.label if NAME.fullmatch(self.label) else _quote(self.label)}={text}"

    @property
    def unlabelled(self) -> Spec:
        """The system itself, as it is stored."""
        return Spec(self.fused, self.stages)


@cache
def parse(text: str) -> Spec:
    """Parse a spec; a UsageError marks the position that is wrong.

    Equal texts are parsed once: a spec is a value that never changes.
    """
    reader = _Reader(text)
    label = reader.take(_LABEL)
    spec = reader.system()
    if reader.position < len(text):
        reader.fail("expected '|', '+' or the end")
    named = None if label is None else label[1] or _unescape(label[2])
    return Spec(spec.fused, spec.stages, named)


def map_units(spec: Spec, change: Callable[[Unit], Unit]) -> Spec:
    """Return the system with every unit changed, at any depth."""

    def change_member(member: Unit | Spec) -> Unit | Spec:
        return change(member) if isinstance(member, Unit) else map_units(member, change)

    fused = tuple(change_member(member) for member in spec.fused)
    stages = tuple(change_member(member) for member in spec.stages)
    return Spec(fused, stages, spec.label)


def units_of(spec: Spec) -> list[Unit]:
    """All units of a system, in the order of its text."""
    units: list[Unit] = []
    for part in (*spec.fused, *spec.stages):
        units += [part] if isinstance(part, Unit) else units_of(part)
    return units


def _member(part: Unit | Spec) -> str:
    return str(part) if isinstance(part, Unit) else f"({part})"


def _format_value(value: str) -> str:
    return value if _BARE.fullmatch(value) else _quote(value)


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\t", "\\t") + '"'


class _Reader:
    """A cursor over the text, never on a space; each method reads one rule of the grammar."""

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
            if self.ahead("+"):
                self.fail("after '|' a fusion needs parentheses, as in 'a | (b + c)'")
        return Spec(tuple(fused), tuple(stages))

    def unit(self) -> Unit | Spec:
        if self.take("("):
            self.nested += 1
            if self.nested > _MOST_NESTED:
                self.fail(f"expected at most {_MOST_NESTED} parentheses within one another")
            inner = self.system()
            self.expect(")")
            self.nested -= 1
            alone = not inner.stages and len(inner.fused) == 1
            return inner.fused[0] if alone else inner
        name = self.expect(NAME, self.wanted_name())
        argument = self.value() if self.take(":") else None
        options = self.options() if self.take("[") else ()
        depth = int(self.expect(_DEPTH, _WANTED_DEPTH)) if self.take("@") else None
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
        if self.ahead('"'):
            self.fail('a quoted value ends with " and knows the escapes \\" \\\\ \\n \\t')
        return self.expect(_BARE, 'a value (quote it if it holds spaces or | + @ [ ] ( ) , ")')

    def wanted_name(self) -> str:
        """What a unit begins with; a path says what it may be a path of."""
        path = _PATH.match(self.text, self.position)
        if not path:
            return "the name of a system"
        shown = path[0] if len(path[0]) <= _SHOWN else "PATH"
        return (
            f"what reads this path, as in 'dense:{shown}' for an encoder, 'run:{shown}' for a run "
            f"file or, after '|', 'ce:{shown}' (tasks stand after --task, parted by commas)"
        )

    def expect(self, rule: str | re.Pattern[str], wanted: str = "") -> str:
        match = self.take(rule)
        if match is None:
            self.fail(f"expected {wanted or repr(rule)}")
        return match[0]

    def take(self, rule: str | re.Pattern[str]) -> re.Match[str] | None:
        """Read a symbol or what a rule matches, if it stands here, and the spaces after it."""
        pattern = re.compile(re.escape(rule)) if isinstance(rule, str) else rule
        match = pattern.match(self.text, self.position)
        if match:
            self.position = match.end()
            while self.text[self.position : self.position + 1].isspace():
                self.position += 1
        return match

    def ahead(self, symbol: str) -> bool:
        return self.text.startswith(symbol, self.position)

    def fail(self, why: str) -> NoReturn:
        start, end = max(0, self.position - _SHOWN), self.position + _SHOWN
        shown = self.text[start:end].replace("\n", " ")
        raise UsageError(
            f"system: {why}.\n  {shown}\n  {' ' * (self.position - start)}^\n"
            "A system reads like 'bm25', 'bm25 + minilm', 'hyde:gpt4 | bm25' or "
            "'bm25 | monobert@100'; see docs/systems.md."
        )


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda escape: _ESCAPES[escape[1]], text)
