"""From an entry's fields to a retriever on an API encoder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from r2med.remote.limits import Limits
from r2med.remote.spending import Estimate, Spending
from r2med.retrieve.api.encoder import ApiEncoder
from r2med.retrieve.api.settings import ApiSettings
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.encoder import Encoder
from r2med.retrieve.dense.form import Form, Side
from r2med.retrieve.dense.index import Search
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.retrieve.dense.wording import wording_of
from r2med.tasks.task import Task

_SIDES: tuple[Side, Side] = ("query", "document")


@dataclass(frozen=True)
class ApiRetriever(DenseRetriever):
    """A dense retriever that can say beforehand what it would cost."""

    spending: Spending | None = None

    def estimate(self, task: Task) -> Estimate:
        """What a task would use: texts in the store are free, tokens are approximate."""
        calls = held = tokens = 0
        for side in _SIDES:
            missing, known = self._missing(task, side)
            encoder = cast("ApiEncoder", self.encoders[side])
            inputs = encoder.inputs(missing, self.form(task, side))
            calls += len(encoder.planned(inputs))
            held += known
            tokens += int(inputs.tokens.sum())
        price = self.spending.price if self.spending else None
        return Estimate(
            calls=calls,
            cached=held,
            prompt_tokens=tokens,
            completion_tokens=0,
            money=price.of(tokens) if price else None,
            basis="4 characters a token; long texts are counted",
        )

    def _missing(self, task: Task, side: Side) -> tuple[list[str], int]:
        """The distinct texts of a side that the store lacks, and how many it has."""
        column = task.queries.texts
        if side == "document":
            column = task.corpus.texts.take(pa.array(task.corpus.last_rows))
        distinct = list(dict.fromkeys(column.fill_null("").to_pylist()))
        places = self._shelf(self.encoders[side]).find(self.form(task, side).addresses(distinct))
        missing = [text for text, place in zip(distinct, places, strict=True) if place < 0]
        return missing, len(distinct) - len(missing)


def build(fields: Mapping[str, object], conditions: Conditions) -> ApiRetriever:
    """A retriever as its entry describes it; no server is asked and no key is read yet."""
    settings = ApiSettings.read(fields)
    limits = conditions.limits or Limits.from_environment()
    spending = Spending(settings.known_price(), limits, name=settings.model)
    return ApiRetriever(
        name=settings.model,
        make=lambda: _encoders(settings, spending, limits),
        form=lambda task, side: _form(settings, task, side),
        told={"max_length": settings.max_length},
        search=Search(settings.similarity, settings.dimensions),
        storage=settings.storage,
        conditions=conditions,
        spending=spending,
    )


def _encoders(settings: ApiSettings, spending: Spending, limits: Limits) -> tuple[Encoder, Encoder]:
    query, document = (ApiEncoder(settings, side, spending, limits) for side in _SIDES)
    return (query, document) if query.identity != document.identity else (document, document)


def _form(settings: ApiSettings, task: Task, side: Side) -> Form:
    template = settings.query_instruction if side == "query" else settings.document_instruction
    instruction = wording_of(task, kind="", purpose="").apply(template) if template else ""
    return Form(instruction=instruction, max_length=settings.max_length)
