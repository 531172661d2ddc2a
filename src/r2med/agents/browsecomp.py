"""Read and write the result files of BrowseComp-Plus, one JSON file per query.

A file has `query_id`, `retrieved_docids`, `tool_call_counts`, `status` and `result`, a list of
reasoning, tool calls and output texts; the last output text is the answer. Files written here also
have a field `r2med` with the facts for which BrowseComp-Plus has no field; its own programs ignore
this field.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from r2med.agents.trace import (
    SEARCH_TOOL,
    AgentStep,
    AgentTrace,
    opens_document,
    read_citations,
    read_confidence,
)
from r2med.errors import DamagedError, DataError, R2MedError, plural
from r2med.paths import slug
from r2med.schema import read_values
from r2med.storage import read_bytes, write_file
from r2med.tasks.task import Task

#: Bytes of one file; transcripts of agents take some megabytes.
_LARGEST_FILE = 200_000_000
#: Files that evaluations of BrowseComp-Plus write beside the results.
_EVALUATION = re.compile(r"(?:.*_eval|evaluation_summary)\.json")
_DOCUMENT_ID = re.compile(r"[\"']?doc_?id[\"']?\s*[:=]\s*[\"']?([^\s\"',}\]]+)", re.IGNORECASE)
_QUERY_FIELDS = ("query", "user_query", "queries", "q")


@dataclass(frozen=True)
class ResultItem:
    """One entry of `result`."""

    type: str
    tool_name: str | None = None
    arguments: Any = None
    output: Any = None


@dataclass(frozen=True)
class Extras:
    """The field `r2med`: parts of our traces for which the format has no field."""

    answer: str | None = None
    sample: int = 0
    cited: tuple[str, ...] = ()
    final_list: tuple[str, ...] = ()
    confidence: float | None = None
    tokens: int | None = None


@dataclass(frozen=True)
class ResultFile:
    """The content of one file; other fields are ignored."""

    query_id: str | int
    retrieved_docids: tuple[str | int, ...]
    status: str
    result: tuple[ResultItem, ...]
    tool_call_counts: dict[str, int] = field(default_factory=dict)
    usage: Any = None
    r2med: Extras | None = None


@dataclass(frozen=True)
class ReadFiles:
    """The traces in a folder, and a message for each file that could not be read."""

    traces: tuple[AgentTrace, ...]
    problems: tuple[str, ...]


def read_results(folder: Path) -> ReadFiles:
    """Read all result files of a folder; `problems` names the malformed files, which are left out.

    Several files for one query are samples of that query, in the order of the file names.

    Raises:
        DataError: The folder has no result file, or none can be read.
    """
    paths = [path for path in sorted(folder.glob("*.json")) if not _EVALUATION.fullmatch(path.name)]
    traces, problems, counts = list[AgentTrace](), list[str](), Counter[str]()
    for path in paths:
        try:
            content = _read_file(path)
        except R2MedError as problem:
            problems.append(str(problem))
            continue
        query_id = str(content.query_id)
        traces.append(_to_trace(content, query_id, counts[query_id]))
        counts[query_id] += 1
    if not traces:
        details = f" The first problem is: {problems[0]}" if problems else ""
        raise DataError(
            f"{folder}: {plural(len(paths), 'JSON file')}, of which none is a readable result of "
            f"BrowseComp-Plus.{details}\nEach file has the fields query_id, retrieved_docids, "
            "tool_call_counts, status and result; see docs/agents.md."
        )
    return ReadFiles(tuple(traces), tuple(problems))


def write_results(traces: Sequence[AgentTrace], folder: Path, *, agent: str, task: Task) -> int:
    """Write one file per trace and return the number of files.

    The `snippet` of each document in a file is the text of that document in the task.
    """
    width = len(str(len(traces)))
    for number, trace in enumerate(traces, 1):
        name = f"run_{number:0{width}}_{slug(trace.query_id)}.json"
        content = json.dumps(_to_json(trace, agent, task), indent=2, ensure_ascii=False)
        write_file(folder / name, content + "\n")
    return len(traces)


def _read_file(path: Path) -> ResultFile:
    try:
        values = json.loads(read_bytes(path, limit=_LARGEST_FILE))
    except (ValueError, RecursionError) as problem:
        raise DataError(f"{path}: not JSON ({problem}), expected one object.") from None
    except OSError as problem:
        raise DamagedError(f"{path}: cannot be read ({problem.strerror}).") from None
    return read_values(ResultFile, values, path)


def _to_trace(content: ResultFile, query_id: str, sample: int) -> AgentTrace:
    extras = content.r2med or Extras(sample=sample)
    steps = tuple(_read_steps(content.result))
    listed = {document for step in steps for document in step.documents}
    retrieved = dict.fromkeys(str(document) for document in content.retrieved_docids)
    plain = AgentTrace(query_id, steps)
    is_counted = dict(content.tool_call_counts) == dict(plain.tool_calls)
    answer = plain.answer
    if extras.answer is not None and steps and steps[-1].type == "answer":
        steps = (*steps[:-1], AgentStep("answer", extras.answer))
    seen = [*listed, *retrieved]
    confidence = extras.confidence if content.r2med else read_confidence(answer)
    return AgentTrace(
        query_id,
        steps,
        content.status,
        extras.sample,
        other_documents=tuple(document for document in retrieved if document not in listed),
        stated_calls={} if is_counted else dict(content.tool_call_counts),
        cited=extras.cited if content.r2med else read_citations(answer, seen),
        final_list=extras.final_list,
        confidence=confidence,
        tokens=extras.tokens if content.r2med else _output_tokens(content.usage),
    )


def _read_steps(items: Sequence[ResultItem]) -> Iterator[AgentStep]:
    for index, item in enumerate(items):
        if item.type == "tool_call":
            yield _read_call(item)
        elif item.type == "output_text" and index == len(items) - 1:
            text = _to_text(item.output)
            if text:
                yield AgentStep("answer", text)
        else:
            yield AgentStep("thought", _to_text(item.output))


def _read_call(item: ResultItem) -> AgentStep:
    tool = item.tool_name or SEARCH_TOOL
    documents = tuple(dict.fromkeys(_read_documents(item.output)))
    raw = _to_text(item.arguments)
    if opens_document(tool):
        return AgentStep("tool", raw, documents, tool)
    arguments = _parse_json(item.arguments)
    if isinstance(arguments, dict):
        for name in _QUERY_FIELDS:
            if name in arguments:
                return AgentStep("search", _to_text(arguments[name]), documents, tool)
    return AgentStep("search", raw, documents, tool)


def _read_documents(output: Any) -> Iterator[str]:
    """Yield the document ids in a tool's output: `docid` values in JSON, or ids found in text."""
    value = _parse_json(output)
    if isinstance(value, str):
        yield from _DOCUMENT_ID.findall(value)
        return
    if isinstance(value, dict):
        if "docid" in value:
            yield str(value["docid"])
        for part in value.values():
            if isinstance(part, list | dict):
                yield from _read_documents(part)
    elif isinstance(value, list):
        for part in value:
            yield from _read_documents(part)


