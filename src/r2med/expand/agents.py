"""Agents: language models that search while they reason, all queries of a task in parallel.

A model requests a search, or gives its answer, in the tags of its method. Because models often
break tags, they are parsed leniently. Only the first request of a turn counts: any text after it,
such as an invented search result, is removed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from r2med.expand.answers import Sample, classify_answer
from r2med.expand.prompts import Prompt
from r2med.remote.completions import ChatAnswer, ChatRequest, Message, run_in_step

if TYPE_CHECKING:
    from r2med.expand.expander import Method

StepType = Literal["thought", "search", "passages", "reminder", "answer"]
Stop = Literal["answer", "turns", "tokens", "silence"]
Action = Literal["search", "answer", "nothing"]

#: Turns without a readable request after which an agent has to answer.
_MOST_MALFORMED = 2


@dataclass(frozen=True)
class RetrievedPassage:
    """A retrieved document with its text."""

    document_id: str
    text: str


#: Returns the answers to requests, in order.
AnswerRequests = Callable[[Sequence[ChatRequest]], Sequence[ChatAnswer]]
#: From query texts and a number of passages to the best passages for each text.
FindPassages = Callable[[Sequence[str], int], Sequence[Sequence[RetrievedPassage]]]


@dataclass(frozen=True)
class Step:
    """One step of an agent; `documents` are the ids of retrieved passages."""

    kind: StepType
    text: str
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """The steps of an agent in order, and why it stopped."""

    steps: tuple[Step, ...]
    stop: Stop
    malformed: int = 0
    """Number of turns whose tags could not be read."""
    tokens: int = 0

    @property
    def searches(self) -> tuple[str, ...]:
        """The texts of all searches."""
        return tuple(step.text for step in self.steps if step.kind == "search")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trace:
        """Restore a trace from the JSON object of a traces file."""
        steps = (
            Step(step["kind"], step["text"], tuple(step["documents"])) for step in value["steps"]
        )
        return cls(tuple(steps), value["stop"], value["malformed"], value["tokens"])


@dataclass(frozen=True)
class Turn:
    """One turn of a model: the reasoning before the first request, and the request."""

    action: Action
    thought: str
    text: str = ""
    """The search query, or the answer."""


@dataclass(frozen=True)
class Tags:
    """The tag format of a method.

    In a format without an answer tag, a turn without a search is the answer.
    """

    search: tuple[re.Pattern[str], re.Pattern[str]]
    """The tag that opens a search, and the tags that end it."""
    any_tag: re.Pattern[str]
    """Matches every tag of the format."""
    stop: tuple[str, ...]
    """Stop sequences for the server, which are not part of its answer."""
    search_tags: tuple[str, str]
    """The correct opening and closing tag of a search."""
    answer: tuple[re.Pattern[str], re.Pattern[str]] | None = None
    """The tag that opens the answer, and the tags that end it."""

    def read(self, text: str) -> Turn:
        """Return the turn in a model's text; a broken or empty search is not a request."""
        search_start, search_end = self.search
        search = search_start.search(text)
        if self.answer is not None:
            answer_start, answer_end = self.answer
            answer = answer_start.search(text)
            if answer and (search is None or answer.start() < search.start()):
                answer_text = answer_end.split(text[answer.end() :], maxsplit=1)[0].strip()
                action: Action = "answer" if answer_text else "nothing"
                return Turn(action, text[: answer.start()].strip(), answer_text)
        if search is not None:
            request = search_end.split(text[search.end() :], maxsplit=1)[0]
            query = " ".join(self.any_tag.sub(" ", request).split())
            action = "search" if query else "nothing"
            return Turn(action, text[: search.start()].strip(), query)
        if self.answer is None:
            return Turn("answer", "", self._remove_tags(text))
        return Turn("nothing", text.strip())

    def close_search(self, turn: Turn) -> str:
        """Return the text of a searching turn up to its request, with correct tags."""
        opening, closing = self.search_tags
        request = f"{opening} {turn.text} {closing}"
        return f"{turn.thought}\n{request}" if turn.thought else request

    def clean_answer(self, text: str, turn: Turn) -> str:
        """Return the text of the last turn without stray tags, with the answer tag closed."""
        if self.answer is None:
            return self._remove_tags(text)
        if turn.action == "answer":
            return f"{turn.thought}\n<answer>{turn.text}</answer>".strip()
        after_reasoning = text.rpartition("</think>")[2].strip()
        return self._remove_tags(after_reasoning or text)

    def _remove_tags(self, text: str) -> str:
        return self.any_tag.sub(" ", text).strip()


def _tag(*names: str) -> re.Pattern[str]:
    """Return a pattern for tags by name, in any case, with stray pipes and spaces."""
    space = r"\s{0,5}"
    return re.compile(rf"<{space}\|?{space}(?:{'|'.join(names)}){space}\|?{space}>", re.IGNORECASE)


