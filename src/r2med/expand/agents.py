"""Agents that search while they reason: many queries at once, one turn of all of them at a time.

A model asks for a search, or answers, in the tags of its method. Models break tags, so little is
demanded of them, and only the first request of a turn counts: whatever a model writes after it,
such as a search result it made up itself, is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, cast, get_args

from r2med.errors import DataError
from r2med.expand.prompts import Prompt, longest
from r2med.remote.budget import most_tokens_of
from r2med.remote.completions import MOST_FRAME, ChatAnswer, ChatRequest, Message

StepKind = Literal["thought", "search", "passages", "reminder", "answer"]
Stop = Literal["answer", "turns", "tokens", "silence"]
Wish = Literal["search", "answer", "nothing"]

#: Turns that ask for nothing readable before an agent has to answer.
_PATIENCE = 2


@dataclass(frozen=True)
class Passage:
    """A document that a search found, with its text."""

    document_id: str
    text: str


#: Answers a batch of requests, in order.
Ask = Callable[[Sequence[ChatRequest]], Sequence[ChatAnswer]]
#: The best passages for each text, so many of them.
Find = Callable[[Sequence[str], int], Sequence[Sequence[Passage]]]


@dataclass(frozen=True)
class Budget:
    """What an agent may use."""

    turns: int
    """Searches."""
    tokens: int
    """Completion tokens over all turns; 0 is no limit."""
    passages: int
    """Passages per search."""
    words: int
    """Words per passage."""


@dataclass(frozen=True)
class Step:
    """One step; `documents` are the ids of the passages that were read."""

    kind: StepKind
    text: str
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """An agent's steps in order, why it stopped, and how often its tags could not be read."""

    steps: tuple[Step, ...]
    stop: Stop
    malformed: int = 0
    tokens: int = 0

    @property
    def searches(self) -> tuple[str, ...]:
        """What it searched for."""
        return tuple(step.text for step in self.steps if step.kind == "search")

    def to_json(self) -> dict[str, object]:
        """Plain values, as stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, object], where: str) -> Trace:
        """Read what `to_json` gave; anything else is a DataError that says where and what."""
        match value:
            case {
                "steps": list(steps),
                "stop": str(stop),
                "malformed": int(malformed),
                "tokens": int(tokens),
            } if stop in get_args(Stop):
                read = tuple(_step(row, where) for row in steps)
                return cls(read, cast(Stop, stop), malformed, tokens)
        raise DataError(
            f"{where}: this is no trace of an agent, expected a list of steps, a stop "
            f"({', '.join(get_args(Stop))}), malformed and tokens; see docs/generation.md."
        )


def _step(row: object, where: str) -> Step:
    match row:
        case {"kind": str(kind), "text": str(text), "documents": list(documents)} if (
            kind in get_args(StepKind) and all(isinstance(name, str) for name in documents)
        ):
            return Step(cast(StepKind, kind), text, tuple(documents))
    raise DataError(
        f"{where}: a step of the trace is {str(row)[:60]!r}, expected a kind "
        f"({', '.join(get_args(StepKind))}), a text and documents; see docs/generation.md."
    )


@dataclass(frozen=True)
class Turn:
    """One turn of a model: the words before the request, and what is asked for."""

    wish: Wish
    thought: str
    text: str = ""
    """What to search for, or the answer."""


@dataclass(frozen=True)
class Tags:
    """The tag format of a method; without an answer tag, a turn that does not search answers."""

    search: re.Pattern[str]
    search_end: re.Pattern[str]
    any: re.Pattern[str]
    """Every tag of the format, for cleaning."""
    stop: tuple[str, ...]
    """Where the server may stop; it leaves these out of its answer."""
    written: tuple[str, str]
    """A search as it should be written: its opening and closing tag."""
    answer: re.Pattern[str] | None = None
    answer_end: re.Pattern[str] | None = None

    def read(self, text: str) -> Turn:
        """What a turn asks for; a broken or empty search asks for nothing."""
        search = self.search.search(text)
        answer = self.answer.search(text) if self.answer else None
        if answer and (search is None or answer.start() < search.start()):
            answered = _until(text[answer.end() :], self.answer_end).strip()
            return Turn(
                "answer" if answered else "nothing", text[: answer.start()].strip(), answered
            )
        if search is not None:
            words = self._clean(_until(text[search.end() :], self.search_end))
            return Turn("search" if words else "nothing", text[: search.start()].strip(), words)
        if self.answer is None:
            return Turn("answer", "", self.any.sub(" ", text).strip())
        return Turn("nothing", text.strip())

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

    def _clean(self, words: str) -> str:
        return " ".join(self.any.sub(" ", words).split())


def _until(text: str, end: re.Pattern[str] | None) -> str:
    """Up to the closing tag, a new opening of anything, or the end of a text that was cut."""
    found = end.search(text) if end else None
    return text[: found.start()] if found else text


def _tag(*words: str) -> re.Pattern[str]:
    """Tags of these names, opening or closing, in any case, with stray pipes and spaces."""
    names = "|".join(words)
    return re.compile(rf"<\s*\|?\s*(?:{names})\s*\|?\s*>", re.IGNORECASE)


#: <|begin_search_query|> ... <|end_search_query|>; a turn that does not search is the answer.
SEARCH_O1 = Tags(
    search=_tag("begin_search_query"),
    search_end=_tag("/?end_search_query", "/?begin_search_\\w+", "/?end_search_\\w+"),
    any=_tag("/?(?:begin|end)_search_\\w+"),
    stop=("<|end_search_query|>",),
    written=("<|begin_search_query|>", "<|end_search_query|>"),
)

#: <search> ... </search>, <information> ... </information>, <answer> ... </answer>.
SEARCH_R1 = Tags(
    search=_tag("search"),
    search_end=_tag("/search", "/?information", "/?answer", "/?think"),
    any=_tag("/?search", "/?information", "/?answer", "/?think"),
    stop=("</search>", "</answer>"),
    written=("<search>", "</search>"),
    answer=_tag("answer"),
    answer_end=_tag("/answer", "/?information", "/?search"),
)

TAGS: Mapping[str, Tags] = {"search-o1": SEARCH_O1, "search-r1": SEARCH_R1}


@dataclass(frozen=True)
class Outing:
    """An agent's end: its last words as the model wrote them, its answer, and how it got there."""

    raw: str
    answer: str
    finish: str
    trace: Trace