def _parse_json(value: Any) -> Any:
    """Return the JSON value of a text; other values and texts that are not JSON are unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False)


def _output_tokens(usage: Any) -> int | None:
    tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
    return tokens if type(tokens) is int else None


def _to_json(trace: AgentTrace, agent: str, task: Task) -> dict[str, object]:
    extras = Extras(
        answer=trace.answer if trace.answer else None,
        sample=trace.sample,
        cited=trace.cited,
        final_list=trace.final_list,
        confidence=trace.confidence,
        tokens=trace.tokens,
    )
    usage = {} if trace.tokens is None else {"usage": {"output_tokens": trace.tokens}}
    return {
        "metadata": {"model": agent, "task": task.name},
        "query_id": trace.query_id,
        "tool_call_counts": dict(trace.tool_calls),
        **usage,
        "status": trace.status,
        "retrieved_docids": list(trace.documents),
        "result": [_step_json(step, trace, task) for step in trace.steps],
        "r2med": asdict(extras),
    }


def _step_json(step: AgentStep, trace: AgentTrace, task: Task) -> dict[str, object]:
    item: dict[str, object] = {"type": "reasoning", "tool_name": None, "arguments": None}
    if step.type == "thought":
        return {**item, "output": step.text}
    if step.type == "answer":
        return {**item, "type": "output_text", "output": _answer_text(trace)}
    arguments = json.dumps({"query": step.text}) if step.type == "search" else step.text
    documents = [
        {"docid": document, "snippet": _document_text(task, document)}
        for document in step.documents
    ]
    return {
        "type": "tool_call",
        "tool_name": step.tool or SEARCH_TOOL,
        "arguments": arguments,
        "output": json.dumps(documents, ensure_ascii=False),
    }


def _answer_text(trace: AgentTrace) -> str:
    """Return the answer, with the citations and the confidence appended that it lacks."""
    text = trace.answer
    stated = read_citations(text, trace.cited)
    missing = [document for document in trace.cited if document not in stated]
    if missing:
        text += "\n\nEvidence: " + " ".join(f"[{document}]" for document in missing)
    if trace.confidence is not None and read_confidence(text) is None:
        text += f"\n\nConfidence: {100 * trace.confidence:.0f}%"
    return text


def _document_text(task: Task, document_id: str) -> str:
    try:
        return task.document(document_id)
    except KeyError:
        return ""
