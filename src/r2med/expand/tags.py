"""What an agent's turn asks for, read from its tags; models break them, so little is demanded.

Only the first request of a turn counts: whatever a model writes after it, such as a search result
it made up itself, is cut off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Wish = Literal["search", "answer", "nothing"]


@dataclass(frozen=True)
class Turn:
    """One turn of a model: the words before the request, and what is asked for."""

    wish: Wish
    thought: str
    text: str = ""
    """What to search for, or the answer."""


@dataclass(frozen=True)
class Tags:
    """The tag format of a method; a turn without any tag is an answer where `bare_answers`."""

    search: re.Pattern[str]
    search_end: re.Pattern[str]
    answer: re.Pattern[str] | None
    answer_end: re.Pattern[str] | None
    any: re.Pattern[str]
    """Every tag of the format, for cleaning."""
    stop: tuple[str, ...]
    """Where the server may stop; it leaves these out of its answer."""
    written: tuple[str, str]
    """A search as it should be written: its opening and closing tag."""

    @property
    def bare_answers(self) -> bool:
        """Whether an answer needs no tag of its own."""
        return self.answer is None

    def read(self, text: str) -> Turn:
        """What a turn asks for; a broken or empty search asks for nothing."""
        search = self.search.search(text)
        answer = self.answer.search(text) if self.answer else None
        if answer and (search is None or answer.start() < search.start()):
            return self._answered(text, answer)
        if search is None:
            return self._untagged(text)
        words = self._clean(_until(text[search.end() :], self.search_end))
        thought = text[: search.start()].strip()
        return Turn("search" if words else "nothing", thought, words)

    def closed(self, turn: Turn) -> str:
        """A searching turn as the model should have written it: up to its request, and closed."""
        opening, closing = self.written
        request = f"{opening} {turn.text} {closing}"
        return f"{turn.thought}\n{request}" if turn.thought else request

    def answered(self, text: str, turn: Turn) -> str:
        """An agent's last words, fit for other readers: stray tags out, an answer's tag closed."""
        if self.answer is None:
            return self.any.sub(" ", text).strip()
        if turn.wish == "answer":
            return f"{turn.thought}\n<answer>{turn.text}</answer>".strip()
        rest = text.rpartition("</think>")[2].strip() or text
        return self.any.sub(" ", rest).strip()

    def _answered(self, text: str, opened: re.Match[str]) -> Turn:
        assert self.answer_end is not None
        given = _until(text[opened.end() :], self.answer_end).strip()
        thought = text[: opened.start()].strip()
        return Turn("answer" if given else "nothing", thought, given)

    def _untagged(self, text: str) -> Turn:
        if self.bare_answers:
            given = self.any.sub(" ", text).strip()
            return Turn("answer", "", given)
        return Turn("nothing", text.strip())

    def _clean(self, words: str) -> str:
        return " ".join(self.any.sub(" ", words).split())


def _until(text: str, end: re.Pattern[str]) -> str:
    """Up to the closing tag, a new opening of anything, or the end of a text that was cut."""
    found = end.search(text)
    return text[: found.start()] if found else text


def _tag(*words: str) -> re.Pattern[str]:
    """Tags of these names, opening or closing, in any case, with stray pipes and spaces."""
    names = "|".join(words)
    return re.compile(rf"<\s*\|?\s*(?:{names})\s*\|?\s*>", re.IGNORECASE)


#: <|begin_search_query|> ... <|end_search_query|>; a turn that does not search is the answer.
SEARCH_O1 = Tags(
    search=_tag("begin_search_query"),
    search_end=_tag("/?end_search_query", "/?begin_search_\\w+", "/?end_search_\\w+"),
    answer=None,
    answer_end=None,
    any=_tag("/?(?:begin|end)_search_\\w+"),
    stop=("<|end_search_query|>",),
    written=("<|begin_search_query|>", "<|end_search_query|>"),
)

#: <search> ... </search>, <information> ... </information>, <answer> ... </answer>.
SEARCH_R1 = Tags(
    search=_tag("search"),
    search_end=_tag("/search", "/?information", "/?answer", "/?think"),
    answer=_tag("answer"),
    answer_end=_tag("/answer", "/?information", "/?search"),
    any=_tag("/?search", "/?information", "/?answer", "/?think"),
    stop=("</search>", "</answer>"),
    written=("<search>", "</search>"),
)
