"""Agents that search while they reason: many queries at once, a turn of all of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from r2med.expand.interface import Finder, Passage
from r2med.expand.prompting import Prompt
from r2med.expand.tags import Tags, Turn
from r2med.expand.trace import Step, Stop, Trace
from r2med.remote.chat import ChatAnswer, ChatRequest, Message

#: Turns that ask for nothing readable before an agent has to answer.
_PATIENCE = 2


#: A batch of requests, answered in order.
Ask = Callable[[Sequence[ChatRequest]], Sequence[ChatAnswer]]


@dataclass(frozen=True)
class Budget:
    """What an agent may use."""

    turns: int
    """Searches."""
    tokens: int
    """Completion tokens over all turns; 0 is no limit."""
    passages: int
    """Passages a search."""
    words: int
    """Words a passage."""


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
    find: Finder
    max_tokens: int | None = None

    @property
    def most_turns(self) -> int:
        """Requests that an agent may take at most: its searches, reminders and last words."""
        return self.budget.turns + _PATIENCE + 1

    def run(
        self, openings: Sequence[tuple[str, int]], ask: Ask, *, strip: Callable[[str], str]
    ) -> list[Outing]:
        """Run an agent for each opening request and sample number, in step.

        `strip` finds the answer in a model's last words.
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
        return ChatRequest(
            messages=tuple(agent.messages),
            sample=agent.sample,
            stop=() if agent.last_call and self.tags.bare_answers else self.tags.stop,
            max_tokens=self.max_tokens,
        )

    def _advance(
        self, agent: _Agent, answer: ChatAnswer, strip: Callable[[str], str]
    ) -> str | None:
        """Take a turn into account; the words to search for when it asks for a search."""
        turn = self.tags.read(answer.text)
        stop = self._stop(agent, answer, turn)
        if stop is not None:
            raw = self.tags.answered(answer.text, turn)
            if turn.wish == "answer" and turn.thought:
                agent.steps.append(Step("thought", turn.thought))
            agent.end(raw, strip(raw), answer.finish, stop)
            return None
        if turn.thought:
            agent.steps.append(Step("thought", turn.thought))
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
            agent.steps.append(Step("reminder", self.prompt.says("malformed")))
            agent.say(self.prompt.says("malformed"))

    def _call_last(self, agent: _Agent, before: str = "") -> None:
        last = self.prompt.says("last")
        agent.last_call = True
        agent.steps.append(Step("reminder", last))
        agent.say(f"{before}\n{last}" if before else last)

    def _search(self, searching: Sequence[tuple[_Agent, str]]) -> None:
        """Answer all searches of a turn in one go."""
        if not searching:
            return
        found = self.find([words for _, words in searching], depth=self.budget.passages)
        for (agent, _), passages in zip(searching, found, strict=True):
            told = self.prompt.says("results", passages=self._told(passages))
            ids = tuple(passage.document_id for passage in passages)
            agent.steps.append(Step("passages", told, ids))
            if agent.searches >= self.budget.turns:
                self._call_last(agent, told)
            else:
                agent.say(told)

    def _told(self, passages: Sequence[Passage]) -> str:
        if not passages:
            return self.prompt.says("nothing")
        texts = [passage.text for passage in passages]
        return self.prompt.passages(texts, words=self.budget.words)
