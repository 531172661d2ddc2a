"""Custom models: Python objects, functions, or names such as `package.module:Class`.

A model is, in this order: a retriever (`identity` and `prepare`), the reference repository's
CustomModel (`encode_queries` and `encode_corpus`), a SentenceTransformer, or any function from a
list of texts to a matrix. A class is instantiated without arguments.

Output of the user's code goes to standard error. Its exceptions become one message with the user's
file and line, and are kept as the cause.
"""

from __future__ import annotations

import importlib
import sys
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
from r2med.models.user_code import INSTALLED, PACKAGE, code_identity
from r2med.retrieve.dense.retriever import DenseRetriever, Similarity, word_instruction
from r2med.retrieve.interface import Retriever
from r2med.settings import setting

Encode = Callable[[list[str]], object]


@dataclass(frozen=True)
class UserModelSettings:
    """The settings of `model:package.module:Class`; the model has a separate identity."""

    query_instruction: str = ""
    document_instruction: str = ""
    similarity: Similarity = "cosine"
    target: str = setting(default="", identity="content")
    arguments: tuple[str, ...] = ()
    """Arguments of the class, each as NAME=VALUE: all options that are not other fields."""


def build(settings: UserModelSettings, resources: Resources) -> Retriever:
    """Return the retriever of `model:package.module:Class`."""
    model, name = load_target(settings.target, settings.arguments), settings.target
    return retriever_of(model, name=name, resources=resources, settings=settings)


def retriever_of(
    model: object,
    *,
    name: str | None = None,
    resources: Resources,
    settings: UserModelSettings | None = None,
) -> Retriever:
    """Return a retriever that uses a custom model; UsageError if the object is not a model."""
    model = instantiate(model, name or _type_name(model))
    if callable(getattr(model, "prepare", None)) and hasattr(model, "identity"):
        return cast("Retriever", model)
    settings = settings or UserModelSettings()
    encoders = _encoders(model, settings.arguments)
    instructions: dict[Side, str] = {
        "query": settings.query_instruction,
        "document": settings.document_instruction,
    }
    return DenseRetriever(
        name=name or name_model(model),
        make_encoders=lambda: encoders,
        form=lambda task, side: Form(word_instruction(instructions[side], task)),
        similarity=settings.similarity,
        extra_identity={
            **{f"{side}_instruction": text for side, text in instructions.items()},
            "search": {"similarity": settings.similarity, "dimensions": 0},
        },
        resources=resources,
        custom_model=model,
    )


def name_model(model: object) -> str:
    """Return a model's `name`, else the name of its class or function, made valid for a spec."""
    type_name = _type_name(model).rpartition(".")[2].strip("<>")
    return str(getattr(model, "name", "") or (type_name if type_name[:1].isalnum() else "model"))


@dataclass(eq=False)
class UserEncoder:
    """The query encoder or the document encoder of a custom model."""

    model: object
    call: Encode
    method: str
    side: Side | None = None
    arguments: tuple[str, ...] = ()
    """The arguments with which the model's class was instantiated, each as NAME=VALUE."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """The model's `identity` with a hash of its code and weights; None if the model has none.

        If the model encodes queries and documents differently, the side is included.
        """
        declared = read_identity(self.model, _name_method(self.model, "identity"))
        if declared is None:
            return None
        identity: dict[str, object] = {"identity": str(declared)}
        if isinstance(declared, Mapping):
            identity = dict(declared)
        if self.side:
            identity["side"] = self.side
        if self.arguments:
            identity["arguments"] = list(self.arguments)
        return {"library": "custom", **identity, **code_identity(self.model)}

    def inputs(self, texts: Sequence[str], form: Form) -> TextInputs:
        """Return the texts unchanged; the model tokenises them."""
        return TextInputs.of(texts, form)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Call the model and convert its output to float32."""
        texts = [inputs.model_input(int(row)) for row in rows]
        method_name = _name_method(self.model, self.method)
        with run_user_code(method_name):
            vectors = self.call(texts)
        return as_matrix(vectors, method_name)

    def facts(self) -> Mapping[str, object]:
        """Return the type of the model, and whether its vectors are cached."""
        return {"object": _type_name(self.model), "cached": self.identity is not None}


def _encoders(model: Any, arguments: tuple[str, ...] = ()) -> tuple[UserEncoder, UserEncoder]:
    """Return a model's encoders of queries and of documents.

    `arguments` are those with which the model was made, each as NAME=VALUE.
    """

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
            f"{_type_name(model)} is not a model: expected encode_queries and encode_corpus, a "
            "SentenceTransformer, or a function from texts to vectors; see docs/your-model.md."
        )
    call, method = (model.encode, "encode") if has("encode") else (model, "")
    encoder = UserEncoder(model, call, method, arguments=arguments)
    return encoder, encoder


def _corpus_call(model: Any) -> Encode:
    """Return a function that calls `encode_corpus` with dicts, or with texts if dicts fail.

    The reference repository passes dicts, but some models expect texts.
    """
    takes_texts = False

    def encode(texts: list[str]) -> object:
        nonlocal takes_texts
        if takes_texts:
            return model.encode_corpus(texts)
        try:
            return model.encode_corpus([{"text": text} for text in texts])
        except (TypeError, AttributeError, KeyError, ValueError) as problem:
            method_name = _name_method(model, "encode_corpus")
            first_error = f"{method_name} failed on dicts {describe_error(problem)}"
            with run_user_code(f"{first_error}\nand it, called with plain texts,"):
                vectors = model.encode_corpus(texts)
            takes_texts = True
            return vectors

    return encode


