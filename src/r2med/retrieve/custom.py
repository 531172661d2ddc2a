"""Models of the user's own: Python objects, plain functions, or `package.module:Class` by name.

What counts as a model, in this order: a retriever (`identity` and `prepare`), the reference
repository's CustomModel (`encode_queries` and `encode_corpus`), a SentenceTransformer, and any
function from a list of texts to a matrix. A class is instantiated without arguments.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, R2MedError, UsageError, nearest
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.encoder import Inputs, TextInputs
from r2med.retrieve.dense.form import Form, Side
from r2med.retrieve.dense.index import Search
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.retrieve.dense.wording import wording_of
from r2med.retrieve.interface import Retriever
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

    def __init__(self, model: object, encode: Encode, side: Side | None) -> None:
        self._model = model
        self._encode = encode
        self._side = side

    @cached_property
    def identity(self) -> Mapping[str, object] | None:
        """The model's own `identity`, if it has one, and the side where the sides differ."""
        told = getattr(self._model, "identity", None)
        told = told() if callable(told) else told
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
        return as_matrix(self._encode([inputs.seen(int(row)) for row in rows]))

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
    model = model() if isinstance(model, type) else model
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


def load_target(target: str) -> object:
    """Import `package.module:name`, from the working folder too; a class is made into an object."""
    module_name, colon, attribute = target.partition(":")
    if not (colon and module_name and attribute):
        raise UsageError(
            f"model {target!r}: expected package.module:Class, as in my_models.encoder:Encoder."
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        raise MissingError(
            f"model {target!r}: module {problem.name!r} cannot be imported from {Path.cwd()} or "
            "the installed packages."
        ) from None
    finally:
        sys.path.pop(0)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UsageError(
            f"model {target!r}: {module_name} has no {attribute!r}. {nearest(attribute, public)}"
        )
    found = getattr(module, attribute)
    try:
        return found() if isinstance(found, type) else found
    except TypeError as problem:
        raise UsageError(
            f"model {target!r}: the class cannot be made without arguments ({problem}).\n"
            "Give its parameters defaults, or name a ready object of the module instead."
        ) from None


def as_matrix(vectors: object) -> NDArray[np.float32]:
    """Tensors, arrays and lists of vectors as one float32 array."""
    if hasattr(vectors, "detach"):
        vectors = cast("Any", vectors).detach().float().cpu().numpy()
    elif isinstance(vectors, Sequence) and vectors and hasattr(vectors[0], "detach"):
        vectors = np.stack([as_matrix(vector) for vector in vectors])
    try:
        return np.ascontiguousarray(cast("Any", vectors), dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(
            f"the model gave {type(vectors).__name__} that is no matrix of numbers; expected one "
            "vector of equal length for each text."
        ) from None


def _encoders(model: object) -> tuple[CustomEncoder, CustomEncoder]:
    told: Any = model
    if callable(getattr(model, "encode_queries", None)) and callable(
        getattr(model, "encode_corpus", None)
    ):
        queries: Encode = told.encode_queries
        return (
            CustomEncoder(model, queries, "query"),
            CustomEncoder(model, _CorpusCall(told.encode_corpus), "document"),
        )
    if callable(getattr(model, "encode_query", None)) and callable(
        getattr(model, "encode_document", None)
    ):
        quiet = {"show_progress_bar": False}
        return (
            CustomEncoder(model, lambda texts: told.encode_query(texts, **quiet), "query"),
            CustomEncoder(model, lambda texts: told.encode_document(texts, **quiet), "document"),
        )
    encode = getattr(model, "encode", None) or model
    if callable(encode):
        both = CustomEncoder(model, cast("Encode", encode), None)
        return both, both
    raise UsageError(
        f"{_type_name(model)} is no model: expected encode_queries and encode_corpus, a "
        "SentenceTransformer, or a function from texts to vectors; see docs/your-model.md."
    )


class _CorpusCall:
    """`encode_corpus` with what it takes: the reference hands over dicts, some take plain texts."""

    def __init__(self, encode: Callable[[list[Any]], object]) -> None:
        self._encode = encode
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
                    "encode_corpus fails on dicts with a text "
                    f"({type(problem).__name__}: {problem}) and on plain texts "
                    f"({type(other).__name__}: {other})."
                ) from problem
            self._plain = True
            return vectors


def _type_name(model: object) -> str:
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', kind)}"


def _plain_name(model: object) -> str:
    """A name that a system's text can hold."""
    name = _type_name(model).rpartition(".")[2].strip("<>") or "model"
    return name if name[0].isalnum() else "model"
