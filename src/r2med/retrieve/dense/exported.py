"""Backbones exported to onnx or openvino: made once from the torch model, kept, run without it."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.atomic import atomic_folder
from r2med.errors import MissingError, R2MedError
from r2med.home import shelf
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.backbone import Backbone, load_model, quiet_loading
from r2med.retrieve.dense.loading import load_tokenizer
from r2med.retrieve.dense.settings import Settings
from r2med.retrieve.dense.tokens import Features

if TYPE_CHECKING:
    import torch

    Run = Callable[[Features], "np.ndarray[Any, Any]"]

#: How exports are made; raised whenever their answers change, so that kept ones are not used.
EXPORT_FORMAT = 2

_OPSET = 17
_CALIBRATION_TEXTS = 128
_CALIBRATION_TOKENS = 128


class ExportedBackbone:
    """A compiled graph that answers with the last hidden states."""

    def __init__(self, run: Run, facts: Mapping[str, object]) -> None:
        self._run = run
        self._facts = facts

    def hidden(self, features: Features) -> torch.Tensor:
        """Run the graph on one batch."""
        import torch

        return torch.from_numpy(np.array(self._run(features), dtype=np.float32))

    def facts(self) -> Mapping[str, object]:
        """Runtime and precision."""
        return self._facts


def load_exported(
    folder: Path, settings: Settings, conditions: Conditions, fingerprint: str
) -> Backbone:
    """The exported model, exported now if this checkpoint never was."""
    load, export = _BACKENDS[settings.backend]
    told = {
        "checkpoint": fingerprint,
        "backend": settings.backend,
        "weights": settings.weights,
        "format": EXPORT_FORMAT,
    }
    key = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]
    place = shelf("exports") / key
    _needed(settings.backend, settings.weights)
    if not (place / "names.json").is_file():
        conditions.tell(f"{folder}: exporting to {settings.backend}, once.")
        with atomic_folder(place) as draft, _quiet():
            names = export(folder, draft, settings.weights, conditions)
            (draft / "names.json").write_text(json.dumps(names), encoding="utf-8")
    names = json.loads((place / "names.json").read_text(encoding="utf-8"))
    facts = {"backend": settings.backend, "device": "cpu", "weights": settings.weights}
    return ExportedBackbone(load(place, names), facts)


def _wrapped(folder: Path, conditions: Conditions) -> tuple[torch.nn.Module, list[str]]:
    """The torch model as a module of positional inputs, and their names."""
    import torch

    model = load_model(folder, "float32", conditions).eval()
    tokenizer = load_tokenizer(folder, conditions)
    known = [name for name in tokenizer("a") if name in ("attention_mask", "token_type_ids")]
    names = ["input_ids", *known]

    class Hidden(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *tensors: torch.Tensor) -> Any:
            return self.model(**dict(zip(names, tensors, strict=True))).last_hidden_state

    return Hidden().eval(), names


def _example(names: Sequence[str]) -> tuple[torch.Tensor, ...]:
    import torch

    return tuple(torch.ones((2, 8), dtype=torch.long) for _ in names)


def _export_onnx(folder: Path, place: Path, weights: str, conditions: Conditions) -> list[str]:
    import torch

    module, names = _wrapped(folder, conditions)
    free = {0: "texts", 1: "tokens"}
    target = place / "model.onnx"
    torch.onnx.export(
        module,
        _example(names),
        str(target),
        input_names=names,
        output_names=["hidden"],
        dynamic_axes=dict.fromkeys((*names, "hidden"), free),
        opset_version=_OPSET,
        dynamo=False,
    )
    if weights == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        plain = target.rename(place / "float.onnx")
        quantize_dynamic(
            plain, target, weight_type=QuantType.QInt8, per_channel=True, reduce_range=True
        )
        plain.unlink()
    return names


def _load_onnx(place: Path, names: Sequence[str]) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        str(place / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    return lambda features: session.run(None, {name: features[name] for name in names})[0]


def _export_openvino(folder: Path, place: Path, weights: str, conditions: Conditions) -> list[str]:
    import openvino

    module, names = _wrapped(folder, conditions)
    graph = openvino.convert_model(module, example_input=_example(names))
    if weights == "int8":
        graph = _quantised(graph, folder, names, conditions)
    openvino.save_model(graph, str(place / "model.xml"), compress_to_fp16=False)
    return names


def _quantised(graph: Any, folder: Path, names: Sequence[str], conditions: Conditions) -> Any:
    """Weights and activations in int8, the ranges taken from texts of the embedded demo suite.

    Weights use seven of the bits: processors without VNNI add products in 16 bits, which overflow.
    """
    import nncf

    from r2med.tasks.load import load_task

    tokenizer = load_tokenizer(folder, conditions)
    corpus = load_task("demo/medqa-diag").corpus.texts[:_CALIBRATION_TEXTS].to_pylist()
    limit = {"truncation": True, "max_length": _CALIBRATION_TOKENS}
    inputs = [tokenizer(text, return_tensors="np", **limit) for text in corpus]
    rows = [[told[name].astype(np.int64) for name in names] for told in inputs]
    return nncf.quantize(
        graph,
        nncf.Dataset(rows),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(rows),
        advanced_parameters=nncf.AdvancedQuantizationParameters(
            overflow_fix=nncf.OverflowFix.ENABLE
        ),
    )


def _load_openvino(place: Path, names: Sequence[str]) -> Run:
    import openvino

    told = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(str(place / "model.xml"), "CPU", told)
    return lambda features: compiled([features[name] for name in names])[0]


_BACKENDS = {
    "onnx": (_load_onnx, _export_onnx),
    "openvino": (_load_openvino, _export_openvino),
}
_PACKAGES = {
    ("onnx", "float"): ("onnx", "onnxruntime"),
    ("onnx", "int8"): ("onnx", "onnxruntime"),
    ("openvino", "float"): ("openvino",),
    ("openvino", "int8"): ("openvino", "nncf"),
}


def _needed(backend: str, weights: str) -> None:
    from importlib.util import find_spec

    absent = [name for name in _PACKAGES[backend, weights] if find_spec(name) is None]
    if absent:
        raise MissingError(
            f"backend={backend} needs {' and '.join(absent)}: pip install 'r2med[{backend}]'."
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Exporters print and warn of much that does not matter here, onto the stream of results.

    What fails is told in one sentence.
    """
    import logging

    level = logging.root.level
    try:
        logging.root.setLevel(logging.ERROR)
        with redirect_stdout(StringIO()), warnings.catch_warnings(), quiet_loading():
            warnings.simplefilter("ignore")
            yield
    except R2MedError:
        raise
    except Exception as problem:
        reason = (str(problem).strip().splitlines() or [""])[0]
        raise MissingError(
            f"the model cannot be exported ({type(problem).__name__}: {reason}). Use backend=torch."
        ) from problem
    finally:
        logging.root.setLevel(level)
