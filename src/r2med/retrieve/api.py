"""An encoder behind an API: many requests at once, each handed over for keeping as it arrives.

Texts are cut at a number of tokens and quoted where the published runs did so; the JSON is what
OpenAI-compatible servers and Voyage share.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import DataError, MissingError, UsageError
from r2med.execution.resources import Resources
from r2med.models.embedding_cache import Storage
from r2med.models.encoding import SIDES, Encoder, Form, Inputs, Side, TextInputs
from r2med.remote.budget import (
    Budget,
    Price,
    RequestEstimate,
    Tokens,
    count_most_tokens,
    estimate_tokens,
)
from r2med.remote.requests import (
    ApiRequest,
    RequestFailure,
    RequestTimes,
    Session,
    read_token_usage,
)
from r2med.remote.server import Server, find_server
from r2med.retrieve.dense.retriever import DenseRetriever, Similarity, word_instruction
from r2med.settings import read_packaged_toml, setting
from r2med.tasks.task import Task

Rows = NDArray[np.int64]
Vectors = NDArray[np.float32]
#: From a text and a number of tokens: the text's own count, and its beginning of that many.
Cut = Callable[[str, int], tuple[int, str]]

#: Keys that belong to one vendor's address.
_OWN_KEYS: Mapping[str, str] = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "VOYAGE_API_KEY": "https://api.voyageai.com/v1",
}
#: Answers of a server to which a request is too large, or a text is not fit.
_UNFIT = (400, 413, 422)
_UNKNOWN = "check the server's address ([url=...]) and the model's name on it ([model=...])."
#: Tokens that a tokenizer may add to a text of its own accord. A token is a byte at least, so a
#: text of fewer bytes than a limit less these needs no tokenizer.
_SPARE = 8


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """The settings of an entry of the api backend; api.toml documents each field."""

    model: str
    url: str = setting(identity="content")
    server: Literal["url", "any"]
    key_env: str = setting(identity="none")
    query_input_type: str
    document_input_type: str
    output_dimensions: int = setting(least=0)
    encoding_format: Literal["base64", "float"] = setting(identity="none")
    quoted: bool
    tokenizer: str
    max_length: int = setting(least=0)
    most_texts: int = setting(identity="none", least=1)
    most_tokens: int = setting(identity="none", least=1)
    query_instruction: str
    document_instruction: str
    price: float = setting(identity="none")
    similarity: Similarity
    storage: Storage
    dimensions: int = setting(least=0)

    def input_type(self, side: Side) -> str:
        """What the server is told about a side; empty is nothing."""
        return self.query_input_type if side == "query" else self.document_input_type

    def known_price(self) -> Price | None:
        """Dollars per million tokens: as set, else as listed for this very model; else None."""
        if self.price >= 0:
            return Price(self.price)
        listed = self._listed_price()
        return Price(listed["price"]) if listed else None

    def price_basis(self) -> str:
        """The date and source of a listed price; empty where it was set or is not known."""
        listed = self._listed_price() if self.price < 0 else None
        return f"price of {listed['date']} ({listed['source']})" if listed else ""

    def _listed_price(self) -> Mapping[str, Any] | None:
        listed = read_packaged_toml("retrieve/api_prices.toml").get(self.model)
        return listed if listed and listed["key_env"] == self.key_env else None


def build(settings: ApiSettings, resources: Resources) -> ApiRetriever:
    """A retriever as its entry describes it; no server is asked and no key is read yet."""
    if not settings.model:
        raise UsageError("api: which model? As in api:MODEL[url=http://localhost:8000/v1].")
    if settings.max_length and not settings.tokenizer:
        raise UsageError(
            f"max_length={settings.max_length} needs a tokenizer to count with, as in "
            "[tokenizer=tiktoken:cl100k_base]."
        )
    budget = resources.remote.budget
    budget.check_price(settings.known_price(), settings.model)

    def encoders() -> tuple[Encoder, Encoder]:
        query, document = (ApiEncoder(settings, side, budget) for side in SIDES)
        return (query, document) if query.identity != document.identity else (document, document)

    def form(task: Task, side: Side) -> Form:
        instruction = word_instruction(getattr(settings, f"{side}_instruction"), task)
        return Form(instruction, settings.max_length)

    return ApiRetriever(
        name=settings.model,
        make=encoders,
        form=form,
        similarity=settings.similarity,
        dimensions=settings.dimensions,
        storage=settings.storage,
        resources=resources,
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True)
class ApiRetriever(DenseRetriever):
    """A dense retriever that can say beforehand what it would cost."""

    settings: ApiSettings

    def estimate(self, task: Task, queries: Sequence[str] | None = None) -> RequestEstimate:
        """What a task would use: texts in the store are free, tokens are approximate.

        `queries` are the texts to search with, where they are not the task's own.
        """
        calls = held = tokens = 0
        settings, encoder = self.settings, cast("ApiEncoder", self.encoders["document"])
        asked = task.queries.texts.to_pylist() if queries is None else queries
        for side, texts in zip(SIDES, (asked, task.corpus.document_texts()), strict=True):
            form, distinct = self.form(task, side), list(dict.fromkeys(texts))
            indexes = self.cache(side).find(form.addresses(distinct))
            missing = [text for text, index in zip(distinct, indexes, strict=True) if index < 0]
            inputs = encoder.inputs(missing, form)
            calls += len(encoder.planned(inputs))
            held += len(distinct) - len(missing)
            tokens += int(inputs.tokens.sum())
        basis, price = "4 characters per token; long texts are counted", settings.known_price()
        if settings.price_basis():
            basis += f"; {settings.price_basis()}"
        return RequestEstimate(held, calls, tokens, 0, price.of(tokens) if price else None, basis)


@dataclass(eq=False)
class ApiEncoder:
    """One side of a model behind an API, with what it was billed."""

    settings: ApiSettings
    side: Side
    budget: Budget
    calls: int = 0
    tokens: int = 0

    @cached_property
    def server(self) -> Server:
        """Where requests go; R2MED_EMBED_URL takes the place of the entry's own address.

        A key of the entry's own goes to the address it belongs to and nowhere else.
        """
        settings = self.settings
        own = _OWN_KEYS.get(settings.key_env, "")
        return find_server(
            settings.model,
            entry_url=own,
            entry_key_env=settings.key_env,
            environment="R2MED_EMBED",
            option="[url=...]",
            url=None if settings.url == own else settings.url,
            key_env="" if own else settings.key_env,
        )

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """What decides a vector besides form and text: vectors are stored by it; never a key."""
        return {
            "backend": "api",
            "algorithms": versions("api-encoding"),
            "model": self.settings.model,
            "url": self.server.url if self.settings.server == "url" else None,
            "input_type": self.settings.input_type(self.side),
            "output_dimensions": self.settings.output_dimensions,
            "quoted": self.settings.quoted,
            "tokenizer": self.settings.tokenizer if self.settings.max_length else "",
        }

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts as they are sent: with the instruction, cut, then quoted; never empty."""
        sent, tokens, truncated = [], [], []
        limit, settings = form.max_length, self.settings
        for text in texts:
            kept = form.instruction + text
            count = estimate_tokens(kept)
            measured = limit and len(kept.encode("utf-8", "surrogatepass")) > limit - _SPARE
            if measured:
                count, kept = load_cut(settings.tokenizer)(kept, limit)
            truncated.append(bool(measured and count > limit))
            tokens.append(min(count, limit) if measured else count)
            sent.append(json.dumps(kept.replace("\n", " ")) if settings.quoted else kept or " ")
        # Whatever the form says is in the texts already.
        return TextInputs(sent, Form(), np.array(tokens, np.int64), np.array(truncated, np.bool_))

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, Vectors]]:
        """Rows with their vectors, request by request, as they arrive.

        A request that the server finds too large is cut in half; what is under way when one
        fails for good, or a limit is met, still arrives and is handed over before the error.
        """
        ready = cast("TextInputs", inputs)
        settings, price = self.settings, self.settings.known_price()

        def read(place: int, answer: dict[str, Any], _: RequestTimes) -> tuple[Vectors, int]:
            texts = cast("list[str]", jobs[place].body["input"])
            tokens = sum(read_token_usage(answer) or map(estimate_tokens, texts))
            return vectors_of(answer, len(texts)), tokens

        session = Session(self.server, self.budget, name=settings.model, price=price)
        try:
            batches = self.planned(ready)
            while batches:
                too_large: list[Rows] = []
                failures: list[tuple[Rows, RequestFailure]] = []
                jobs = [self._job(ready, batch) for batch in batches]
                for place, outcome in session.send_all("embeddings", jobs, read):
                    batch = batches[place]
                    if not isinstance(outcome, RequestFailure):
                        vectors, tokens = outcome
                        self.calls += 1
                        self.tokens += tokens
                        yield batch, vectors
                    elif outcome.status in _UNFIT and len(batch) > 1:
                        too_large += np.array_split(batch, 2)
                    else:
                        failures.append((batch, outcome))
                if failures:
                    raise self._error(failures, ready, len(batches))
                batches = too_large
        finally:
            session.close()

    def bill(self) -> Mapping[str, object]:
        """What the server billed since this was last asked."""
        calls, tokens, price = self.calls, self.tokens, self.settings.known_price()
        self.calls = self.tokens = 0
        money = price.of(tokens) if price else None
        return {"calls": calls, "billed_tokens": tokens, "money": money}

    def facts(self) -> Mapping[str, object]:
        """What was sent where."""
        return {"backend": "api", "model": self.settings.model, "url": self.server.url}

    def planned(self, inputs: TextInputs) -> list[Rows]:
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

    def _job(self, inputs: TextInputs, batch: Rows) -> ApiRequest:
        """A request; Voyage names the width otherwise and has no word for plain floats."""
        settings, texts = self.settings, [inputs.texts[row] for row in batch]
        body: dict[str, object] = {"model": settings.model, "input": texts}
        kind = settings.input_type(self.side)
        if kind:
            body["input_type"] = kind
        if settings.encoding_format == "base64" or not kind:
            body["encoding_format"] = settings.encoding_format
        if settings.output_dimensions:
            body["output_dimension" if kind else "dimensions"] = settings.output_dimensions
        return ApiRequest(body, Tokens(sum(count_most_tokens(text) + _SPARE for text in texts)))

    def _error(
        self, failures: Sequence[tuple[Rows, RequestFailure]], inputs: TextInputs, requests: int
    ) -> Exception:
        batch, first = failures[0]
        what = f"{len(failures):,} of {requests:,} requests failed. The first: {first.why}"
        advice = first.advice(unknown=_UNKNOWN)
        if first.status in _UNFIT:
            what = f"the server does not take a text: {first.why}"
            advice = f"the text begins {inputs.texts[batch[0]][:80]!r}."
        kind = DataError if first.status in _UNFIT else MissingError
        return kind(
            f"{self.settings.model} at {self.server.url}: {what}.\nEvery vector that arrived is "
            f"kept; {advice}"
        )


