"""Encoders behind an API: requests are sent in parallel, and vectors are stored as they arrive.

Texts are truncated and quoted as in the published runs. The requests have the JSON format that
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
#: Takes a text and a limit; returns the text's tokens and its beginning within the limit.
Truncate = Callable[[str, int], tuple[int, str]]

#: The address of the vendor to which a key belongs.
_VENDOR_URLS: Mapping[str, str] = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "VOYAGE_API_KEY": "https://api.voyageai.com/v1",
}
#: Statuses of a server for a request that is too large, or a text that it does not accept.
_UNFIT = (400, 413, 422)
_UNKNOWN = "check the server's address ([url=...]) and the model's name on it ([model=...])."
#: Most special tokens that a tokenizer adds to a text. A token has at least one byte, so a text
#: with fewer bytes than the limit minus these is within the limit.
_SPECIAL_TOKENS = 8


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
        """Return `input_type` in requests for a side; empty if requests have no such field."""
        return self.query_input_type if side == "query" else self.document_input_type

    def known_price(self) -> Price | None:
        """Return the price in dollars per million tokens: as set, else as listed, else None."""
        if self.price >= 0:
            return Price(self.price)
        listed = self._listed_price()
        return Price(listed["price"]) if listed else None

    def price_basis(self) -> str:
        """Return the date and source of a listed price.

        An empty text is returned if the price was set or is unknown.
        """
        listed = self._listed_price() if self.price < 0 else None
        return f"price of {listed['date']} ({listed['source']})" if listed else ""

    def _listed_price(self) -> Mapping[str, Any] | None:
        listed = read_packaged_toml("retrieve/api_prices.toml").get(self.model)
        return listed if listed and listed["key_env"] == self.key_env else None


def build(settings: ApiSettings, resources: Resources) -> ApiRetriever:
    """Return a retriever with these settings; no server is contacted and no key is read yet."""
    if not settings.model:
        raise UsageError(
            "api: the model is missing; expected api:MODEL[url=http://localhost:8000/v1]."
        )
    if settings.max_length and not settings.tokenizer:
        raise UsageError(
            f"max_length={settings.max_length} needs a tokenizer that counts tokens: "
            "add [tokenizer=tiktoken:cl100k_base]."
        )
    budget = resources.remote.budget
    budget.check_price(settings.known_price(), settings.model)

    def make_encoders() -> tuple[Encoder, Encoder]:
        query, document = (ApiEncoder(settings, side, budget) for side in SIDES)
        return (query, document) if query.identity != document.identity else (document, document)

    def form(task: Task, side: Side) -> Form:
        instruction = word_instruction(getattr(settings, f"{side}_instruction"), task)
        return Form(instruction, settings.max_length)

    return ApiRetriever(
        name=settings.model,
        make_encoders=make_encoders,
        form=form,
        similarity=settings.similarity,
        dimensions=settings.dimensions,
        storage=settings.storage,
        resources=resources,
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True)
class ApiRetriever(DenseRetriever):
    """A dense retriever that can estimate the costs of its API requests."""

    settings: ApiSettings

    def estimate(self, task: Task, queries: Sequence[str] | None = None) -> RequestEstimate:
        """Estimate the requests for a task: cached texts are free, tokens are approximate.

        `queries` are the texts to search with; None takes the task's queries.
        """
        calls = cached = tokens = 0
        settings, encoder = self.settings, cast("ApiEncoder", self.encoders["document"])
        query_texts = task.queries.texts.to_pylist() if queries is None else queries
        for side, texts in zip(SIDES, (query_texts, task.corpus.document_texts()), strict=True):
            form, distinct = self.form(task, side), list(dict.fromkeys(texts))
            indexes = self.cache(side).find(form.addresses(distinct))
            missing = [text for text, index in zip(distinct, indexes, strict=True) if index < 0]
            inputs = encoder.inputs(missing, form)
            calls += len(encoder.plan_batches(inputs))
            cached += len(distinct) - len(missing)
            tokens += int(inputs.tokens.sum())
        basis, price = "4 characters per token; long texts are counted", settings.known_price()
        if settings.price_basis():
            basis += f"; {settings.price_basis()}"
        return RequestEstimate(cached, calls, tokens, 0, price.of(tokens) if price else None, basis)


@dataclass(eq=False)
class ApiEncoder:
    """The query encoder or the document encoder of a model behind an API.

    It counts billed tokens.
    """

    settings: ApiSettings
    side: Side
    budget: Budget
    calls: int = 0
    tokens: int = 0

    @cached_property
    def server(self) -> Server:
        """The server, at the address of the registry entry or in R2MED_EMBED_URL.

        The API key of a vendor is sent only to the address of that vendor.
        """
        settings = self.settings
        vendor_url = _VENDOR_URLS.get(settings.key_env, "")
        return find_server(
            settings.model,
            entry_url=vendor_url,
            entry_key_env=settings.key_env,
            environment="R2MED_EMBED",
            option="[url=...]",
            url=None if settings.url == vendor_url else settings.url,
            key_env="" if vendor_url else settings.key_env,
        )

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The settings that decide a vector, besides the text and its `Form`.

        An API key is never included.
        """
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
        """Return the texts as requests contain them: with the instruction, truncated, then quoted.

        Servers refuse empty texts, so an empty text becomes a blank.
        """
        sent, tokens, truncated = [], [], []
        limit, settings = form.max_length, self.settings
        for text in texts:
            instructed = form.instruction + text
            count, is_truncated = estimate_tokens(instructed), False
            size = len(instructed.encode("utf-8", "surrogatepass"))
            if limit and size > limit - _SPECIAL_TOKENS:
                count, instructed = load_truncate(settings.tokenizer)(instructed, limit)
                is_truncated = count > limit
                count = min(count, limit)
            truncated.append(is_truncated)
            tokens.append(count)
            if settings.quoted:
                sent.append(json.dumps(instructed.replace("\n", " ")))
            else:
                sent.append(instructed or " ")
        # The form is empty because instruction and limit are applied already.
        return TextInputs(sent, Form(), np.array(tokens, np.int64), np.array(truncated, np.bool_))

    def stream(self, inputs: Inputs) -> Iterator[tuple[Rows, Vectors]]:
        """Yield rows with their vectors as they arrive, request by request.

        A request that is too large for the server is split in two. If a request fails or a limit is
        reached, the requests in progress are finished and yielded before the error is raised.
        """
        text_inputs = cast("TextInputs", inputs)
        settings, price = self.settings, self.settings.known_price()

        def read(index: int, answer: dict[str, Any], _: RequestTimes) -> tuple[Vectors, int]:
            texts = cast("list[str]", jobs[index].body["input"])
            tokens = sum(read_token_usage(answer) or map(estimate_tokens, texts))
            return read_vectors(answer, len(texts)), tokens

        session = Session(self.server, self.budget, name=settings.model, price=price)
        try:
            batches = self.plan_batches(text_inputs)
            while batches:
                too_large: list[Rows] = []
                failures: list[tuple[Rows, RequestFailure]] = []
                jobs = [self._make_request(text_inputs, batch) for batch in batches]
                for index, outcome in session.send_all("embeddings", jobs, read):
                    batch = batches[index]
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
                    raise self._describe_failures(failures, text_inputs, len(batches))
                batches = too_large
        finally:
            session.close()

    def bill(self) -> Mapping[str, object]:
        """Return the calls, tokens and money billed since the last call of this method."""
        calls, tokens, price = self.calls, self.tokens, self.settings.known_price()
        self.calls = self.tokens = 0
        money = price.of(tokens) if price else None
        return {"calls": calls, "billed_tokens": tokens, "money": money}

    def facts(self) -> Mapping[str, object]:
        """Return the name of the model and the address of the server."""
        return {"backend": "api", "model": self.settings.model, "url": self.server.url}

    def plan_batches(self, inputs: TextInputs) -> list[Rows]:
        """Group texts of similar length into requests that keep the limits on texts and tokens."""
        batches: list[list[int]] = []
        batch_tokens = 0
        for row in np.argsort(-inputs.tokens, kind="stable").tolist():
            tokens = int(inputs.tokens[row])
            is_full = bool(batches) and len(batches[-1]) >= self.settings.most_texts
            if not batches or is_full or batch_tokens + tokens > self.settings.most_tokens:
                batches.append([])
                batch_tokens = 0
            batches[-1].append(row)
            batch_tokens += tokens
        return [np.array(batch, dtype=np.int64) for batch in batches]

    def _make_request(self, inputs: TextInputs, batch: Rows) -> ApiRequest:
        """Return the request for the texts of a batch.

        Only Voyage has an `input_type`. Voyage also has another name for the dimensions, and no
        value of `encoding_format` for plain floats.
        """
        settings, texts = self.settings, [inputs.texts[row] for row in batch]
        body: dict[str, object] = {"model": settings.model, "input": texts}
        input_type = settings.input_type(self.side)
        if input_type:
            body["input_type"] = input_type
        if settings.encoding_format == "base64" or not input_type:
            body["encoding_format"] = settings.encoding_format
        if settings.output_dimensions:
            name = "output_dimension" if input_type else "dimensions"
            body[name] = settings.output_dimensions
        most_tokens = sum(count_most_tokens(text) + _SPECIAL_TOKENS for text in texts)
        return ApiRequest(body, Tokens(most_tokens))

    def _describe_failures(
        self, failures: Sequence[tuple[Rows, RequestFailure]], inputs: TextInputs, requests: int
    ) -> Exception:
        """Return an error that counts the failed requests and describes the first of them."""
        batch, first = failures[0]
        where = f"{self.settings.model} at {self.server.url}"
        if first.status in _UNFIT:
            return DataError(
                f"{where}: the server does not accept a text: {first.why}.\nEvery vector that "
                f"arrived is kept; the text begins {inputs.texts[batch[0]][:80]!r}."
            )
        return MissingError(
            f"{where}: {len(failures):,} of {requests:,} requests failed. The first: {first.why}.\n"
            f"Every vector that arrived is kept; {first.advice(unknown=_UNKNOWN)}"
        )


