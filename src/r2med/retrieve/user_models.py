"""Models of the user's own: Python objects, plain functions, or `package.module:Class` by name.

What counts as a model, in this order: a retriever (`identity` and `prepare`), the reference
repository's CustomModel (`encode_queries` and `encode_corpus`), a SentenceTransformer, and any
function from a list of texts to a matrix. A class is instantiated without arguments.

The user's code is kept off the results' stream. Whatever it raises becomes one message with the
user's file and line, and stays as the cause.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, R2MedError, UsageError, nearest
from r2med.models.batching import Rows
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import Form, Inputs, Side, TextInputs
from r2med.retrieve.dense.retriever import DenseRetriever, Search
from r2med.retrieve.dense.settings import Similarity, worded
from r2med.retrieve.interface import Retriever
from r2med.settings import setting
from r2med.tasks.task import Task

Encode = Callable[[list[str]], object]

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_INSTALLED = tuple(
    f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)


class NamedRetriever(Retriever, Protocol):
    """A retriever with a name to show."""

    @property
    def name(self) -> str:
        """As it shows in tables."""
        ...


@dataclass(frozen=True)
class UserModelSettings:
    """What `model:package.module:Class` may say; the model itself is known by its own identity."""

    query_instruction: str
    document_instruction: str
    similarity: Similarity
    target: str = setting(identity="content")


def build(settings: UserModelSettings, conditions: Conditions) -> Retriever:
    """The retriever of `model:package.module:Class`."""
    return retriever_of(
        load_target(settings.target),
        name=settings.target,
        conditions=conditions,
        query_instruction=settings.query_instruction,
        document_instruction=settings.document_instruction,
        search=Search(settings.similarity),
    )


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
    if callable(getattr(model, "prepare", None)) and hasattr(model, "identity"):
        return cast("NamedRetriever", model)
    queries, documents = _encoders(model)
    search = search or Search()
    instructions = {
        "query_instruction": query_instruction,
        "document_instruction": document_instruction,
    }

    def form(task: Task, side: Side) -> Form:
        return Form(instruction=worded(instructions[f"{side}_instruction"], task))

    return DenseRetriever(
        name=name or str(getattr(model, "name", "") or _plain_name(model)),
        make=lambda: (queries, documents),
        form=form,
        search=search,
        besides={**instructions, "search": asdict(search)},
        conditions=conditions,
        own=model,
    )


class UserEncoder:
    """One side of a model that somebody else wrote."""

    def __init__(self, model: object, encode: Encode, method: str, side: Side | None) -> None:
        self._model = model
        self._encode = encode
        self._called = _called(model, method)
        self._side = side

    @cached_property
    def identity(self) -> Mapping[str, object] | None:
        """The model's own `identity`, if it has one, and the side where the sides differ."""
        own = identity_of(self._model, _called(self._model, "identity"))
        if own is None:
            return None
        identity = dict(own) if isinstance(own, Mapping) else {"identity": str(own)}
        return {"library": "custom", **identity, **({"side": self._side} if self._side else {})}

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts as they are; the model batches and tokenises by itself."""
        return TextInputs(texts, form)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Call the model, and take whatever array it gives as float32."""
        texts = [inputs.seen(int(row)) for row in rows]
        with running(self._called):
            vectors = self._encode(texts)
        return as_matrix(vectors, self._called)

    def facts(self) -> Mapping[str, object]:
        """Which object ran."""
        return {"object": _type_name(self._model), "cached": self.identity is not None}


def _encoders(model: object) -> tuple[UserEncoder, UserEncoder]:
    """The encoders of queries and of documents."""
    methods = {
        name: method
        for name in ("encode_queries", "encode_corpus", "encode_query", "encode_document", "encode")
        if callable(method := getattr(model, name, None))
    }
    if {"encode_queries", "encode_corpus"} <= set(methods):
        return (
            UserEncoder(model, methods["encode_queries"], "encode_queries", "query"),
            UserEncoder(model, _CorpusCall(model), "encode_corpus", "document"),
        )
    if {"encode_query", "encode_document"} <= set(methods):
        return (
            UserEncoder(model, _silent(methods["encode_query"]), "encode_query", "query"),
            UserEncoder(model, _silent(methods["encode_document"]), "encode_document", "document"),
        )
    encode, method = (methods["encode"], "encode") if "encode" in methods else (model, "")
    if not callable(encode):
        raise UsageError(
            f"{_type_name(model)} is no model: expected encode_queries and encode_corpus, a "
            "SentenceTransformer, or a function from texts to vectors; see docs/your-model.md."
        )
    both = UserEncoder(model, encode, method, None)
    return both, both


def _silent(encode: Callable[..., object]) -> Encode:
    """A method of a SentenceTransformer without its progress bar."""
    return lambda texts: encode(texts, show_progress_bar=False)


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


