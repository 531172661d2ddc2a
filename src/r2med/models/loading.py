"""Load a checkpoint's tokeniser, encoder or classifier, and say in a sentence why one cannot be.

Code that comes with a checkpoint runs only where the caller trusts it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.models.checkpoint import read_json

#: Vocabularies that transformers reads in place of the one that a tokeniser's class names.
_OTHER_VOCABULARIES = ("tokenizer.*", "tekken.json", "*tiktoken*")
#: Weights of a head that hidden states do not pass; many encoders are saved without it.
_UNUSED = ("pooler.",)
#: Keys of a checkpoint's JSON files whose values sentence-transformers imports.
_IMPORTED_KEYS = {"type", "types", "tokenizer_class", "activation_function"}
_LIBRARY_PREFIXES = ("sentence_transformers.", "torch.nn.")
#: Names that the library replaces by classes of its own without importing them.
_LIBRARY_ALIASES = {"pylate.models.Dense.Dense"}
#: Large files that name no class.
_VOCABULARIES = {"tokenizer.json", "vocab.json"}


def need(*libraries: str, extra: str) -> None:
    """A MissingError that says what to install, where a library is not installed."""
    absent = [name for name in libraries if find_spec(name) is None]
    if absent:
        raise MissingError(
            f"this model needs {' and '.join(absent)}: pip install 'r2med[{extra}]'."
        )


def load_tokenizer(folder: Path, *, trust_remote_code: bool) -> Any:
    """A checkpoint's tokeniser; without a vocabulary every text would be unknown tokens."""
    from transformers import AutoTokenizer

    with named_failures(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust_remote_code)
    names = sorted(set((tokenizer.vocab_files_names or {}).values()))
    patterns = (*names, *_OTHER_VOCABULARIES)
    if names and not any(next(folder.glob(pattern), None) for pattern in patterns):
        raise MissingError(
            f"{folder}: holds no tokenizer; expected {' or '.join(names)}.\n"
            "Save it beside the model with tokenizer.save_pretrained(FOLDER)."
        )
    return tokenizer


def load_encoder(folder: Path, *, dtype: str, trust_remote_code: bool) -> Any:
    """A checkpoint's encoder; of an encoder-decoder, the encoder alone."""
    from transformers import AutoConfig, AutoModel, AutoModelForTextEncoding

    with named_failures(folder), quiet_loading():
        config = AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code)
        loader = AutoModelForTextEncoding if _has_decoder(config) else AutoModel
    model, absent = _pretrained(loader, folder, dtype=dtype, trust_remote_code=trust_remote_code)
    absent = [key for key in absent if not key.startswith(_UNUSED)]
    if absent:
        raise DataError(f"{folder}: {_lacks(absent)}")
    return model


def load_classifier(
    folder: Path, *, dtype: str, trust_remote_code: bool, labels: int | None = None
) -> Any:
    """A checkpoint as a sequence classifier; with `labels`, one that an adapter gives its head."""
    from transformers import AutoModelForSequenceClassification

    options = {"dtype": dtype, "trust_remote_code": trust_remote_code}
    if labels is not None:
        return _pretrained(
            AutoModelForSequenceClassification, folder, num_labels=labels, **options
        )[0]
    model, absent = _pretrained(AutoModelForSequenceClassification, folder, **options)
    if absent:
        raise DataError(
            f"{folder}: the checkpoint lacks {absent[0]}, which would start at random in "
            f"{type(model).__name__}, so it is no reranker."
        )
    return model


def load_causal(folder: Path, *, dtype: str, trust_remote_code: bool) -> Any:
    """A checkpoint as a language model that predicts the next token."""
    from transformers import AutoModelForCausalLM

    model, absent = _pretrained(
        AutoModelForCausalLM, folder, dtype=dtype, trust_remote_code=trust_remote_code
    )
    if absent:
        raise DataError(f"{folder}: {_lacks(absent)}")
    return model


def _lacks(absent: list[str]) -> str:
    return (
        f"the checkpoint lacks {len(absent)} of the model's weights, such as {absent[0]}; they "
        "would be random."
    )


def _pretrained(loader: Any, folder: Path, **options: Any) -> tuple[Any, list[str]]:
    """A model, and the weights that its files lack."""
    with named_failures(folder), quiet_loading():
        model, info = loader.from_pretrained(folder, output_loading_info=True, **options)
    return model, sorted(info["missing_keys"])


def _has_decoder(config: Any) -> bool:
    """Whether the architecture has a decoder, also where only its encoder was saved."""
    saved = getattr(config, "architectures", None) or []
    return bool(config.is_encoder_decoder) or any(name.endswith("EncoderModel") for name in saved)


def chosen_device(device: str | None) -> str:
    """The device asked for, after a trial with one number; None takes cuda, mps or cpu."""
    import torch

    devices = ["cpu", *(f"cuda:{place}" for place in range(torch.cuda.device_count()))]
    if torch.backends.mps.is_available():
        devices.append("mps")
    if device is None:
        return "cuda" if torch.cuda.is_available() else devices[-1]
    try:
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError):
        raise UsageError(
            f"--device {device}: not a device of this machine, which has {', '.join(devices)}."
        ) from None
    return device


def refuse_foreign_code(folder: Path, *, trust_remote_code: bool) -> None:
    """A UsageError where a checkpoint's files name classes that its library does not bring.

    Sentence-transformers imports what its JSON files name: modules and a router's parts, tokenisers
    and activations. Which of these it checks depends on its version, so they are checked here.
    """
    if trust_remote_code or not (folder / "modules.json").is_file():
        return
    for file in sorted(folder.rglob("*.json")):
        if file.name in _VOCABULARIES:
            continue
        for name in _class_names(read_json(file)):
            if not name.startswith(_LIBRARY_PREFIXES) and name not in _LIBRARY_ALIASES:
                raise UsageError(
                    f"{file}: names {name}, code that is not part of sentence-transformers or "
                    "torch. Read it, then allow it with --trust-remote-code."
                )


def _class_names(content: object) -> Iterator[str]:
    """Dotted names under the keys that are imported, at any depth."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
            for key in _IMPORTED_KEYS & set(part):
                values = part[key].values() if isinstance(part[key], dict) else [part[key]]
                yield from (name for name in values if isinstance(name, str) and "." in name)


@contextmanager
def named_failures(place: Path) -> Iterator[None]:
    """Whatever a library raises over a checkpoint or a file of it, as an error that names it."""
    try:
        yield
    except R2MedError:
        raise
    except (OSError, ImportError) as problem:
        raise MissingError(f"{place}: {_first_line(problem)}") from problem
    except Exception as problem:
        if isinstance(problem, ValueError) and "trust_remote_code" in str(problem):
            raise UsageError(foreign_code(place)) from None
        raise DataError(
            f"{place}: cannot be loaded ({type(problem).__name__}: {_first_line(problem)})."
        ) from problem


def foreign_code(place: object) -> str:
    """What to say of a checkpoint that cannot run without code of its own."""
    return (
        f"{place} runs code that comes with the checkpoint. Read it, then allow it with "
        "--trust-remote-code."
    )


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Transformers' bars and warnings off, and back to what they were; errors are raised."""
    logging: Any = importlib.import_module("transformers.utils.logging")

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]