def read_vectors(answer: dict[str, Any], count: int) -> Vectors:
    """Return the vectors in a server's answer, in the order of the texts.

    Raises ValueError if the answer is not readable.
    """
    rows = answer.get("data")
    if not isinstance(rows, list) or len(rows) != count:
        number = len(rows) if isinstance(rows, list) else "no"
        raise ValueError(f"it has {number} embeddings for {count} texts")
    by_index: dict[int, Vectors] = {}
    try:
        for position, row in enumerate(rows):
            vector = row["embedding"]
            if isinstance(vector, str):
                vector = np.frombuffer(base64.b64decode(vector, validate=True), dtype="<f4")
            with np.errstate(over="ignore"):  # infinity is refused later, with the text's name
                by_index[row.get("index", position)] = np.array(vector, dtype=np.float32)
        vectors = np.stack([by_index[index] for index in range(count)])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        vectors = np.empty(0, dtype=np.float32)
    if vectors.ndim != 2 or not vectors.size:
        raise ValueError("its embeddings are not lists of numbers, one per text, of equal length")
    return vectors


@cache
def load_truncate(tokenizer: str) -> Truncate:
    """Return a function that counts the tokens of a text and truncates it.

    The vocabulary of the tokeniser may be downloaded.
    """
    library, _, name = tokenizer.rpartition(":")
    try:
        if library == "tiktoken":
            import tiktoken

            encoding = tiktoken.get_encoding(name)
        else:
            from tokenizers import Tokenizer  # type: ignore[import-untyped, unused-ignore]

            is_file = Path(tokenizer).is_file()
            encoding = (Tokenizer.from_file if is_file else Tokenizer.from_pretrained)(tokenizer)
            encoding.no_truncation()
    except Exception as problem:
        raise MissingError(
            f"a text may exceed the encoder's limit, and {tokenizer} cannot be loaded to truncate "
            f"it ({type(problem).__name__}): pip install 'r2med[api]', and be online once.\n"
            "With [max_length=0], texts are not truncated before they are sent."
        ) from None

    def truncate(text: str, limit: int) -> tuple[int, str]:
        if library == "tiktoken":
            ids = encoding.encode(text, disallowed_special=())
            return len(ids), text if len(ids) <= limit else encoding.decode(ids[:limit])
        encoded = encoding.encode(text, add_special_tokens=False)
        count = len(encoded.ids)
        return count, text if count <= limit else text[: encoded.offsets[limit - 1][1]]

    return truncate
