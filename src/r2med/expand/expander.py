"""A method and a model, bound to a task: texts from a file, or from the model itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from r2med.errors import DataError
from r2med.expand.combining import ANSWER_ALONE, Rule
from r2med.expand.expanded import Expanded, Expansion, Sample
from r2med.expand.generations import (
    FILE,
    Generated,
    file_hash,
    fitted,
    read_generations,
    read_traces,
    write_generations,
)
from r2med.expand.interface import BoundExpander, Finder, Finders
from r2med.expand.method import Method
from r2med.expand.outcome import restored
from r2med.expand.prompting import Prompt, called, kind_of, read_prompt
from r2med.expand.source import FileSource, find_file
from r2med.expand.stripping import strip
from r2med.expand.writing import Plan, plan, write
from r2med.home import shelf
from r2med.remote.chat import Chat
from r2med.remote.registry import LLM, find_llm
from r2med.retrieve.conditions import Conditions
from r2med.tasks.task import Task


def build(fields: Mapping[str, object], conditions: Conditions | None = None) -> GenerationExpander:
    """An expander from a registry entry's fields, options applied."""
    return GenerationExpander(Method.read(fields), conditions or Conditions())


@dataclass(frozen=True)
class GenerationExpander:
    """`METHOD:LLM`, not yet bound to a task."""

    method: Method
    conditions: Conditions

    def on(self, task: Task, finders: Finders) -> BoundExpander:
        """Take the file that the method's `generations` names, or the model."""
        method = self.method
        source = find_file(task, method.prompts, method.llm, method.generations)
        return FromFile(task, method, source) if source else self.live(task, finders)

    def live(self, task: Task, finders: Finders) -> FromModel:
        """Bind to the model, whatever files there are."""
        finder = finders(task, self.method.search) if self.method.search else None
        return FromModel(task, self.method, finder, self.conditions)


@dataclass(frozen=True)
class FromFile:
    """Generations that were made before, here or elsewhere."""

    task: Task
    method: Method
    source: FileSource

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The file's content, and how its texts are stripped and combined."""
        return {"generations": file_hash(self.source.path), **_combination(self.method)}

    @cached_property
    def notices(self) -> tuple[str, ...]:
        """Which file is read, when it was taken because it was there; and what does not fit."""
        told = []
        if self.source.by_default:
            told.append(
                f"{self.task.name}: generations of {self.method.prompts} by {self.method.llm} are "
                f"read from {self.source.path}; [generations=live] asks the model instead."
            )
        return (*told, *fitted(self._rows, self.task, self.source.path))

    def expand(self) -> Expansion:
        """Read, strip and combine."""
        path = self.source.path
        fitted(self._rows, self.task, path)
        traces = read_traces(path)
        queries = tuple(
            Expanded(query_id, query, self._samples(query_id), traces.get(query_id, ()))
            for query_id, query in _queries(self.task)
        )
        work = {"generations_from": str(path), "generations_sha256": file_hash(path)}
        return _expansion(queries, self.method, work)

    @cached_property
    def _rows(self) -> dict[str, Generated]:
        return read_generations(self.source.path)

    def _samples(self, query_id: str) -> tuple[Sample, ...]:
        row, wanted = self._rows[query_id], self.method.n
        if len(row.raws) < wanted:
            raise DataError(
                f"{self.source.path}: query {query_id!r} has {len(row.raws)} generations, "
                f"[n={wanted}] asks for more."
            )
        told = dict(enumerate(row.outcomes))
        return tuple(
            restored(raw, answer_in(raw, self.method), told.get(place, "ok"))
            for place, raw in enumerate(row.raws[:wanted])
        )


@dataclass(frozen=True)
class FromModel:
    """Generations that a model makes now, or made before and are kept call by call."""

    task: Task
    method: Method
    finder: Finder | None
    conditions: Conditions
    keep: bool = True
    """Whether finished generations are also written to the shelf, for reading."""
    notices: tuple[str, ...] = ()

    @cached_property
    def prompt(self) -> Prompt:
        """The words of the method for this kind of task."""
        chosen = self.method.kind
        kind = kind_of(self.task.entry) if chosen == "auto" else chosen
        return read_prompt(self.method.prompts, kind, self.conditions.prompts)

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Model, words, samples, what is searched, and how texts are stripped and combined."""
        method = self.method
        identity: dict[str, object] = {
            "llm": dict(self.chat.identity),
            "prompt": self.prompt.hash,
            "asked_about": called(self.task.entry),
            "style": method.style,
            "max_tokens": method.max_tokens,
            **_combination(method),
        }
        if self.finder is not None:
            names = ("passages", "words", "turns", "tokens")
            identity |= {name: getattr(method, name) for name in names}
            identity["search"] = dict(self.finder.identity)
        return identity

    @property
    def chat(self) -> Chat:
        """The model, under the conditions of this run."""
        return self.conditions.remote.chat(self.method.llm)

    def plan(self) -> Plan:
        """What will be asked, before anything is."""
        return plan(self.task, self.method, self.prompt, self.finder)

    def expand(self) -> Expansion:
        """Ask for what is not on disk yet; the texts and traces are also kept for reading."""
        before = self.chat.usage
        written = write(self.plan(), self.chat, self.conditions, self._strip)
        usage = self.chat.usage.since(before)
        queries = tuple(
            Expanded(query_id, query, samples, traces)
            for (query_id, query), (samples, traces) in zip(
                _queries(self.task), written, strict=True
            )
        )
        work: dict[str, object] = {
            "generations_from": "live",
            "calls": usage.calls,
            "reused_calls": usage.cached,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "tokens": usage.prompt_tokens + usage.completion_tokens,
            "money": usage.money,
            "cached_tokens": usage.cached_tokens,
            "cached_seconds": round(usage.cached_seconds, 3),
            "cached_money": usage.cached_money,
        }
        if self.keep:
            write_generations(queries, self.kept)
            work["generations_kept"] = str(self.kept)
        return _expansion(queries, self.method, work)

    @cached_property
    def kept(self) -> Path:
        """Where the finished generations can be read, in the reference layout."""
        told = json.dumps([self.task.hash, self.identity], sort_keys=True, default=str)
        key = hashlib.sha256(told.encode()).hexdigest()[:12]
        llm = self.method.llm.replace("/", "--")
        return shelf("expansions") / self.task.name / self.method.prompts / llm / key / FILE

    def _strip(self, raw: str) -> str:
        return answer_in(raw, self.method)


def answer_in(raw: str, method: Method) -> str:
    """The answer in what a model wrote: by the model's own mark, then by the method's."""
    return strip(strip(raw, _model(method).stripping), method.strip)


def _model(method: Method) -> LLM:
    return find_llm(method.llm, anything=True)


def _rule(method: Method) -> Rule:
    return ANSWER_ALONE if _model(method).reasoning else method.rule


def _combination(method: Method) -> dict[str, object]:
    rule = _rule(method)
    return {
        "lexical": rule.lexical,
        "dense": list(rule.dense),
        "strip": [_model(method).stripping, method.strip],
        "n": method.n,
        "combine": method.combine if method.n > 1 else "average",
    }


def _expansion(
    queries: tuple[Expanded, ...], method: Method, work: Mapping[str, object]
) -> Expansion:
    fuse = method.combine == "fuse" and method.n > 1
    return Expansion(queries, _rule(method), fuse, work)


def _queries(task: Task) -> Iterator[tuple[str, str]]:
    yield from zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True)
