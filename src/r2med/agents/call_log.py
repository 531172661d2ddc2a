"""The log of the search server: which agent searched for what, and which documents it was shown.

Agents see opaque codes instead of document ids, because ids of R2MED name the query that a document
belongs to. The log has codes and ids. Every record is on disk before the agent gets its answer.
"""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from r2med.agents.trace import (
    COMPLETED,
    INCOMPLETE,
    SEARCH_TOOL,
    AgentStep,
    AgentTrace,
    read_citations,
    read_confidence,
)
from r2med.errors import UsageError
from r2med.judge.log import RecordLog, Warn
from r2med.schema import read_values
from r2med.tasks.task import Task

SUFFIX = ".calls"
#: Characters of a document's code.
_CODE_LENGTH = 8
_CODE = re.compile(rf"\b[a-z2-7]{{{_CODE_LENGTH}}}\b")
_SAMPLE = re.compile(r"(.+)#(\d{1,4})")

CallType = Literal["search", "failed", "answer"]


@dataclass(frozen=True)
class LogSetup:
    """The task, system and search depth that all calls of a log share."""

    task: str
    data: str
    """The hash of the task's data."""
    system: str
    depth: int
    """Number of documents that a search returns."""


@dataclass(frozen=True)
class AgentCall:
    """One call of an agent."""

    type: CallType
    session: str
    text: str
    """The search query, or the answer."""
    documents: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    """The code under which each of `documents` was shown."""
    citations: tuple[str, ...] = ()
    """Codes that an answer cites."""
    confidence: float | None = None
    tokens: int | None = None
    """Tokens that the agent generated, if the program that runs it counts them."""
    problem: str = ""
    """Why a call failed."""


class CallLog:
    """A call log that is open for writing; threads may share it."""

    def __init__(self, folder: Path, setup: LogSetup, *, warn: Warn) -> None:
        self.folder = folder
        self._log = RecordLog(folder, SUFFIX, content="log of calls", warn=warn)
        self._lock = threading.Lock()
        _check_setup(folder, setup, self._log.read())
        self._append({"type": "start", **asdict(setup)})

    def append(self, call: AgentCall) -> None:
        """Write a call and flush it to disk."""
        self._append(asdict(call))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._log.close()

    def _append(self, record: Mapping[str, Any]) -> None:
        with self._lock:
            self._log.append([record])


@dataclass(frozen=True)
class ReadLog:
    """The content of a call log."""

    setup: LogSetup
    calls: tuple[AgentCall, ...]


def is_call_log(folder: Path) -> bool:
    """Whether a folder is a log of the search server."""
    return folder.is_dir() and any(folder.glob(f"*{SUFFIX}"))


def read_log(folder: Path, *, warn: Warn) -> ReadLog:
    """Read a call log; damaged lines are left out, with a warning."""
    records = RecordLog(folder, SUFFIX, content="log of calls", warn=warn).read()
    setups = [
        read_values(LogSetup, record, folder) for record in records if record.get("type") == "start"
    ]
    if not setups:
        raise UsageError(
            f"{folder}: the log does not say which task and system it was recorded with, so its "
            "first line is missing or damaged."
        )
    calls = tuple(
        read_values(AgentCall, record, folder)
        for record in records
        if record.get("type") != "start"
    )
    return ReadLog(setups[0], calls)


def log_traces(log: ReadLog, task: Task) -> tuple[list[AgentTrace], list[str]]:
    """Return one trace per session, and the sessions that do not name a query of the task.

    A session is named `ID` after its query, or `ID#2` if it is the second run on query `ID`. If a
    session has several answers, the last one counts.
    """
    query_ids = set(task.queries.ids.to_pylist())
    sessions: dict[str, list[AgentCall]] = {}
    for call in log.calls:
        sessions.setdefault(call.session, []).append(call)
    traces, unknown = [], []
    for session, calls in sessions.items():
        query_id, sample = _split_session(session, query_ids)
        if query_id is None:
            unknown.append(session)
        else:
            traces.append(_session_trace(calls, query_id, sample))
    return sorted(traces, key=lambda trace: (trace.query_id, trace.sample)), unknown


def document_code(corpus_hash: str, document_id: str) -> str:
    """Return the code under which agents see a document; it is the same in every session."""
    digest = hashlib.sha256(f"{corpus_hash}/{document_id}".encode()).digest()
    return base64.b32encode(digest).decode()[:_CODE_LENGTH].lower()


def _session_trace(calls: Sequence[AgentCall], query_id: str, sample: int) -> AgentTrace:
    searches = [call for call in calls if call.type == "search"]
    answers = [call for call in calls if call.type == "answer"]
    ids = {
        code: document
        for call in searches
        for code, document in zip(call.codes, call.documents, strict=True)
    }
    steps = [AgentStep("search", call.text, call.documents, SEARCH_TOOL) for call in searches]
    if not answers:
        return AgentTrace(query_id, tuple(steps), INCOMPLETE, sample)
    last = answers[-1]
    cited = [*last.citations, *read_citations(last.text, tuple(ids))]
    text = _CODE.sub(lambda word: ids.get(word[0], word[0]), last.text)
    confidence = last.confidence if last.confidence is not None else read_confidence(last.text)
    return AgentTrace(
        query_id,
        (*steps, AgentStep("answer", text)),
        COMPLETED,
        sample,
        cited=tuple(dict.fromkeys(ids[code] for code in cited if code in ids)),
        confidence=confidence,
        tokens=last.tokens,
    )


def _split_session(session: str, query_ids: set[str]) -> tuple[str | None, int]:
    if session in query_ids:
        return session, 0
    numbered = _SAMPLE.fullmatch(session)
    if numbered and numbered[1] in query_ids and int(numbered[2]) > 0:
        return numbered[1], int(numbered[2]) - 1
    return None, 0


def _check_setup(folder: Path, setup: LogSetup, records: Sequence[Mapping[str, Any]]) -> None:
    """Raise UsageError if the log was started with another task, system or search depth."""
    for record in records:
        if record.get("type") != "start":
            continue
        earlier = read_values(LogSetup, record, folder)
        different = list(_differences(earlier, setup))
        if different:
            raise UsageError(
                f"{folder}: the log was recorded with another {' and '.join(different)}.\n"
                "A log has one setup. Choose another folder with --log."
            )


def _differences(earlier: LogSetup, setup: LogSetup) -> Iterator[str]:
    if earlier.data != setup.data:
        yield f"task ({earlier.task})" if earlier.task != setup.task else "version of the task"
    if earlier.system != setup.system:
        yield f"system ({earlier.system})"
    if earlier.depth != setup.depth:
        yield f"number of documents (--per-search {earlier.depth})"
