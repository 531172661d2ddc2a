"""How a query and its generations become what is searched for, by the rule of the method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from r2med.errors import UsageError
from r2med.retrieve.interface import Part, QueryForm

_QUERY = "{query}"
_GENERATED = "{generated}"


@dataclass(frozen=True)
class Rule:
    """Templates with {query} and {generated}: one for words, one or more for vectors to average."""

    lexical: str
    dense: tuple[str, ...]

    def __post_init__(self) -> None:
        for template in (self.lexical, *self.dense):
            if _QUERY not in template and _GENERATED not in template:
                raise UsageError(
                    f"combination rule {template!r}: expected {_QUERY} or {_GENERATED} in it."
                )


#: Every method combines so when the model reasons, since only its stripped answer is used.
ANSWER_ALONE = Rule(lexical=_GENERATED, dense=(_QUERY, _GENERATED))


def form(query_id: str, query: str, answers: Sequence[str], rule: Rule) -> QueryForm:
    """One query's form; without any answer it is the query itself, whatever the rule.

    Several answers are joined by a space for words; for vectors each gives a part of its own, and
    the query enters the mean once.
    """
    if not answers:
        return QueryForm(query_id, query, (Part(query),))
    lexical = _filled(rule.lexical, query, " ".join(answers))
    return QueryForm(query_id, lexical, tuple(_parts(query, answers, rule.dense)))


def _parts(query: str, answers: Sequence[str], templates: Sequence[str]) -> Iterator[Part]:
    for template in templates:
        if _GENERATED not in template:
            yield Part(_filled(template, query, ""))
            continue
        for answer in answers:
            yield Part(_filled(template, query, answer), generated=_QUERY not in template)


def _filled(template: str, query: str, generated: str) -> str:
    """Both at once, so that a text that holds a placeholder's letters is left alone."""
    pieces = template.split(_QUERY)
    return query.join(piece.replace(_GENERATED, generated) for piece in pieces)
