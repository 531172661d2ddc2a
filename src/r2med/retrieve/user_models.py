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
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, R2MedError, UsageError, nearest
from r2med.execution.resources import Resources
from r2med.models.batching import Rows
from r2med.models.encoding import Form, Inputs, Side, TextInputs
from r2med.retrieve.dense.retriever import DenseRetriever, Similarity, word_instruction
from r2med.retrieve.interface import Retriever
from r2med.settings import setting

Encode = Callable[[list[str]], object]

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_INSTALLED = tuple(
    f"{sysconfig.get_path(kind)}{os.sep}" for kind in ("stdlib", "platstdlib", "purelib", "platlib")
)


@dataclass(frozen=True)
class UserModelSettings:
    """What `model:package.module:Class` may say; the model itself is known by its own identity."""

    query_instruction: str = ""
    document_instruction: str = ""
    similarity: Similarity = "cosine"
    target: str = setting(default="", identity="content")
    arguments: tuple[str, ...] = ()
    """Arguments of the class, each as NAME=VALUE: all options that are not named above."""


def build(settings: UserModelSettings, resources: Resources) -> Retriever:
    """The retriever of `model:package.module:Class`."""
    model, name = load_target(settings.target, settings.arguments), settings.target
    return retriever_of(model, name=name, resources=resources, settings=settings)


def retriever_of(
    model: object,
    *,
    name: str | None = None,
    resources: Resources,
    settings: UserModelSettings | None = None,
) -> Retriever:
    """A retriever around any model; UsageError says what was expected when it is none."""
    model = made(model, name or _type_name(model))
    if callable(getattr(model, "prepare", None)) and hasattr(model, "identity"):
        return cast("Retriever", model)
    settings = settings or UserModelSettings()
    encoders = _encoders(model, settings.arguments)
    instructions: dict[Side, str] = {
        "query": settings.query_instruction,
        "document": settings.document_instruction,
    }
    return DenseRetriever(
        name=name or name_of(model),
        make=lambda: encoders,
        form=lambda task, side: Form(word_instruction(instructions[side], task)),
        similarity=settings.similarity,
        besides={
            **{f"{side}_instruction": text for side, text in instructions.items()},
            "search": {"similarity": settings.similarity, "dimensions": 0},
        },
        resources=resources,
        own=model,
    )


def name_of(model: object) -> str:
    """A name that a system's text can hold: the model's own, or that of its class or function."""
    kind = _type_name(model).rpartition(".")[2].strip("<>")
    return str(getattr(model, "name", "") or (kind if kind[:1].isalnum() else "model"))


@dataclass(eq=False)
class UserEncoder:
    """One side of a model that somebody else wrote."""

    model: object
    call: Encode
    method: str
    side: Side | None = None
    arguments: tuple[str, ...] = ()
    """With which the model was made."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The model's `identity` with a hash of its code and weights; None if it has none.

        The side is part of it where the sides differ.
        """
        own = identity_of(self.model, _called(self.model, "identity"))
        if own is None:
            return None
        identity: dict[str, object] = {"identity": str(own)}
        if isinstance(own, Mapping):
            identity = dict(own)
        if self.side:
            identity["side"] = self.side
        if self.arguments:
            identity["arguments"] = list(self.arguments)
        return {"library": "custom", **identity, **code_identity(self.model)}

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """The texts as they are; the model batches and tokenises by itself."""
        return TextInputs.of(texts, form)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Call the model, and take whatever array it gives as float32."""
        texts, called = [inputs.seen(int(row)) for row in rows], _called(self.model, self.method)
        with running(called):
            vectors = self.call(texts)
        return as_matrix(vectors, called)

    def facts(self) -> Mapping[str, object]:
        """Which object ran."""
        return {"object": _type_name(self.model), "cached": self.identity is not None}


def _encoders(model: Any, arguments: tuple[str, ...] = ()) -> tuple[UserEncoder, UserEncoder]:
    """The encoders of queries and of documents; the model was made with the arguments."""

    def has(*names: str) -> bool:
        return all(callable(getattr(model, name, None)) for name in names)

    if has("encode_queries", "encode_corpus"):
        return (
            UserEncoder(model, model.encode_queries, "encode_queries", "query", arguments),
            UserEncoder(model, _corpus_call(model), "encode_corpus", "document", arguments),
        )
    if has("encode_query", "encode_document"):
        query = partial(model.encode_query, show_progress_bar=False)
        document = partial(model.encode_document, show_progress_bar=False)
        return (
            UserEncoder(model, query, "encode_query", "query", arguments),
            UserEncoder(model, document, "encode_document", "document", arguments),
        )
    if not (has("encode") or callable(model)):
        raise UsageError(
            f"{_type_name(model)} is no model: expected encode_queries and encode_corpus, a "
            "SentenceTransformer, or a function from texts to vectors; see docs/your-model.md."
        )
    named = has("encode")
    call, method = (model.encode, "encode") if named else (model, "")
    both = UserEncoder(model, call, method, arguments=arguments)
    return both, both


def _corpus_call(model: Any) -> Encode:
    """`encode_corpus` with what it takes: the reference hands over dicts, some take plain texts."""
    plain = False

    def encode(texts: list[str]) -> object:
        nonlocal plain
        if plain:
            return model.encode_corpus(texts)
        try:
            return model.encode_corpus([{"text": text} for text in texts])
        except (TypeError, AttributeError, KeyError, ValueError) as problem:
            what = f"{_called(model, 'encode_corpus')} failed on dicts {described(problem)}\nand it"
            with running(f"{what}, called with plain texts,"):
                vectors = model.encode_corpus(texts)
            plain = True
            return vectors

    return encode


def as_matrix(vectors: Any, source: str = "the model") -> NDArray[np.float32]:
    """Tensors, arrays and lists of vectors as one float32 array."""

    def plain(value: Any) -> Any:
        if not hasattr(value, "detach"):
            return value
        tensor = value.detach().cpu()
        return (tensor if tensor.is_complex() else tensor.float()).numpy()

    try:
        listed = isinstance(vectors, Sequence)
        array = np.asarray([plain(row) for row in vectors] if listed else plain(vectors))
        if vectors is not None and not np.iscomplexobj(array):
            return np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        pass
    raise DataError(
        f"{source} gave {type(vectors).__name__} that is no matrix of real numbers; expected "
        "one vector of equal length for each text."
    )


def load_target(target: str, arguments: Sequence[str] = ()) -> object:
    """Import `package.module:name`, from the working folder too; a class is made into an object.

    `arguments` are those of the class, each as NAME=VALUE.

    The folder stays on the path, because a model may import more of it when it runs.
    """
    module_name, _, attribute = target.rpartition(":")
    parts = module_name.split(".")
    if not attribute or parts[-1] == "py" or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f"model {target!r}: expected package.module:Class as in an import, seen from the "
            "working folder: my_models.encoder:Encoder for the class Encoder of "
            "my_models/encoder.py."
        )
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    with running(f"model {target!r}: importing {module_name} from {here}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as problem:
            if not f"{module_name}.".startswith(f"{problem.name}."):
                raise
            raise MissingError(
                f"model {target!r}: there is no module {problem.name!r} in {here} or among the "
                "installed packages."
            ) from None
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UsageError(
            f"model {target!r}: {module_name} has no {attribute!r}. {nearest(attribute, public)}"
        )
    return made(getattr(module, attribute), f"model {target!r}", arguments)


def made(model: object, where: str, arguments: Sequence[str] = ()) -> object:
    """The object itself, or one of the class, made with the arguments (each NAME=VALUE)."""
    if not isinstance(model, type):
        if arguments:
            raise UsageError(
                f"{where}: is not a class, so it takes no options such as [{arguments[0]}]."
            )
        return model
    values = {}
    for argument in arguments:
        name, _, text = argument.partition("=")
        values[name] = _parse_argument(text)
    with running(f"{where}: making {model.__name__}({', '.join(arguments)})"):
        try:
            return model(**values)
        except TypeError as problem:
            if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                raise
            given = f"with {', '.join(arguments)}" if arguments else "without arguments"
            raise UsageError(
                f"{where}: the class cannot be made {given} ({problem}).\n"
                "Write its parameters as options, as in [dim=64], give them defaults, or name a "
                "ready object of the module instead."
            ) from None


def _parse_argument(text: str) -> object:
    """A number, true, false or none where the text is one; else the text."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        with suppress(ValueError):
            return read(text)
    return text


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


