"""Trace sets: the traces of one agent on one task, from any source.

Sources are a trace set stored by `r2med agents import`, a folder of BrowseComp-Plus files, a log of
the search server, generations of our own loops, and a stored system that begins with such a loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from r2med.agents.browsecomp import read_results
from r2med.agents.call_log import is_call_log, log_traces, read_log
from r2med.agents.trace import (
    COMPLETED,
    INCOMPLETE,
    SEARCH_TOOL,
    AgentStep,
    AgentTrace,
    read_confidence,
)
from r2med.errors import DataError, MissingError, UsageError, plural
from r2med.evaluation.explain import StoredPipeline
from r2med.expand.agents import Trace
from r2med.expand.generations import TRACES, read_traces
from r2med.judge.log import Warn
from r2med.paths import user_path
from r2med.results.select import ResultSet
from r2med.tasks.fetch.provenance import GENERATIONS
from r2med.tasks.task import Task

SourceFormat = Literal["browsecomp", "log", "generations", "system"]
#: Documents of the final ranking that count as used by the answer.
FINAL_DEPTH = 10
#: Names that a warning lists.
_LISTED = 3


@dataclass(frozen=True)
class TraceSet:
    """The traces of one agent on one task."""

    name: str
    task: str
    data: str
    """The hash of the task's data."""
    format: SourceFormat
    source: str
    """Where the traces come from: a path, or the spec of a stored system."""
    traces: tuple[AgentTrace, ...]
    problems: tuple[str, ...] = ()
    """Messages about traces that could not be read or do not fit the task."""

    @property
    def query_ids(self) -> frozenset[str]:
        """The queries that have a trace."""
        return frozenset(trace.query_id for trace in self.traces)


def read_source(source: str, task: Task, results: Path, *, warn: Warn) -> TraceSet:
    """Read the traces of a path or of a stored system; warn of traces that are left out.

    Args:
        source: A folder or file of traces, or the spec of a stored system.
        task: The task that the agent worked on.
        results: The folder of stored results.
        warn: Called with each warning.
    """
    path = user_path(source)
    if not path.exists():
        traces = _read_system(source, task, results, warn)
        return _check_traces(source, "system", source, traces, (), task, warn)
    if is_call_log(path):
        return _read_call_log(path, task, warn)
    beside = path / TRACES if path.is_dir() else path.with_name(TRACES)
    if beside.is_file() and (path.is_dir() or path.name in (TRACES, GENERATIONS)):
        loops = read_traces(beside)
        return _check_traces(
            beside.parent.name,
            "generations",
            str(beside),
            from_loops(loops.items()),
            (),
            task,
            warn,
        )
    if not path.is_dir():
        raise UsageError(
            f"{path}: not a source of traces. Expected a folder of BrowseComp-Plus files, a log of "
            f"`r2med serve`, or a {TRACES} of our loops; see docs/agents.md."
        )
    files = read_results(path)
    return _check_traces(
        path.resolve().name, "browsecomp", str(path), files.traces, files.problems, task, warn
    )


def from_loops(loops: Iterable[tuple[str, Sequence[Trace]]]) -> list[AgentTrace]:
    """Convert the traces of our search-o1 and search-r1 loops."""
    return [
        _from_loop(trace, query_id, sample)
        for query_id, traces in loops
        for sample, trace in enumerate(traces)
    ]


def _from_loop(trace: Trace, query_id: str, sample: int) -> AgentTrace:
    steps = list[AgentStep]()
    for step in trace.steps:
        if step.kind == "search":
            steps.append(AgentStep("search", step.text, tool=SEARCH_TOOL))
        elif step.kind == "passages" and steps and steps[-1].type == "search":
            steps[-1] = replace(steps[-1], documents=tuple(dict.fromkeys(step.documents)))
        elif step.kind == "answer":
            steps.append(AgentStep("answer", step.text))
        else:
            steps.append(AgentStep("thought", step.text))
    answer = steps[-1].text if steps and steps[-1].type == "answer" else ""
    return AgentTrace(
        query_id,
        tuple(steps),
        COMPLETED if answer else INCOMPLETE,
        sample,
        confidence=read_confidence(answer),
        tokens=trace.tokens,
    )


def _read_system(spec: str, task: Task, results: Path, warn: Warn) -> list[AgentTrace]:
    """Read the traces of a stored system; `final_list` is the head of the stored run's ranking."""
    ranking = ResultSet.open(results, warn).find_ranking(spec, task, warn)
    expansion = StoredPipeline.of(ranking.result).expansion(task) if ranking.result else None
    traces = [(q.query_id, q.traces) for q in expansion.queries if q.traces] if expansion else []
    if not traces:
        raise MissingError(
            f"{spec}: no traces of an agent are stored for it on {task.name}.\n"
            "Only systems with search-o1 or search-r1 have traces, and they are kept until "
            "`r2med cache clear expansions`; run it again with --force."
        )
    run = ranking.run
    return [
        replace(
            trace,
            final_list=tuple(name for name, _ in run.ranking(trace.query_id)[:FINAL_DEPTH]),
        )
        for trace in from_loops(traces)
    ]


def _read_call_log(path: Path, task: Task, warn: Warn) -> TraceSet:
    log = read_log(path, warn=warn)
    if log.setup.data != task.hash:
        raise UsageError(
            f"{path}: the log was recorded on {log.setup.task}, whose data is not that of "
            f"{task.name}. Choose it with --task."
        )
    traces, unknown = log_traces(log, task)
    problems = []
    if unknown:
        problems.append(
            f"{plural(len(unknown), 'session')} of {path} without a query of {task.name} "
            f"({_list_names(unknown)}). A session is named by the id of its query."
        )
    failed = sum(call.type == "failed" for call in log.calls)
    if failed:
        problems.append(f"{plural(failed, 'call')} of {path} failed; they count as no search.")
    name = path.resolve().name
    return _check_traces(name, "log", str(path), traces, tuple(problems), task, warn)


def _check_traces(
    name: str,
    source_format: SourceFormat,
    source: str,
    traces: Sequence[AgentTrace],
    problems: tuple[str, ...],
    task: Task,
    warn: Warn,
) -> TraceSet:
    """Return the traces of the task's queries as a trace set.

    Warns of traces of other queries, which are left out, and of documents that are not in the
    corpus.
    """
    query_ids = set(task.queries.ids.to_pylist())
    chosen = tuple(trace for trace in traces if trace.query_id in query_ids)
    unknown = [trace.query_id for trace in traces if trace.query_id not in query_ids]
    for problem in problems:
        warn(problem)
    if unknown:
        problem = (
            f"{source}: {plural(len(unknown), 'trace')} of queries that {task.name} does not have "
            f"({_list_names(unknown)}) left out."
        )
        warn(problem)
        problems = (*problems, problem)
    if not chosen:
        raise DataError(f"{source}: no trace of a query of {task.name}.")
    documents = set(task.corpus.document_ids.to_pylist())
    strangers = {name for trace in chosen for name in trace.documents if name not in documents}
    if strangers:
        problem = (
            f"{source}: {plural(len(strangers), 'document')} that the corpus of {task.name} does "
            f"not have ({_list_names(sorted(strangers))}); they count as not relevant."
        )
        warn(problem)
        problems = (*problems, problem)
    return TraceSet(name, task.name, task.hash, source_format, source, chosen, problems)


def _list_names(names: Sequence[str]) -> str:
    listed = ", ".join(repr(name) for name in names[:_LISTED])
    return f"{listed}, ..." if len(names) > _LISTED else listed
