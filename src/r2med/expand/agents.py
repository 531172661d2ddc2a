"""Agents that search while they reason: many queries at once, one turn of all of them at a time.

A model asks for a search, or answers, in the tags of its method. Models break tags, so little is
demanded of them, and only the first request of a turn counts: whatever a model writes after it,
such as a search result it made up itself, is cut off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from r2med.expand.answers import Sample, judge
from r2med.expand.prompts import Prompt
from r2med.remote.completions import ChatAnswer, ChatRequest, Message, in_step

if TYPE_CHECKING:
    from r2med.expand.expander import Method

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

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trace:
        """The trace as it was written."""
        steps = (Step(s["kind"], s["text"], tuple(s["documents"])) for s in value["steps"])
        return cls(tuple(steps), value["stop"], value["malformed"], value["tokens"])


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

    search: tuple[re.Pattern[str], re.Pattern[str]]
    """What opens a request, and where it ends at the latest."""
    any: re.Pattern[str]
    """Every tag of the format, for cleaning."""
    stop: tuple[str, ...]
    """Where the server may stop; it leaves these out of its answer."""
    written: tuple[str, str]
    """A search as it should be written: its opening and closing tag."""
    answer: tuple[re.Pattern[str], re.Pattern[str]] | None = None

    def read(self, text: str) -> Turn:
        """What a turn asks for; a broken or empty search asks for nothing."""
        opening, end = self.search
        search = opening.search(text)
        answer = self.answer[0].search(text) if self.answer else None
        if self.answer and answer and (search is None or answer.start() < search.start()):
            answered = self.answer[1].split(text[answer.end() :], maxsplit=1)[0].strip()
            wish: Wish = "answer" if answered else "nothing"
            return Turn(wish, text[: answer.start()].strip(), answered)
        if search is not None:
            words = self.any.sub(" ", end.split(text[search.end() :], maxsplit=1)[0])
            words = " ".join(words.split())
            return Turn("search" if words else "nothing", text[: search.start()].strip(), words)
        if self.answer is None:
            return Turn("answer", "", self.any.sub(" ", text).strip())
        return Turn("nothing", text.strip())

    def close_search(self, turn: Turn) -> str:
        """A searching turn as the model should have written it: up to its request, and closed."""
        opening, closing = self.written
        request = f"{opening} {turn.text} {closing}"
        return f"{turn.thought}\n{request}" if turn.thought else request

    def clean_answer(self, text: str, turn: Turn) -> str:
        """An agent's last words, fit for other readers: stray tags out, an answer's tag closed."""
        if self.answer is None:
            return self.any.sub(" ", text).strip()
        if turn.wish == "answer":
            return f"{turn.thought}\n<answer>{turn.text}</answer>".strip()
        rest = text.rpartition("</think>")[2].strip() or text
        return self.any.sub(" ", rest).strip()


def _tag(*words: str) -> re.Pattern[str]:
    """Tags of these names, opening or closing, in any case, with stray pipes and spaces."""
    names = "|".join(words)
    space = r"\s{0,5}"
    return re.compile(rf"<{space}\|?{space}(?:{names}){space}\|?{space}>", re.IGNORECASE)


#: <|begin_search_query|> ... <|end_search_query|>; a turn that does not search is the answer.
SEARCH_O1 = Tags(
    search=(_tag("begin_search_query"), _tag("/?begin_search_\\w+", "/?end_search_\\w+")),
    any=_tag("/?(?:begin|end)_search_\\w+"),
    stop=("<|end_search_query|>",),
    written=("<|begin_search_query|>", "<|end_search_query|>"),
)

#: <search> ... </search>, <information> ... </information>, <answer> ... </answer>.
SEARCH_R1 = Tags(
    search=(_tag("search"), _tag("/search", "/?information", "/?answer", "/?think")),
    any=_tag("/?search", "/?information", "/?answer", "/?think"),
    stop=("</search>", "</answer>"),
    written=("<search>", "</search>"),
    answer=(_tag("answer"), _tag("/answer", "/?information", "/?search")),
)

TAGS: Mapping[str, Tags] = {"search-o1": SEARCH_O1, "search-r1": SEARCH_R1}


@dataclass(frozen=True)
class Loop:
    """The agents of one method: its tags and limits, its words, and what it searches.

    Every call of a model is kept by the chat's own cache, so a killed loop that starts again
    walks through its answered turns and goes on where it was.
    """

    method: Method
    prompt: Prompt
    find: Find

    @property
    def tags(self) -> Tags:
        """How its agents search and answer."""
        return TAGS[self.method.style]

    def run(self, openings: Sequence[ChatRequest], ask: Ask) -> list[tuple[Sample, Trace]]:
        """Run an agent for each opening request, in step; each leaves its answer and its trace."""

        def serve(wishes: list[ChatRequest | str]) -> list[Any]:
            requests = [wish for wish in wishes if isinstance(wish, ChatRequest)]
            searches = [wish for wish in wishes if isinstance(wish, str)]
            answers = iter(ask(requests) if requests else ())
            lists = iter(self.find(searches, self.method.passages) if searches else ())
            return [next(lists if isinstance(wish, str) else answers) for wish in wishes]

        return in_step([self._agent(request) for request in openings], serve)

    def _agent(
        self, request: ChatRequest
    ) -> Generator[list[ChatRequest | str], list[Any], tuple[Sample, Trace]]:
        """One agent: yields a request for its answer, or words to search for their passages."""
        answer: ChatAnswer
        passages: Sequence[Passage]
        steps: list[Step] = []
        searches = malformed = tokens = 0
        last_call = False
        while True:
            [answer] = yield [request]
            tokens += answer.completion_tokens
            turn = self.tags.read(answer.text)
            stop = self._stop(answer, turn, tokens, last_call)
            if turn.thought and (stop is None or turn.wish == "answer"):
                steps.append(Step("thought", turn.thought))
            if stop is not None:
                raw = self.tags.clean_answer(answer.text, turn)
                answered = self.method.answer_in(raw)
                steps += [Step("answer", answered)] if answered else []
                trace = Trace(tuple(steps), stop, malformed, tokens)
                return judge(raw, answered, answer.finish), trace
            said, results, reminders = answer.text, list[str](), list[str]()
            if turn.wish == "search":
                said = self.tags.close_search(turn)
                [passages] = yield [turn.text]
                listed = self.prompt.passages([p.text for p in passages], words=self.method.words)
                listed = listed or self.prompt.says("nothing")
                results = [self.prompt.says("results", passages=listed)]
                read = tuple(passage.document_id for passage in passages)
                steps += [Step("search", turn.text), Step("passages", results[0], read)]
                searches += 1
                last_call = searches >= self.method.turns
            else:
                malformed += 1
                last_call = malformed >= _PATIENCE
                reminders = [] if last_call else [self.prompt.says("malformed")]
            if last_call:
                reminders.append(self.prompt.says("last"))
                request = replace(request, stop=self.tags.stop if self.tags.answer else ())
            steps += [Step("reminder", reminder) for reminder in reminders]
            reply = Message("user", "\n".join([*results, *reminders]))
            talk = (*request.messages, Message("assistant", said), reply)
            request = replace(request, messages=talk)

    def _stop(self, answer: ChatAnswer, turn: Turn, tokens: int, last_call: bool) -> Stop | None:
        if turn.wish == "answer":
            return "answer"
        if self.method.tokens and tokens >= self.method.tokens:
            return "tokens"
        if not answer.text.strip():
            return "silence"
        return "turns" if last_call else None