def code_identity(model: object) -> dict[str, str]:
    """Hashes of what a custom model computes with: its source and its weights.

    They join its `identity`, so that changed code or weights never meet results of the old ones.
    Either is left out where there is none to be had.
    """
    hashes = {"source": _hash_source(model), "weights": _hash_weights(model)}
    return {name: value for name, value in hashes.items() if value}


def _hash_source(model: object) -> str | None:
    """sha256 of the source of a class and its bases, or of a function; libraries do not count."""
    kind = model if isinstance(model, type) or inspect.isfunction(model) else type(model)
    texts = []
    for part in inspect.getmro(kind) if isinstance(kind, type) else (kind,):
        try:
            file, text = inspect.getfile(part), inspect.getsource(part)
        except (OSError, TypeError):
            continue
        if not file.startswith((_OURS, *_INSTALLED)):
            texts.append(text)
    return hashlib.sha256("".join(texts).encode()).hexdigest() if texts else None


def _hash_weights(model: object) -> str | None:
    """sha256 of the weights of a torch module, or of the modules among an object's attributes."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    attributes = getattr(model, "__dict__", {})
    modules = {"": model} if isinstance(model, torch.nn.Module) else attributes
    digest, count = hashlib.sha256(), 0
    for name, module in sorted(modules.items()):
        if not isinstance(module, torch.nn.Module):
            continue
        for key, tensor in sorted(module.state_dict().items()):
            if isinstance(tensor, torch.Tensor):
                digest.update(f"{name}.{key} {tensor.dtype} {tuple(tensor.shape)};".encode())
                content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
                digest.update(content.numpy().data)
                count += 1
    return digest.hexdigest() if count else None


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
    """Where in the user's code something was raised, and what: `in FILE, line 3: KeyError: 'x'`.

    That is the innermost line of the user's own, else of whichever library failed.
    """
    message, walked = str(problem), list[tuple[str, int | None]]()
    for frame, line in traceback.walk_tb(problem.__traceback__):
        if not frame.f_code.co_filename.startswith((_OURS, "<frozen ")):
            walked.append((frame.f_code.co_filename, line))
    places = [(file, line) for file, line in walked if not file.startswith(_INSTALLED)] or walked
    if isinstance(problem, SyntaxError):
        message = problem.msg
        places += [(problem.filename, problem.lineno)] if problem.filename else []
    place = "in {}, line {}".format(*places[-1]) if places else "before any line of it ran"
    return f"{place}: {type(problem).__name__}{f': {message}' if message else ''}"


def _called(model: object, method: str) -> str:
    return f"{_type_name(model)}.{method}" if method else _type_name(model)


def _type_name(model: object) -> str:
    kind = model if hasattr(model, "__qualname__") else type(model)
    return f"{getattr(kind, '__module__', '')}.{getattr(kind, '__qualname__', kind)}"