def load_target(target: str) -> object:
    """Import `package.module:name`, from the working folder too; a class is made into an object.

    The folder stays on the path, because a model may import more of it when it runs.
    """
    module_name, _, attribute = target.rpartition(":")
    if not (module_name and attribute):
        raise UsageError(
            f"model {target!r}: expected package.module:Class, as in my_models.encoder:Encoder."
        )
    _refuse_path(target, module_name, attribute)
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    module = _imported(target, module_name)
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UsageError(
            f"model {target!r}: {module_name} has no {attribute!r}. {nearest(attribute, public)}"
        )
    return made(getattr(module, attribute), f"model {target!r}")


def made(model: object, where: str) -> object:
    """The object itself, or one of the class, which must need no arguments."""
    if not isinstance(model, type):
        return model
    with running(f"{where}: making {model.__name__}()"):
        try:
            return model()
        except TypeError as problem:
            if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                raise
            raise UsageError(
                f"{where}: the class cannot be made without arguments ({problem}).\n"
                "Give its parameters defaults, or name a ready object of the module instead."
            ) from None


def identity_of(model: object, where: str) -> str | float | Mapping[str, object] | None:
    """What the model says it is, by an attribute or a method `identity`; None where it does not."""
    with running(where):
        identity = getattr(model, "identity", None)
        identity = identity() if callable(identity) else identity
    if identity is not None and not _comparable(identity):
        raise UsageError(
            f"{where} is {identity!r}; expected a text, a number, or a mapping of such, which "
            "another run can compare. See docs/your-model.md."
        )
    return identity


def source_of(model: object) -> tuple[str, str] | None:
    """The name of a model's class, or of a function, and a hash of its source and its bases'.

    None where the source is not the user's own or is not to be had.
    """
    kind = model if isinstance(model, type) or inspect.isfunction(model) else type(model)
    texts = []
    for part in inspect.getmro(kind) if isinstance(kind, type) else (kind,):
        try:
            file, text = inspect.getfile(part), inspect.getsource(part)
        except (OSError, TypeError):
            continue
        if not file.startswith((_OURS, *_INSTALLED)):
            texts.append(text)
    if not texts:
        return None
    return _type_name(kind), hashlib.sha256("".join(texts).encode()).hexdigest()


def _comparable(identity: object) -> bool:
    """Whether another run can compare it: an object's address, say, is new every time."""
    if isinstance(identity, Mapping):
        return all(isinstance(key, str) and _comparable(value) for key, value in identity.items())
    return isinstance(identity, str | int | float)


@contextmanager
def running(what: str) -> Iterator[None]:
    """What the user's code prints goes to stderr; what it raises, an exit too, is a DataError."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except R2MedError:
        raise
    except (Exception, SystemExit) as problem:
        raise DataError(f"{what} failed {described(problem)}") from problem


def described(problem: BaseException) -> str:
    """Where in the user's code something was raised, and what: `in FILE, line 3: KeyError: 'x'`."""
    message = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    return f"{_place(problem)}: {type(problem).__name__}{f': {message}' if message else ''}"


def _refuse_path(target: str, module_name: str, attribute: str) -> None:
    path = Path(module_name)
    named = all(part.isidentifier() for part in module_name.split("."))
    if named and path.suffix != ".py":
        return
    inside = not path.is_absolute() and ".." not in path.parts
    parts = path.with_suffix("").parts if inside else (path.stem,)
    raise UsageError(
        f"model {target!r}: {module_name!r} is no module's name. A module is named as in an "
        f"import: write {'.'.join(parts)}:{attribute}"
        + ("." if inside else f", from the folder {path.parent}.")
    )


def _imported(target: str, module_name: str) -> ModuleType:
    with running(f"model {target!r}: importing {module_name}"):
        try:
            return importlib.import_module(module_name)
        except ModuleNotFoundError as problem:
            if not f"{module_name}.".startswith(f"{problem.name}."):
                raise
            raise MissingError(
                f"model {target!r}: module {problem.name!r} cannot be imported from {Path.cwd()} "
                "or the installed packages."
            ) from None


def _place(problem: BaseException) -> str:
    """The innermost line of the user's own, else of whichever library failed."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return f"in {problem.filename}, line {problem.lineno}"
    walked = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(problem.__traceback__)
        if not frame.f_code.co_filename.startswith((_OURS, "<frozen "))
    ]
    own = [(file, line) for file, line in walked if not file.startswith(_INSTALLED)]
    for file, line in reversed(own or walked):
        return f"in {file}, line {line}"
    return "before any line of it ran"


def _called(model: object, method: str) -> str:
    return f"{_type_name(model)}.{method}" if method else _type_name(model)


def _type_name(model: object) -> str:
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', kind)}"


def _plain_name(model: object) -> str:
    """A name that a system's text can hold."""
    name = _type_name(model).rpartition(".")[2].strip("<>") or "model"
    return name if name[0].isalnum() else "model"