def as_matrix(vectors: Any, source: str = "the model") -> NDArray[np.float32]:
    """Return tensors, arrays or lists of vectors as one float32 array."""

    def to_numpy(value: Any) -> Any:
        if not hasattr(value, "detach"):
            return value
        tensor = value.detach().cpu()
        return (tensor if tensor.is_complex() else tensor.float()).numpy()

    try:
        if isinstance(vectors, Sequence):
            array = np.asarray([to_numpy(row) for row in vectors])
        else:
            array = np.asarray(to_numpy(vectors))
        if vectors is not None and not np.iscomplexobj(array):
            return np.ascontiguousarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        pass
    raise DataError(
        f"{source} returned {type(vectors).__name__} that is not a matrix of real numbers; "
        "expected one vector of equal length for each text."
    )


def load_target(target: str, arguments: Sequence[str] = ()) -> object:
    """Return the object `package.module:name`; a class is instantiated.

    Modules in the working folder are found too. That folder stays on the import path, because a
    model may import more modules when it runs. `arguments` are those of the class, each as
    NAME=VALUE.
    """
    module_name, _, attribute = target.rpartition(":")
    parts = module_name.split(".")
    if not attribute or parts[-1] == "py" or not all(part.isidentifier() for part in parts):
        raise UsageError(
            f"model {target!r}: expected package.module:Class as in an import from the working "
            "folder, for example my_models.encoder:Encoder for the class Encoder in "
            "my_models/encoder.py."
        )
    working_folder = str(Path.cwd())
    if working_folder not in sys.path:
        sys.path.insert(0, working_folder)
    with run_user_code(f"model {target!r}: importing {module_name} from {working_folder}"):
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as problem:
            # Something that the user's module imports is missing, not the module itself.
            if not f"{module_name}.".startswith(f"{problem.name}."):
                raise
            raise MissingError(
                f"model {target!r}: no module {problem.name!r} in {working_folder} or among the "
                "installed packages."
            ) from None
    if not hasattr(module, attribute):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise UsageError(
            f"model {target!r}: {module_name} has no {attribute!r}. {nearest(attribute, public)}"
        )
    return instantiate(getattr(module, attribute), f"model {target!r}", arguments)


def instantiate(model: object, where: str, arguments: Sequence[str] = ()) -> object:
    """Instantiate a class with arguments (each NAME=VALUE); return any other object unchanged."""
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
    with run_user_code(f"{where}: making {model.__name__}({', '.join(arguments)})"):
        try:
            return model(**values)
        except TypeError as problem:
            if problem.__traceback__ is None or problem.__traceback__.tb_next is not None:
                raise  # the class accepted the arguments and failed later
            with_arguments = f"with {', '.join(arguments)}" if arguments else "without arguments"
            raise UsageError(
                f"{where}: the class cannot be instantiated {with_arguments} ({problem}).\n"
                "Write its parameters as options, as in [dim=64], give them defaults, or name an "
                "object of the module instead of a class."
            ) from None


def _parse_argument(text: str) -> object:
    """Return the number, True, False or None that a text represents; else the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number_type in (int, float):
        with suppress(ValueError):
            return number_type(text)
    return text


def read_identity(model: object, where: str) -> str | float | Mapping[str, object] | None:
    """Return the value of a model's attribute or method `identity`.

    None is returned if the model has neither.
    """
    with run_user_code(where):
        identity = getattr(model, "identity", None)
        identity = identity() if callable(identity) else identity
    if identity is not None and not _is_comparable(identity):
        raise UsageError(
            f"{where} is {identity!r}; expected a text, a number, or a mapping of these, because "
            "other runs compare it. See docs/your-model.md."
        )
    return identity


def _is_comparable(identity: object) -> bool:
    """Return whether other runs can compare the value; objects have a new address in each run."""
    if isinstance(identity, Mapping):
        return all(
            isinstance(key, str) and _is_comparable(value) for key, value in identity.items()
        )
    return isinstance(identity, str | int | float)


@contextmanager
def run_user_code(action: str) -> Iterator[None]:
    """Send the output of a block to stderr, and turn its exceptions and exits into DataError."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except R2MedError:
        raise
    except (Exception, SystemExit) as problem:
        raise DataError(f"{action} failed {describe_error(problem)}") from problem


def describe_error(problem: BaseException) -> str:
    """Return the position and text of an error, as `in FILE, line 3: KeyError: 'x'`.

    The line is the innermost one in the user's code; if no line is, the innermost one in a library.
    """
    message = str(problem)
    outside_package: list[tuple[str, int | None]] = []
    for frame, line in traceback.walk_tb(problem.__traceback__):
        if not frame.f_code.co_filename.startswith((PACKAGE, "<frozen ")):
            outside_package.append((frame.f_code.co_filename, line))
    in_user_code = [
        (file, line) for file, line in outside_package if not file.startswith(INSTALLED)
    ]
    lines = in_user_code or outside_package
    if isinstance(problem, SyntaxError):
        message = problem.msg
        if problem.filename:
            lines.append((problem.filename, problem.lineno))
    position = "before any line of it ran"
    if lines:
        innermost_file, line_number = lines[-1]
        position = f"in {innermost_file}, line {line_number}"
    return f"{position}: {type(problem).__name__}{f': {message}' if message else ''}"


def _name_method(model: object, method: str) -> str:
    return f"{_type_name(model)}.{method}" if method else _type_name(model)


def _type_name(model: object) -> str:
    definition = model if hasattr(model, "__qualname__") else type(model)
    module = getattr(definition, "__module__", "")
    return f"{module}.{getattr(definition, '__qualname__', definition)}"
