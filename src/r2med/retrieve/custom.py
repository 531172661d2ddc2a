"""Models of the user's own: Python objects, plain functions, or `package.module:Class` by name.

What counts as a model, in this order: a retriever (`identity` and `prepare`), the reference
repository's CustomModel (`encode_queries` and `encode_corpus`), a SentenceTransformer, and any
function from a list of texts to a matrix. A class is instantiated without arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, R2MedError, UsageError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.encoder import Inputs, TextInputs
from r2med.retrieve.dense.form import Form, Side
from r2med.retrieve.dense.index import Search
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.retrieve.dense.wording import wording_of
from r2med.retrieve.interface import Retriever
from r2med.retrieve.own_code import described, identity_of, load_target, made, running
from r2med.tasks.task import Task

Encode = Callable[[list[str]], object]


class NamedRetriever(Retriever, Protocol):
    """A retriever with a name to show."""

    @property
    def name(self) -> str:
        """As it shows in tables."""
        ...


class CustomEncoder:
    """One side of a model that somebody else wrote."""

    def __init__(self, model: object, encode: Encode, method: str, side: Side | None) -> None:
        self._model = model
        self._encode = encode
        self._called = _called(model, method)
        self._side = side

    @cached_property
    def identity(self) -> Mapping[str, object] | None:
        """The model's own `identity`, if it has one, and the side where the sides differ."""
        told = identity_of(self._model, _called(self._model, "identity"))
        if told is None:
            return None
        identity = dict(told) if isinstance(told, Mapping) else {"identity": str(told)}
        return {"library": "custom", **identity, **({"side": self._side} if self._side else {})}

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts as they are; the model batches and tokenises by itself."""
        return TextInputs(texts, form)

    def encode(self, inputs: Inputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Call the model, and take whatever array it gives as float32."""
        assert isinstance(inputs, TextInputs)
        texts = [inputs.seen(int(row)) for row in rows]
        with running(self._called):
            vectors = self._encode(texts)
        return as_matrix(vectors, self._called)

    def facts(self) -> Mapping[str, object]:
        """Which object ran."""
        return {"object": _type_name(self._model), "cached": self.identity is not None}


def retriever_of(
    model: object,
    *,
    name: str | None = None,
    conditions: Conditions,
    query_instruction: str = "",
    document_instruction: str = "",
    search: Search | None = None,
) -> NamedRetriever:
    """A retriever around any model; UsageError says what was expected when it is none."""
    model = made(model, name or _type_name(model))
    named = name or str(getattr(model, "name", "") or _plain_name(model))
    if callable(getattr(model, "prepare", None)) and hasattr(model, "identity"):
        return cast("NamedRetriever", model)
    queries, documents = _encoders(model)

    def form(task: Task, side: Side) -> Form:
        template = query_instruction if side == "query" else document_instruction
        return Form(instruction=wording_of(task).apply(template))

    return DenseRetriever(
        name=named,
        make=lambda: (queries, documents),
        form=form,
        told={
            "query_instruction": query_instruction,
            "document_instruction": document_instruction,
        },
        search=search or Search(),
        conditions=conditions,
    )


def build(fields: Mapping[str, object], conditions: Conditions) -> Retriever:
    """The retriever of `model:package.module:Class`."""
    target = str(fields["target"])
    return retriever_of(
        load_target(target),
        name=target,
        conditions=conditions,
        query_instruction=str(fields["query_instruction"]),
        document_instruction=str(fields["document_instruction"]),
        search=Search(similarity=cast("Any", fields["similarity"])),
    )


def as_matrix(vectors: object, source: str = "the model") -> NDArray[np.float32]:
    """Tensors, arrays and lists of vectors as one float32 array."""
    if vectors is None:
        raise DataError(f"{source} returned None; expected one vector for each text.")
    if hasattr(vectors, "detach"):
        tensor = cast("Any", vectors).detach().cpu()
        vectors = (tensor if tensor.is_complex() else tensor.float()).numpy()
    elif isinstance(vectors, Sequence) and vectors and hasattr(vectors[0], "detach"):
        vectors = np.stack([as_matrix(vector, source) for vector in vectors])
    try:
        array = np.asarray(cast("Any", vectors))
        if np.iscomplexobj(array):
            raise DataError(f"{source} gave complex numbers; expected real ones.")
        return np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"{source} gave {type(vectors).__name__} that is no matrix of numbers; expected one "
            "vector of equal length for each text."
        ) from None


def _encoders(model: object) -> tuple[CustomEncoder, CustomEncoder]:
    told: Any = model
    if callable(getattr(model, "encode_queries", None)) and callable(
        getattr(model, "encode_corpus", None)
    ):
        queries: Encode = told.encode_queries
        return (
            CustomEncoder(model, queries, "encode_queries", "query"),
            CustomEncoder(model, _CorpusCall(model), "encode_corpus", "document"),
        )
    if callable(getattr(model, "encode_query", None)) and callable(
        getattr(model, "encode_document", None)
    ):

        def of_query(texts: list[str]) -> object:
            return told.encode_query(texts, show_progress_bar=False)

        def of_document(texts: list[str]) -> object:
            return told.encode_document(texts, show_progress_bar=False)

        return (
            CustomEncoder(model, of_query, "encode_query", "query"),
            CustomEncoder(model, of_document, "encode_document", "document"),
        )
    method = "encode" if getattr(model, "encode", None) else ""
    encode = getattr(model, method) if method else model
    if callable(encode):
        both = CustomEncoder(model, cast("Encode", encode), method, None)
        return both, both
    raise UsageError(
        f"{_type_name(model)} is no model: expected encode_queries and encode_corpus, a "
        "SentenceTransformer, or a function from texts to vectors; see docs/your-model.md."
    )


class _CorpusCall:
    """`encode_corpus` with what it takes: the reference hands over dicts, some take plain texts."""

    def __init__(self, model: Any) -> None:
        self._encode: Callable[[list[Any]], object] = model.encode_corpus
        self._called = _called(model, "encode_corpus")
        self._plain = False

    def __call__(self, texts: list[str]) -> object:
        if self._plain:
            return self._encode(texts)
        try:
            return self._encode([{"text": text} for text in texts])
        except (TypeError, AttributeError, KeyError, ValueError) as problem:
            try:
                vectors = self._encode(texts)
            except R2MedError:
                raise
            except Exception as other:
                raise DataError(
                    f"{self._called} failed on dicts with a text {described(problem)}\n"
                    f"and on plain texts {described(other)}"
                ) from other
            self._plain = True
            return vectors


def _called(model: object, method: str) -> str:
    return f"{_type_name(model)}.{method}" if method else _type_name(model)


def _type_name(model: object) -> str:
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', kind)}"


def _plain_name(model: object) -> str:
    """A name that a system's text can hold."""
    name = _type_name(model).rpartition(".")[2].strip("<>") or "model"
    return name if name[0].isalnum() else "model"
