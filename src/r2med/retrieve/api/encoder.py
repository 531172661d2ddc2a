"""An encoder behind an API: many requests at once, each handed over for keeping as it arrives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError
from r2med.remote.limits import LimitError, Limits
from r2med.remote.server import Server
from r2med.remote.session import Failure, Reply, Session
from r2med.remote.spending import Spending
from r2med.retrieve.api import wire
from r2med.retrieve.api.settings import ApiSettings
from r2med.retrieve.api.wording import ApiInputs, worded
from r2med.retrieve.dense.encoder import Inputs
from r2med.retrieve.dense.form import Form, Side

Rows = NDArray[np.int64]
_UNFIT = (400, 413, 422)
_UNKNOWN = "check the server's address ([url=...]) and the model's name on it ([model=...])."


@dataclass(frozen=True, eq=False)
class ApiEncoder:
    """One side of a model behind an API."""

    settings: ApiSettings
    side: Side
    spending: Spending
    limits: Limits

    @cached_property
    def server(self) -> Server:
        """Where requests go."""
        return self.settings.server()

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Model, server and how texts are put; never a key."""
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
        return worded(texts, form, quoted=settings.quoted, tokenizer=settings.tokenizer)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Vectors of some rows at once, for callers who do not keep them as they arrive."""
        ready = cast("ApiInputs", inputs)
        chosen = ApiInputs(
            [ready.sent[row] for row in rows], ready.tokens[rows], ready.truncated[rows]
        )
        parts = list(self.stream(chosen))
        matrix = np.concatenate([vectors for _, vectors in parts])
        return matrix[np.argsort(np.concatenate([batch for batch, _ in parts]))]

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        """Rows with their vectors, request by request, as they arrive.

        A request that the server finds too large is cut in half; what is under way when one
        fails for good, or a limit is met, still arrives and is handed over before the error.
        """
        ready = cast("ApiInputs", inputs)
        session = Session(self.server, self.limits)
        try:
            waiting = self.planned(ready)
            while waiting:
                round_ = _Round(self, ready, waiting)
                yield from round_.run(session)
                waiting = round_.halves
        finally:
            session.close()

    def facts(self) -> Mapping[str, object]:
        """What was sent where, and what it cost in this process, both sides together."""
        return {
            "backend": "api",
            "model": self.settings.model,
            "url": self.server.url,
            "calls": self.spending.calls,
            "billed_tokens": self.spending.prompt_tokens,
            "money": self.spending.money,
        }

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


class _Round:
    """Requests on their way; those that proved too large are left over in halves."""

    def __init__(self, encoder: ApiEncoder, inputs: ApiInputs, batches: Sequence[Rows]) -> None:
        self.encoder = encoder
        self.inputs = inputs
        self.batches = batches
        self.halves: list[Rows] = []
        self.failures: list[Failure] = []
        self.over_limit = False
        self.read: dict[int, NDArray[np.float32]] = {}

    def run(self, session: Session) -> Iterator[tuple[Rows, NDArray[np.float32]]]:
        settings, side = self.encoder.settings, self.encoder.side
        bodies = [wire.body(settings, side, self._texts(batch)) for batch in self.batches]
        spending = self.encoder.spending
        for outcome in session.each(wire.PATH, bodies, check=self._check, admit=self._admit):
            batch = self.batches[outcome.place]
            if isinstance(outcome, Reply):
                spending.end(id(batch), wire.billed(outcome.value, self._texts(batch)))
                yield batch, self.read.pop(outcome.place)
            else:
                spending.end(id(batch))
                self._failed(outcome, batch)
        if self.over_limit:
            raise LimitError(
                f"{settings.model}: the next request would pass the limit of {spending.limit()}; "
                f"used: {spending.spent()}.\nEvery vector that arrived is kept. Raise the limit "
                "and run again to go on."
            )
        if self.failures:
            raise self._error()

    def _check(self, place: int, value: dict[str, Any]) -> str | None:
        """Read the vectors at once, so that an answer which cannot be read is asked for again."""
        try:
            self.read[place] = wire.vectors(value, len(self.batches[place]))
        except ValueError as problem:
            return str(problem)
        return None

    def _admit(self, place: int) -> bool:
        batch = self.batches[place]
        tokens = int(self.inputs.tokens[batch].sum())
        self.over_limit = not self.encoder.spending.begin(id(batch), tokens, 0)
        return not self.over_limit

    def _failed(self, failure: Failure, batch: Rows) -> None:
        if failure.status in _UNFIT and len(batch) > 1:
            self.halves.extend(np.array_split(batch, 2))
        else:
            self.failures.append(failure)

    def _error(self) -> Exception:
        first = self.failures[0]
        texts = self._texts(self.batches[first.place])
        where = f"{self.encoder.settings.model} at {self.encoder.server.url}"
        if first.status in _UNFIT:
            return DataError(
                f"{where} does not take a text: {first.why}.\nThe text begins {texts[0][:80]!r}. "
                "Every vector that arrived is kept."
            )
        return MissingError(
            f"{where}: {len(self.failures):,} of {len(self.batches):,} requests failed. "
            f"The first: {first.why}.\nEvery vector that arrived is kept; "
            + first.advice(unknown=_UNKNOWN)
        )

    def _texts(self, batch: Rows) -> list[str]:
        return [self.inputs.sent[row] for row in batch.tolist()]
