"""Search a fixed corpus with a fixed system, one retrieval per call, and log every call.

Documents are shown under codes, never under their ids. A call is on disk before it is answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import anyio
import anyio.to_thread

from r2med.agents.call_log import AgentCall, CallLog, document_code
from r2med.errors import LimitError, R2MedError, UsageError, first_line
from r2med.evaluation.trial import try_query
from r2med.systems.build import System
from r2med.tasks.task import Task

#: Characters of a search, an answer and the name of a session, and citations of an answer.
LONGEST_QUERY = 10_000
LONGEST_ANSWER = 40_000
LONGEST_SESSION = 200
MOST_CITATIONS = 100
#: Calls that may wait for the one that is running.
_MOST_WAITING = 32
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True)
class FoundPassage:
    """A document as an agent sees it."""

    code: str
    text: str


@dataclass(frozen=True)
class FinalAnswer:
    """The final answer of an agent."""

    text: str
    confidence: float | None = None
    citations: tuple[str, ...] = ()
    tokens: int | None = None
    """Tokens that the agent generated for the query, if the program that runs it counts them."""


class SearchService:
    """Searches one task's corpus with one system; calls run one after the other."""

    def __init__(self, system: System, task: Task, log: CallLog, *, depth: int, paid: bool) -> None:
        self.system = system
        self.task = task
        self.depth = depth
        self._log = log
        self._paid = paid
        self._running = anyio.CapacityLimiter(1)
        self._waiting = 0

    async def search(self, session: str, query: str) -> list[FoundPassage]:
        """Search once for a session; the call is logged before this returns."""
        check_session(session)
        _check_text("query", query, LONGEST_QUERY)
        if self._waiting >= _MOST_WAITING:
            raise LimitError(f"{self._waiting} searches are waiting already. Try again later.")
        self._waiting += 1
        try:
            return await anyio.to_thread.run_sync(
                self._search, session, query, limiter=self._running
            )
        finally:
            self._waiting -= 1

    async def answer(self, session: str, answer: FinalAnswer) -> None:
        """Record the final answer of a session; the last one counts."""
        check_session(session)
        call = AgentCall(
            "answer",
            session,
            answer.text,
            citations=answer.citations,
            confidence=answer.confidence,
            tokens=answer.tokens,
        )
        await anyio.to_thread.run_sync(self._log.append, call)

    def _search(self, session: str, query: str) -> list[FoundPassage]:
        try:
            outcome = try_query(self.system, self.task, query, paid=self._paid, depth=self.depth)
        except R2MedError as problem:
            self._log.append(AgentCall("failed", session, query, problem=first_line(problem)))
            raise
        _, ranking = outcome.stages[-1]
        document_ids = [document_id for document_id, score in ranking if score]
        codes = [document_code(self.task.corpus.hash, name) for name in document_ids]
        self._log.append(AgentCall("search", session, query, tuple(document_ids), tuple(codes)))
        return [
            FoundPassage(code, self.task.document(document_id))
            for code, document_id in zip(codes, document_ids, strict=True)
        ]


def check_session(session: str) -> str:
    """Return the name of a session; raise UsageError if it is too long or not printable."""
    if len(session) > LONGEST_SESSION or not session.isprintable():
        raise UsageError(
            f"session: expected at most {LONGEST_SESSION} printable characters, such as the id of "
            "a query."
        )
    return session


def make_answer(values: Mapping[str, object]) -> FinalAnswer:
    """Check the values of a request and return them as a final answer."""
    return FinalAnswer(
        _check_text("answer", values.get("answer"), LONGEST_ANSWER),
        _check_confidence(values.get("confidence")),
        _check_citations(values.get("citations")),
        _check_tokens(values.get("tokens")),
    )


def _check_confidence(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise UsageError("confidence: expected a number from 0 to 1.")
    return float(value)


def _check_citations(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(code, str) for code in value):
        raise UsageError("citations: expected a list of document codes.")
    if len(value) > MOST_CITATIONS or any(len(code) > LONGEST_SESSION for code in value):
        raise UsageError(
            f"citations: expected at most {MOST_CITATIONS} codes of at most {LONGEST_SESSION} "
            "characters."
        )
    return tuple(value)


def _check_tokens(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
        raise UsageError("tokens: expected a whole number, 0 or more.")
    return value


def _check_text(name: str, value: object, longest: int) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{name}: expected a text that is not empty.")
    if len(value) > longest:
        raise UsageError(f"{name}: {len(value):,} characters, expected at most {longest:,}.")
    if _CONTROL.search(value):
        raise UsageError(f"{name}: expected a text without control characters.")
    return value