def vectors_of(answer: dict[str, Any], count: int) -> Vectors:
    """The vectors in the order of the texts; ValueError says what makes an answer unreadable."""
    rows = answer.get("data")
    if not isinstance(rows, list) or len(rows) != count:
        held = len(rows) if isinstance(rows, list) else "no"
        raise ValueError(f"it holds {held} embeddings for {count} texts")
    placed: dict[int, Vectors] = {}
    try:
        for place, row in enumerate(rows):
            vector = row["embedding"]
            if isinstance(vector, str):
                vector = np.frombuffer(base64.b64decode(vector, validate=True), dtype="<f4")
            with np.errstate(over="ignore"):  # infinite numbers are refused where they are stored
                placed[row.get("index", place)] = np.array(vector, dtype=np.float32)
        vectors = np.stack([placed[index] for index in range(count)])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        vectors = np.empty(0, dtype=np.float32)
    if vectors.ndim != 2 or not vectors.size:
        raise ValueError("its embeddings are not one list of numbers for each text, all as long")
    return vectors


@cache
def load_cut(tokenizer: str) -> Cut:
    """The function that counts and cuts; its vocabulary is fetched once by its own library."""
    kind, _, name = tokenizer.rpartition(":")
    try:
        if kind == "tiktoken":
            import tiktoken

            encoding = tiktoken.get_encoding(name)
        else:
            from tokenizers import Tokenizer  # type: ignore[import-untyped, unused-ignore]

            own = Path(tokenizer).is_file()
            encoding = (Tokenizer.from_file if own else Tokenizer.from_pretrained)(tokenizer)
            encoding.no_truncation()
    except Exception as problem:
        raise MissingError(
            f"a text may be longer than the encoder takes, and {tokenizer} cannot be loaded to cut "
            f"it ({type(problem).__name__}): pip install 'r2med[api]', and be online once.\n"
            "[max_length=0] sends texts whole and leaves it to the server."
        ) from None

    def cut(text: str, limit: int) -> tuple[int, str]:
        if kind == "tiktoken":
            ids = encoding.encode(text, disallowed_special=())
            return len(ids), text if len(ids) <= limit else encoding.decode(ids[:limit])
        encoded = encoding.encode(text, add_special_tokens=False)
        count = len(encoded.ids)
        return count, text if count <= limit else text[: encoded.offsets[limit - 1][1]]

    return cut
