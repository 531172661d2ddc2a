"""Asking a model for everything a task needs: requests are planned first, then made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from r2med.expand.agent import Budget, Loop
from r2med.expand.direct import openings
from r2med.expand.expanded import Sample
from r2med.expand.interface import Finder
from r2med.expand.method import Method
from r2med.expand.outcome import judged
from r2med.expand.prompting import Prompt
from r2med.expand.tags import SEARCH_O1, SEARCH_R1, Tags
from r2med.expand.trace import Trace
from r2med.remote.chat import Chat, ChatAnswer, ChatProgress, ChatRequest, Message
from r2med.retrieve.conditions import Conditions, Progress
from r2med.tasks.task import Task

Value = TypeVar("Value")
Written = tuple[tuple[Sample, ...], tuple[Trace, ...]]

_TAGS: dict[str, Tags] = {"search-o1": SEARCH_O1, "search-r1": SEARCH_R1}


@dataclass(frozen=True)
class Plan:
    """The opening request of every query, and the loop that an agent goes on in."""

    openings: tuple[str, ...]
    method: Method
    loop: Loop | None

    @property
    def requests(self) -> tuple[ChatRequest, ...]:
        """The first request for every query and sample, sample by sample."""
        return tuple(
            ChatRequest(
                messages=(Message("user", text),),
                sample=sample,
                stop=self.loop.tags.stop if self.loop else (),
                max_tokens=self.method.max_tokens or None,
            )
            for sample in range(self.method.n)
            for text in self.openings
        )

    @property
    def most_turns(self) -> int:
        """Requests that one sample may take at most."""
        return self.loop.most_turns if self.loop else 1


def plan(task: Task, method: Method, prompt: Prompt, finder: Finder | None) -> Plan:
    """Word the requests; a method that reads before it writes searches now."""
    asked = tuple(openings(task, method, prompt, finder))
    if finder is None or not method.agent:
        return Plan(asked, method, None)
    budget = Budget(method.turns, method.tokens, method.passages, method.words)
    tags = _TAGS[method.style]
    return Plan(asked, method, Loop(tags, prompt, budget, finder, method.max_tokens or None))


def write(
    plan: Plan, chat: Chat, conditions: Conditions, strip: Callable[[str], str]
) -> list[Written]:
    """For every query its samples, and its traces where an agent wrote them."""
    tell = _teller(plan, conditions)
    if plan.loop is None:
        answers = chat.complete(plan.requests, tell=tell)
        samples = [judged(a.text, strip(a.text), a.finish) for a in answers]
        return [(own, ()) for own in _by_query(samples, plan)]

    def ask(requests: Sequence[ChatRequest]) -> Sequence[ChatAnswer]:
        return chat.complete(requests, tell=tell)

    starts = [(text, sample) for sample in range(plan.method.n) for text in plan.openings]
    outings = plan.loop.run(starts, ask, strip=strip)
    samples = [judged(outing.raw, outing.answer, outing.finish) for outing in outings]
    traces = [outing.trace for outing in outings]
    return list(zip(_by_query(samples, plan), _by_query(traces, plan), strict=True))


def _teller(plan: Plan, conditions: Conditions) -> Callable[[ChatProgress], None]:
    """Passes on how far a batch has come, with what it used so far."""

    def tell(told: ChatProgress) -> None:
        cost = "" if not told.money else f" · ${told.money:,.2f}"
        what = f"asking {plan.method.llm} · {told.tokens_per_second:,.0f} tokens/s{cost}"
        conditions.progress(Progress(what, told.done, told.total, told.seconds))

    return tell


def _by_query(values: Sequence[Value], plan: Plan) -> list[tuple[Value, ...]]:
    """From sample by sample to query by query."""
    count = len(plan.openings)
    return [tuple(values[place::count]) for place in range(count)]
