"""Many requests to one model: every answer is kept as it comes, then what is missing is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from r2med.errors import MissingError
from r2med.remote import wire
from r2med.remote.calls import Calls
from r2med.remote.exchange import ChatAnswer, ChatRequest
from r2med.remote.limits import LimitError
from r2med.remote.registry import LLM
from r2med.remote.session import Failure, Reply, Session
from r2med.remote.spending import Spending, prompt_tokens_of


@dataclass(frozen=True)
class ChatProgress:
    """How far a batch of requests has come."""

    done: int
    total: int
    cached: int
    under_way: int
    seconds: float
    completion_tokens: int
    money: float | None

    @property
    def tokens_per_second(self) -> float:
        """New tokens a second over the whole batch."""
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before there is one."""
        made = self.done - self.cached
        return (self.total - self.done) * self.seconds / made if made else None


class Batch:
    """Requests that the disk cannot answer, on their way."""

    def __init__(
        self,
        llm: LLM,
        session: Session,
        calls: Calls,
        spending: Spending,
        wanted: Mapping[str, ChatRequest],
        found: dict[str, ChatAnswer],
        tell: Callable[[ChatProgress], None] | None,
    ) -> None:
        self.llm = llm
        self.session = session
        self.calls = calls
        self.spending = spending
        self.found = found
        self.total = len(wanted)
        self.cached = len(found)
        self.todo = [(key, request) for key, request in wanted.items() if key not in found]
        self.tell = tell
        self.failures: list[Failure] = []
        self.over_limit = False
        self.started = time.monotonic()
        self.new_tokens = 0

    def run(self) -> None:
        """Ask, and keep every answer on disk and in `found` as it comes; fail if one is missing."""
        bodies = [wire.body(self.llm, request) for _, request in self.todo]
        try:
            for outcome in self.session.each(
                wire.PATH, bodies, check=lambda _, value: wire.problem(value), admit=self._admit
            ):
                self._take(outcome)
        finally:
            self.calls.sync()
        if self.over_limit:
            raise LimitError(self._stopped())
        if self.failures:
            raise MissingError(self._failed())

    def _admit(self, place: int) -> bool:
        request = self.todo[place][1]
        new = self.spending.mean_completion(self.llm.expected_tokens)
        new = min(new, request.max_tokens or self.llm.max_tokens or new)
        self.over_limit = not self.spending.begin(id(request), prompt_tokens_of(request), new)
        return not self.over_limit

    def _take(self, outcome: Reply | Failure) -> None:
        key, request = self.todo[outcome.place]
        if isinstance(outcome, Reply):
            about = prompt_tokens_of(request)
            answer = wire.answer(self.llm, outcome.value, outcome.seconds, prompt_tokens=about)
            self.calls.put(key, answer)
            self.found[key] = answer
            self.new_tokens += answer.completion_tokens
            self.spending.end(id(request), answer.prompt_tokens, answer.completion_tokens)
        else:
            self.spending.end(id(request))
            declined = wire.declined(outcome)
            if declined is None:
                self.failures.append(outcome)
            else:
                self.found[key] = declined
        if self.tell is not None:
            self.tell(self._progress())

    def _progress(self) -> ChatProgress:
        return ChatProgress(
            done=len(self.found),
            total=self.total,
            cached=self.cached,
            under_way=self.session.pace.under_way,
            seconds=time.monotonic() - self.started,
            completion_tokens=self.new_tokens,
            money=self.spending.money,
        )

    def _kept(self) -> str:
        return f"{len(self.found):,} of {self.total:,} answers are here and kept"

    def _stopped(self) -> str:
        spending = self.spending
        return (
            f"{self.llm.name}: the next request would pass the limit of {spending.limit()}; "
            f"used: {spending.spent()}.\n{self._kept()}. Raise the limit and run again to go on."
        )

    def _failed(self) -> str:
        first = self.failures[0]
        missing = self.total - len(self.found)
        advice = first.advice(unknown=_unknown(self.llm))
        return (
            f"{self.llm.name} at {self.session.server.url}: {missing:,} of {self.total:,} requests "
            f"have no answer. The first: {first.why}.\n{self._kept()}; {advice}"
        )


def _unknown(llm: LLM) -> str:
    return (
        f"check the server's address (--llm-url or R2MED_LLM_URL) and that it serves "
        f"{llm.model!r}.\nIf it calls the model otherwise, write its name in place of "
        f"{llm.name}, or set model under [{llm.name}] in a file of your own "
        "(R2MED_LLM_CONFIG); see docs/llms.md."
    )
