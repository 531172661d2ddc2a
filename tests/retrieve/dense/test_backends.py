"""Exported models give what torch gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.errors import UsageError
from r2med.home import shelf
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense import build
from r2med.systems.registry import find_entry
from tests.retrieve.checkpoints import save_model, sentences
from tests.retrieve.small_task import own_task

pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("bert"), "bert")


def vectors(bert: Path, told: list[str], **options: str) -> Any:
    entry = find_entry("bge").overridden({"checkpoint": str(bert), **options})
    on = build(entry.fields, Conditions(tell=told.append))
    encoded = on.encode_queries(own_task(), sentences())
    return encoded.matrix()[encoded.distinct]


@pytest.mark.parametrize("backend", ["onnx", "openvino"])
def test_an_exported_model_gives_the_same_vectors_and_is_exported_once(
    bert: Path, backend: str
) -> None:
    pytest.importorskip("onnxruntime" if backend == "onnx" else "openvino")
    told: list[str] = []

    found = vectors(bert, told, backend=backend)
    vectors(bert, told, backend=backend, document_instruction="x", max_length="30")

    np.testing.assert_allclose(found, vectors(bert, told), atol=1e-4)
    assert [line for line in told if "exporting" in line] == [
        f"{bert}: exporting to {backend}, once."
    ]
    assert len(list(shelf("exports").iterdir())) == 1


def test_int8_weights_are_close_and_another_system(bert: Path) -> None:
    pytest.importorskip("onnxruntime")
    exact = vectors(bert, [])

    found = vectors(bert, [], backend="onnx", weights="int8")

    assert (found != exact).any()
    assert (found * exact).sum(axis=1).min() > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int8"}, "weights=int8 needs backend=onnx or backend=openvino"),
        ({"backend": "onnx", "attention": "bidirectional"}, "runs on torch only"),
    ],
)
def test_what_a_backend_cannot_do_is_told(
    bert: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        vectors(bert, [], **options)