#: <|begin_search_query|> ... <|end_search_query|>; a turn without a search is the answer.
SEARCH_O1 = Tags(
    search=(_tag("begin_search_query"), _tag("/?begin_search_\\w+", "/?end_search_\\w+")),
    any_tag=_tag("/?(?:begin|end)_search_\\w+"),
    stop=("<|end_search_query|>",),
    search_tags=("<|begin_search_query|>", "<|end_search_query|>"),
)

#: <search> ... </search>, <information> ... </information>, <answer> ... </answer>.
SEARCH_R1 = Tags(
    search=(_tag("search"), _tag("/search", "/?information", "/?answer", "/?think")),
    any_tag=_tag("/?search", "/?information", "/?answer", "/?think"),
    stop=("</search>", "</answer>"),
    search_tags=("<search>", "</search>"),
    answer=(_tag("answer"), _tag("/answer", "/?information", "/?search")),
)

TAGS: Mapping[str, Tags] = {"search-o1": SEARCH_O1, "search-r1": SEARCH_R1}


@dataclass(frozen=True)
class AgentLoop:
    """Runs the agents of one method on a task.

    Every answer of the model is cached, so a loop that was killed repeats its answered turns from
    the cache and continues with the next one.
    """

    method: Method
    prompt: Prompt
    find: FindPassages

    @property
    def tags(self) -> Tags:
        """The tag format of the method."""
        return TAGS[self.method.style]

    def run(
        self, requests: Sequence[ChatRequest], answer_requests: AnswerRequests
    ) -> list[tuple[Sample, Trace]]:
        """Run one agent per opening request, all in step; return their answers and traces."""

        def answer_all(items: list[ChatRequest | str]) -> list[Any]:
            """Send the requests to the model and search for the texts, each as one batch."""
            chat_requests = [item for item in items if isinstance(item, ChatRequest)]
            searches = [item for item in items if isinstance(item, str)]
            answers = iter(answer_requests(chat_requests) if chat_requests else ())
            lists = iter(self.find(searches, self.method.passages) if searches else ())
            return [next(lists) if isinstance(item, str) else next(answers) for item in items]

        return run_in_step([self._run_agent(request) for request in requests], answer_all)

    def _run_agent(
        self, request: ChatRequest
    ) -> Generator[list[ChatRequest | str], list[Any], tuple[Sample, Trace]]:
        """Run one agent: yield a request to get its answer, or a text to get passages for it."""
        answer: ChatAnswer
        passages: Sequence[RetrievedPassage]
        steps: list[Step] = []
        searches = malformed = tokens = 0
        is_last_turn = False
        while True:
            [answer] = yield [request]
            tokens += answer.completion_tokens
            turn = self.tags.read(answer.text)
            stop = self._stop_reason(answer, turn, tokens, is_last_turn)
            if turn.thought and (stop is None or turn.action == "answer"):
                steps.append(Step("thought", turn.thought))
            if stop is not None:
                raw = self.tags.clean_answer(answer.text, turn)
                final_answer = self.method.extract_answer(raw)
                if final_answer:
                    steps.append(Step("answer", final_answer))
                trace = Trace(tuple(steps), stop, malformed, tokens)
                return classify_answer(raw, final_answer, answer.finish), trace
            results: list[str] = []
            reminders: list[str] = []
            if turn.action == "search":
                assistant_text = self.tags.close_search(turn)
                [passages] = yield [turn.text]
                results.append(self._describe_results(passages))
                document_ids = tuple(passage.document_id for passage in passages)
                steps += [Step("search", turn.text), Step("passages", results[0], document_ids)]
                searches += 1
                is_last_turn = searches >= self.method.turns
            else:
                assistant_text = answer.text
                malformed += 1
                is_last_turn = malformed >= _MOST_MALFORMED
                if not is_last_turn:
                    reminders.append(self.prompt.fill("malformed"))
            if is_last_turn:
                reminders.append(self.prompt.fill("last"))
                request = replace(request, stop=self.tags.stop if self.tags.answer else ())
            steps += [Step("reminder", reminder) for reminder in reminders]
            new_messages = (
                Message("assistant", assistant_text),
                Message("user", "\n".join([*results, *reminders])),
            )
            request = replace(request, messages=(*request.messages, *new_messages))

    def _describe_results(self, passages: Sequence[RetrievedPassage]) -> str:
        texts = [passage.text for passage in passages]
        listed = self.prompt.list_passages(texts, words=self.method.words)
        return self.prompt.fill("results", passages=listed or self.prompt.fill("nothing"))

    def _stop_reason(
        self, answer: ChatAnswer, turn: Turn, tokens: int, is_last_turn: bool
    ) -> Stop | None:
        if turn.action == "answer":
            return "answer"
        if self.method.tokens and tokens >= self.method.tokens:
            return "tokens"
        if not answer.text.strip():
            return "silence"
        return "turns" if is_last_turn else None