@dataclass
class _Agent:
    """One query under way."""

    messages: list[Message]
    sample: int
    steps: list[Step] = field(default_factory=list)
    searches: int = 0
    malformed: int = 0
    tokens: int = 0
    last_call: bool = False
    outing: Outing | None = None

    def say(self, text: str) -> None:
        self.messages.append(Message("user", text))

    def end(self, raw: str, answer: str, finish: str, stop: Stop) -> None:
        if answer:
            self.steps.append(Step("answer", answer))
        trace = Trace(tuple(self.steps), stop, self.malformed, self.tokens)
        self.outing = Outing(raw, answer, finish, trace)


@dataclass(frozen=True)
class Loop:
    """The rules of one method: its tags, its words, and what its agents may use.

    Every call of a model is kept by the chat's own cache, so a killed loop that starts again
    walks through its answered turns and goes on where it was.
    """

    tags: Tags
    prompt: Prompt
    budget: Budget
    find: Find
    max_tokens: int | None = None

    @property
    def most_turns(self) -> int:
        """Requests that an agent may take at most: its searches, reminders and last words."""
        return self.budget.turns + _PATIENCE + 1

    def longest_results(self, texts: Iterable[str]) -> int:
        """The most tokens that one turn's results, reminders and frames add to a conversation."""
        passages = longest(texts, self.budget.passages, words=self.budget.words)
        shown = self.prompt.passages(passages, words=self.budget.words)
        said = [self.prompt.says("results", passages=shown), *self.prompt.texts.values()]
        return sum(map(most_tokens_of, said)) + 2 * MOST_FRAME

    def run(
        self, openings: Sequence[tuple[str, int]], ask: Ask, *, strip: Callable[[str], str]
    ) -> list[Outing]:
        """Run an agent for each opening request and sample number, in step.

        `strip` takes the answer out of a model's last words.
        """
        agents = [_Agent([Message("user", text)], sample) for text, sample in openings]
        while active := [agent for agent in agents if agent.outing is None]:
            answers = ask([self._request(agent) for agent in active])
            searching = []
            for agent, answer in zip(active, answers, strict=True):
                agent.tokens += answer.completion_tokens
                words = self._advance(agent, answer, strip)
                if words is not None:
                    searching.append((agent, words))
            self._search(searching)
        return [agent.outing for agent in agents if agent.outing is not None]

    def _request(self, agent: _Agent) -> ChatRequest:
        may_stop = self.tags.answer is not None or not agent.last_call
        return ChatRequest(
            messages=tuple(agent.messages),
            sample=agent.sample,
            stop=self.tags.stop if may_stop else (),
            max_tokens=self.max_tokens,
        )

    def _advance(
        self, agent: _Agent, answer: ChatAnswer, strip: Callable[[str], str]
    ) -> str | None:
        """Take a turn into account; the words to search for when it asks for a search."""
        turn = self.tags.read(answer.text)
        stop = self._stop(agent, answer, turn)
        if turn.thought and (stop is None or turn.wish == "answer"):
            agent.steps.append(Step("thought", turn.thought))
        if stop is not None:
            raw = self.tags.answered(answer.text, turn)
            agent.end(raw, strip(raw), answer.finish, stop)
            return None
        if turn.wish == "search":
            agent.messages.append(Message("assistant", self.tags.closed(turn)))
            agent.steps.append(Step("search", turn.text))
            agent.searches += 1
            return turn.text
        self._remind(agent, answer.text)
        return None

    def _stop(self, agent: _Agent, answer: ChatAnswer, turn: Turn) -> Stop | None:
        if turn.wish == "answer":
            return "answer"
        if self.budget.tokens and agent.tokens >= self.budget.tokens:
            return "tokens"
        if not answer.text.strip():
            return "silence"
        return "turns" if agent.last_call else None

    def _remind(self, agent: _Agent, text: str) -> None:
        agent.malformed += 1
        agent.messages.append(Message("assistant", text))
        if agent.malformed >= _PATIENCE:
            self._call_last(agent)
        else:
            reminder = self.prompt.says("malformed")
            agent.steps.append(Step("reminder", reminder))
            agent.say(reminder)

    def _call_last(self, agent: _Agent, before: str = "") -> None:
        last = self.prompt.says("last")
        agent.last_call = True
        agent.steps.append(Step("reminder", last))
        agent.say(f"{before}\n{last}" if before else last)

    def _search(self, searching: Sequence[tuple[_Agent, str]]) -> None:
        """Answer all searches of a turn in one go."""
        if not searching:
            return
        lists = self.find([words for _, words in searching], self.budget.passages)
        for (agent, _), passages in zip(searching, lists, strict=True):
            texts = [passage.text for passage in passages]
            listed = self.prompt.passages(texts, words=self.budget.words)
            results = self.prompt.says("results", passages=listed or self.prompt.says("nothing"))
            ids = tuple(passage.document_id for passage in passages)
            agent.steps.append(Step("passages", results, ids))
            if agent.searches >= self.budget.turns:
                self._call_last(agent, results)
            else:
                agent.say(results)
