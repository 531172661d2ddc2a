"""An encoder behind an API: many requests at once, each handed over for keeping as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, UsageError
from r2med.remote.budget import Budget, Cost, Estimate, Tokens, most_tokens_of
from r2med.remote.requests import Failure, Job, Reply, Session
from r2med.remote.server import Server
from r2med.retrieve.api import wire
from r2med.retrieve.api.settings import ApiSettings
from r2med.retrieve.api.wire import ApiInputs
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import SIDES, Encoded, Encoder, Form, Inputs, Side
from r2med.retrieve.dense.retriever import DenseRetriever, Search
from r2med.retrieve.dense.settings import worded
from r2med.tasks.task import Task

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
_UNFIT = (400, 413, 422)
_UNKNOWN = "check the server's address ([url=...]) and the model's name on it ([model=...])."
#: Tokens that a tokenizer may add to a text of its own accord.
_SPARE = 8


def build(settings: ApiSettings, conditions: Conditions) -> ApiRetriever:
    """A retriever as its entry describes it; no server is asked and no key is read yet."""
    if settings.max_length and not settings.tokenizer:
        raise UsageError(
            f"max_length={settings.max_length} needs a tokenizer to count with, as in "
            "[tokenizer=tiktoken:cl100k_base]."
        )
    budget = conditions.remote.budget
    budget.check_price(settings.known_price(), settings.model)
    bill = Bill()

    def encoders() -> tuple[Encoder, Encoder]:
        query, document = (ApiEncoder(settings, side, budget, bill) for side in SIDES)
        return (query, document) if query.identity != document.identity else (document, document)

    def form(task: Task, side: Side) -> Form:
        template = settings.query_instruction if side == "query" else settings.document_instruction
        return Form(instruction=worded(template, task), max_length=settings.max_length)

    return ApiRetriever(
        name=settings.model,
        make=encoders,
        form=form,
        search=Search(settings.similarity, settings.dimensions),
        storage=settings.storage,
        conditions=conditions,
    )


@dataclass(frozen=True)
class ApiRetriever(DenseRetriever):
    """A dense retriever that can say beforehand what it would cost."""

    def encode(
        self,
        task: Task,
        side: Side,
        texts: Sequence[str],
        name: Callable[[int], str] | None = None,
        *,
        instructed: bool = True,
    ) -> Encoded:
        """As any dense retriever's; what the server billed for it stands in the facts."""
        encoder = cast("ApiEncoder", self.encoders[side])
        before = replace(encoder.bill)
        encoded = super().encode(task, side, texts, name, instructed=instructed)
        tokens, price = encoder.bill.tokens - before.tokens, encoder.settings.known_price()
        bill = {
            "calls": encoder.bill.calls - before.calls,
            "billed_tokens": tokens,
            "money": price.of(tokens) if price else None,
        }
        return replace(encoded, facts={**encoded.facts, **bill})

    def estimate(self, task: Task, queries: Sequence[str] | None = None) -> Estimate:
        """What a task would use: texts in the store are free, tokens are approximate.

        `queries` are the texts to search with, where they are not the task's own.
        """
        calls = held = tokens = most = 0
        encoder = cast("ApiEncoder", self.encoders["document"])
        corpus = task.corpus.texts.take(pa.array(task.corpus.last_rows))
        texts = {"query": task.queries.texts.to_pylist() if queries is None else queries}
        texts["document"] = corpus.fill_null("").to_pylist()
        for side in SIDES:
            missing, known = self._missing(task, side, texts[side])
            inputs = encoder.inputs(missing, self.form(task, side))
            calls += len(encoder.planned(inputs))
            held += known
            tokens += int(inputs.tokens.sum())
            most += sum(most_tokens_of(text) + _SPARE for text in inputs.sent)
        price = encoder.settings.known_price()
        estimate = Estimate(
            calls=calls,
            cached=held,
            prompt_tokens=tokens,
            completion_tokens=0,
            money=price.of(tokens) if price else None,
            basis=f"4 characters per token; long texts are counted{encoder.settings.priced}",
        )
        return estimate.at_most(Tokens(most), price)

    def estimate_generated(self, count: int, tokens: int, most: int | None) -> Estimate:
        """What so many texts would use that a model has not written yet."""
        settings = cast("ApiEncoder", self.encoders["query"]).settings
        price, limit = settings.known_price(), settings.max_length
        expected = count * (min(tokens, limit) if limit else tokens)
        estimate = Estimate(
            calls=-(-count // settings.most_texts),
            cached=0,
            prompt_tokens=expected,
            completion_tokens=0,
            money=price.of(expected) if price else None,
            basis="texts as long as the model's answers are expected to be",
        )
        longest = limit or most
        return estimate.at_most(None if longest is None else Tokens(count * longest), price)

    def _missing(self, task: Task, side: Side, texts: Sequence[str]) -> tuple[list[str], int]:
        """The distinct texts of a side that the store lacks, and how many it has."""
        distinct = list(dict.fromkeys(texts))
        places = self.shelf(self.encoders[side]).find(self.form(task, side).addresses(distinct))
        missing = [text for text, place in zip(distinct, places, strict=True) if place < 0]
        return missing, len(distinct) - len(missing)


@dataclass
class Bill:
    """What a model's encoders were billed in this process, both sides together."""

    calls: int = 0
    tokens: int = 0


@dataclass(frozen=True, eq=False)
class ApiEncoder:
    """One side of a model behind an API."""

    settings: ApiSettings
    side: Side
    budget: Budget
    bill: Bill = field(default_factory=Bill)

    @cached_property
    def server(self) -> Server:
        """Where requests go."""
        return self.settings.server()

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """What decides a vector besides form and text: vectors are stored by it; never a key."""
        return {
            "engine": "api",
            "model": self.settings.model,
            "url": self.server.url,
            "input_type": self.settings.input_type(self.side),
            "output_dimensions": self.settings.output_dimensions,
            "quoted": self.settings.quoted,
            "tokenizer": self.settings.tokenizer if self.settings.max_length else "",
        }

    def inputs(self, texts: Sequence[str], form: Form) -> ApiInputs:
        """The texts as they are sent."""
        settings = self.settings
        return wire.worded(texts, form, quoted=settings.quoted, tokenizer=settings.tokenizer)

    def encode(self, inputs: Inputs, rows: Rows) -> Vectors:
        """Vectors of some rows at once, for callers who do not keep them as they arrive."""
        ready = cast("ApiInputs", inputs)
        chosen = ApiInputs(
            [ready.sent[row] for row in rows], ready.tokens[rows], ready.truncated[rows]
        )
        parts = list(self.stream(chosen))
        matrix = np.concatenate([vectors for _, vectors in parts])
        return matrix[np.argsort(np.concatenate([batch for batch, _ in parts]))]

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, Vectors]]:
        """Rows with their vectors, request by request, as they arrive.

        A request that the server finds too large is cut in half; what is under way when one
        fails for good, or a limit is met, still arrives and is handed over before the error.
        """
        ready = cast("ApiInputs", inputs)
        settings, price = self.settings, self.settings.known_price()
        session = Session(self.server, self.budget, name=settings.model, price=price)
        try:
            waiting = self.planned(ready)
            jobs = [self._job(ready, batch) for batch in waiting]
            most = [Cost.of(job.most, price) for job in jobs]
            smaller = "a request hold fewer texts ([most_texts=...])"
            self.budget.check_one(most, settings.model, smaller=smaller)
            while waiting:
                halves: list[Rows] = []
                yield from self._round(session, ready, waiting, halves)
                waiting = halves
        finally:
            session.close()

    def facts(self) -> Mapping[str, object]:
        """What was sent where."""
        return {"backend": "api", "model": self.settings.model, "url": self.server.url}

    def planned(self, inputs: ApiInputs) -> list[Rows]:
        """Requests within the limits of texts and tokens, texts of like length together."""
        batches: list[list[int]] = []
        weight = 0
        for row in np.argsort(-inputs.tokens, kind="stable").tolist():
            tokens = int(inputs.tokens[row])
            full = batches and len(batches[-1]) >= self.settings.most_texts
            if not batches or full or weight + tokens > self.settings.most_tokens:
                batches.append([])
                weight = 0
            batches[-1].append(row)
            weight += tokens
        return [np.array(batch, dtype=np.int64) for batch in batches]

    def _job(self, inputs: ApiInputs, batch: Rows) -> Job:
        texts = inputs.texts(batch)
        most = sum(most_tokens_of(text) + _SPARE for text in texts)
        return Job(wire.body(self.settings, self.side, texts), Tokens(most))

    def _round(
        self, session: Session, inputs: ApiInputs, batches: Sequence[Rows], halves: list[Rows]
    ) -> Iterator[tuple[Rows, Vectors]]:
        """Ask for some batches; those that proved too large are left in `halves`."""

        def read(place: int, value: dict[str, Any], _: float) -> tuple[Vectors, int]:
            texts = inputs.texts(batches[place])
            return wire.vectors(value, len(texts)), wire.billed(value, texts)

        failures: list[Failure] = []
        jobs = [self._job(inputs, batch) for batch in batches]
        for outcome in session.each(wire.PATH, jobs, read):
            batch = batches[outcome.place]
            if isinstance(outcome, Reply):
                vectors, billed = outcome.value
                self.bill.calls += 1
                self.bill.tokens += billed
                yield batch, vectors
            elif outcome.status in _UNFIT and len(batch) > 1:
                halves.extend(np.array_split(batch, 2))
            else:
                failures.append(outcome)
        if failures:
            raise self._error(failures, inputs, batches)

    def _error(
        self, failures: Sequence[Failure], inputs: ApiInputs, batches: Sequence[Rows]
    ) -> Exception:
        first = failures[0]
        where = f"{self.settings.model} at {self.server.url}"
        if first.status in _UNFIT:
            begins = inputs.texts(batches[first.place])[0][:80]
            return DataError(
                f"{where} does not take a text: {first.why}.\nThe text begins {begins!r}. "
                "Every vector that arrived is kept."
            )
        return MissingError(
            f"{where}: {len(failures):,} of {len(batches):,} requests failed. "
            f"The first: {first.why}.\nEvery vector that arrived is kept; "
            + first.advice(unknown=_UNKNOWN)
        )
