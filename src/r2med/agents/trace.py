"""Traces of agents: the steps for one query, the answer, and the agent's confidence and citations.

Every source of traces is converted to this one form: our own loops, the log of the search server,
and the files of BrowseComp-Plus.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

StepType = Literal["thought", "search", "tool", "answer"]
#: The status of a trace that ended with an answer, as BrowseComp-Plus names it.
COMPLETED, INCOMPLETE = "completed", "incomplete"
#: The name of the search tool in counts of tool calls.
SEARCH_TOOL = "search"

#: A tool that opens a document by its id; every other tool in stated counts is a search.
_OPENING_TOOL = re.compile(r"(?:get|read|open|fetch|view)[-_ ]?(?:doc|page|passage|text)", re.I)
_CONFIDENCE = re.compile(
    r"\bconfidence(?:[ _]score|[ _]level)?[*_\"']*\s*(?:[:=]|is|of)[*_\"'\s]*"
    r"(\d+(?:\.\d+)?)\s*(%?)",
    re.I,
)
_BRACKETS = re.compile(r"\[([^\[\]]{1,400})\]|【([^【】]{1,400})】")


@dataclass(frozen=True)
class AgentStep:
    """One step of an agent."""

    type: StepType
    text: str
    """The thought, the words searched for, the arguments of another tool, or the answer."""
    documents: tuple[str, ...] = ()
    """Ids of the documents that the step showed to the agent, best first."""
    tool: str = ""
    """The name of the tool that a search or tool step called."""


@dataclass(frozen=True)
class AgentTrace:
    """All that an agent did for one query."""

    query_id: str
    steps: tuple[AgentStep, ...]
    status: str = COMPLETED
    sample: int = 0
    """The number of this run among the runs on the same query, from 0."""
    other_documents: tuple[str, ...] = ()
    """Documents that the source lists as retrieved without saying by which step."""
    stated_calls: Mapping[str, int] = field(default_factory=dict)
    """Number of calls of each tool as the source states it; a source may state calls without
    steps."""
    cited: tuple[str, ...] = ()
    """Ids of the documents that the answer cites."""
    final_list: tuple[str, ...] = ()
    """The first documents of the final ranking, if the agent's answer is used for a search."""
    confidence: float | None = None
    """The stated confidence in the answer, from 0 to 1."""
    tokens: int | None = None
    """Number of generated tokens, if the source counts them."""

    def __post_init__(self) -> None:
        if any(step.type == "answer" for step in self.steps[:-1]):
            raise ValueError("only the last step of a trace can be an answer")

    @property
    def answer(self) -> str:
        """The text of the last step, if it is an answer; empty if the agent gave none."""
        last = self.steps[-1] if self.steps else None
        return last.text if last is not None and last.type == "answer" else ""

    @property
    def documents(self) -> tuple[str, ...]:
        """Every document that the agent saw, once, in the order in which it saw them."""
        listed = [document for step in self.steps for document in step.documents]
        return tuple(dict.fromkeys([*listed, *self.other_documents]))

    @property
    def tool_calls(self) -> Mapping[str, int]:
        """How often each tool was called; counts of the source take precedence over the steps."""
        if self.stated_calls:
            return dict(self.stated_calls)
        return dict(Counter(step.tool or SEARCH_TOOL for step in self._calls()))

    @property
    def searches(self) -> int:
        """How often the agent searched."""
        listed = [step for step in self._calls() if step.type == "search"]
        if listed:
            return len(listed)
        return sum(count for tool, count in self.tool_calls.items() if not opens_document(tool))

    def first_search_with(self, document_ids: Sequence[str]) -> int | None:
        """Return the number, from 1, of the search after which any of the documents had been seen.

        None if no document was seen, or if the source lists documents without searches.
        """
        targets, number = set(document_ids), 0
        for step in self._calls():
            number += step.type == "search"
            if targets & set(step.documents):
                return max(number, 1)
        return None

    def _calls(self) -> Iterator[AgentStep]:
        return (step for step in self.steps if step.type in ("search", "tool"))


def opens_document(tool: str) -> bool:
    """Whether a tool of this name opens a document by its id instead of searching."""
    return bool(_OPENING_TOOL.search(tool))


def read_confidence(text: str) -> float | None:
    """Return the confidence that a text states last, from 0 to 1; None if it states none.

    "85%" and "85" are percent, "0.85" is a share. Values above 100 count as 100.
    """
    stated = _CONFIDENCE.findall(text)
    if not stated:
        return None
    number, percent = stated[-1]
    value = float(number)
    is_share = not percent and "." in number and value <= 1
    return value if is_share else min(value, 100.0) / 100


def read_citations(text: str, documents: Sequence[str]) -> tuple[str, ...]:
    """Return which of `documents` a text cites by id in brackets, such as [a12] or [a12, b3]."""
    seen = set(documents)
    cited = [name for match in _BRACKETS.finditer(text) for name in _names_in(match)]
    return tuple(dict.fromkeys(name for name in cited if name in seen))


def remove_citations(text: str, documents: Sequence[str]) -> str:
    """Return a text without the brackets that cite any of `documents`."""
    seen = set(documents)

    def replace_bracket(match: re.Match[str]) -> str:
        return "" if seen & set(_names_in(match)) else match[0]

    return _BRACKETS.sub(replace_bracket, text)


def _names_in(bracket: re.Match[str]) -> list[str]:
    """Return the possible ids in a bracket: its whole content, and each item if it is a list."""
    content = bracket[1] or bracket[2]
    return [name.strip() for name in (content, *re.split(r"[,;]", content))]
