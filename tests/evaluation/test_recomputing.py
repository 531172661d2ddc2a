"""What is computed again: changed code and weights always, everything local under `force`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.errors import DataError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.models.user_code import code_identity
from r2med.results.leaderboard import leaderboard
from r2med.results.record import result_key
from r2med.systems.build import System

TASK = "demo/biology"


class Counting:
    """Vectors that depend on something outside the class, as a helper module's code would."""

    identity = "counting"
    factor = 1.0
    calls = 0

    def encode(self, texts: list[str]) -> Any:
        type(self).calls += len(texts)
        rows = [[len(text), self.factor * text.count("e"), text.count("a")] for text in texts]
        return np.array(rows, dtype=np.float32)


class CountingReranker(Counting):
    """The same for pairs."""

    encode = None  # type: ignore[assignment]

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        type(self).calls += len(pairs)
        return [self.factor * len(text) for _, text in pairs]


@pytest.fixture(autouse=True)
def reset(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Counting, CountingReranker):
        monkeypatch.setattr(kind, "calls", 0)
        monkeypatch.setattr(kind, "factor", 1.0)


@pytest.mark.parametrize(
    ("spec", "model"), [("mine", Counting), ("bm25 | mine@10", CountingReranker)]
)
def test_force_computes_embeddings_and_scores_again(spec: str, model: Callable[[], Any]) -> None:
    before = r2med.evaluate(spec, TASK, models={"mine": model()})
    computed = model.calls  # type: ignore[attr-defined]
    model.factor = -50.0  # type: ignore[attr-defined]

    after = r2med.evaluate(spec, TASK, models={"mine": model()}, force=True)

    assert computed > 0
    assert model.calls == 2 * computed  # type: ignore[attr-defined]
    assert after.metrics != before.metrics
    again = r2med.evaluate(f"{spec} + bm25" if spec == "mine" else spec, TASK,
                           models={"mine": model()})  # fmt: skip
    assert model.calls == 2 * computed, "the new vectors were not kept"  # type: ignore[attr-defined]
    assert again.metrics


def test_force_builds_the_index_again() -> None:
    results = [
        r2med.evaluate("bm25", TASK),
        r2med.evaluate("bm25[k1=2]", TASK),
        r2med.evaluate("bm25", TASK, force=True),
    ]

    origins = [result.record.facts[result.system]["index"] for result in results]
    assert origins == ["built", "cached", "built"]


def test_replaced_weights_of_a_torch_module_are_another_system() -> None:
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):  # type: ignore[name-defined, misc]
        identity = "module"

        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(2, 2)

        def encode(self, texts: list[str]) -> Any:
            rows = torch.tensor([[float(len(t)), float(t.count("e"))] for t in texts])
            return self.layer(rows).detach().numpy()

    class Wrapper:
        identity = "wrapper"

        def __init__(self, module: Any) -> None:
            self.module = module

        def encode(self, texts: list[str]) -> Any:
            return self.module.encode(texts)

    for wrap in (lambda module: module, Wrapper):
        module = Module()
        model = wrap(module)
        first = r2med.evaluate(System.from_model(model, name="m"), TASK)
        same = r2med.evaluate(System.from_model(model, name="m"), TASK)
        with torch.no_grad():
            module.layer.weight.data.copy_(torch.tensor([[0.0, 1.0], [1.0, -3.0]]))
        other = r2med.evaluate(System.from_model(model, name="m"), TASK)

        assert same.reused and not other.reused
        assert first.record.key == same.record.key != other.record.key


def test_a_strict_evaluation_refuses_a_result_that_was_stored_without(tmp_path: Path) -> None:
    run = r2med.evaluate("bm25", TASK).run
    run.to_trec(tmp_path / "run.trec", tag="x")
    with (tmp_path / "run.trec").open("a") as file:
        file.write("nobody Q0 nothing 1 1.0 x\n")
    spec = f"run:{tmp_path / 'run.trec'}"
    r2med.evaluate(spec, TASK)

    with pytest.raises(DataError, match="queries not in this task: 1"):
        r2med.evaluate(spec, TASK, strict=True)
    with pytest.raises(DataError, match="queries not in this task: 1"):
        r2med.evaluate(System.from_spec(spec, Resources(RunOptions(strict=True))), TASK)


def test_fresh_options_do_not_return_the_stored_result() -> None:
    r2med.evaluate("bm25", TASK)

    fresh = r2med.evaluate(System.from_spec("bm25", Resources(RunOptions(fresh=True))), TASK)

    assert not fresh.reused


HELPER = "def weigh(text):\n    return {weigh}\n\ndef unused():\n    return {unused}\n"
CUSTOM_MODULE = """
import {helper} as helper
from {helper} import weigh

SCALE = {scale}
TABLE = [SCALE, 1]
OTHER = {other}

def count(text):
    return TABLE[0] * text.count("e")

class Custom:
    identity = "custom"

    def encode(self, texts):
        return [[1.0, count(text), weigh(text), helper.weigh(text)] for text in texts]

    def predict(self, pairs):
        return [float(count(text) + weigh(text)) for _, text in pairs]

def also_unused():
    return {other}
"""


def key_of_custom_model(folder: Path, spec: str, **changes: str) -> str:
    """Write the modules of a custom model, some parts of which are changed; return its key."""
    values = {"weigh": "len(text)", "unused": "1", "scale": "1", "other": "1", **changes}
    helper, module = "custom_model_helper", "custom_model_module"
    (folder / f"{helper}.py").write_text(HELPER.format(**values))
    (folder / f"{module}.py").write_text(CUSTOM_MODULE.format(helper=helper, **values))
    for name in (helper, module):
        sys.modules.pop(name, None)
    stage = System.from_spec(spec).stage
    task = r2med.load_task(TASK)
    return result_key(task.hash, stage.identity(task), stage.ties(task))


@pytest.mark.parametrize("spec", ["model:{}:Custom", "bm25 | own:{}:Custom@5"])
@pytest.mark.parametrize(
    ("change", "is_used"),
    [
        ({"scale": "2"}, True),
        ({"weigh": "2 * len(text)"}, True),
        ({"unused": "2"}, False),
        ({"other": "2"}, False),
    ],
    ids=["constant", "helper in another module", "unused helper", "unused constant"],
)
def test_code_that_a_custom_class_uses_is_part_of_its_identity(
    spec: str,
    change: dict[str, str],
    is_used: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = spec.format("custom_model_module")
    before = key_of_custom_model(tmp_path, spec)

    after = key_of_custom_model(tmp_path, spec, **change)

    assert (after != before) == is_used
    assert key_of_custom_model(tmp_path, spec) == before


def test_a_class_of_a_notebook_is_another_system_when_its_cell_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    cell = """
class Cell:
    identity = "cell"

    def encode(self, texts):
        return [[len(text), {number}] for text in texts]
"""
    sources = []
    for number in (1, 1, 2):
        namespace: dict[str, Any] = {"__name__": "__main__"}
        exec(cell.format(number=number), namespace)
        sources.append(code_identity(namespace["Cell"]())["source"])

    assert sources[0] == sources[1] != sources[2]


def test_weights_deep_inside_a_custom_model_are_part_of_its_identity() -> None:
    torch = pytest.importorskip("torch")

    class Holder:
        def __init__(self, value: object) -> None:
            self.value = value

    layer = torch.nn.Linear(2, 2)
    model = Holder([Holder({"layer": layer})])
    before = code_identity(model)

    with torch.no_grad():
        layer.weight.add_(1)

    assert code_identity(model)["source"] == before["source"]
    assert code_identity(model)["weights"] != before["weights"]


@pytest.mark.parametrize(
    ("spec", "by_object"),
    [("model:{}:Custom", "mine"), ("bm25 | own:{}:Custom@5", "bm25 | mine@5")],
)
def test_a_custom_model_is_one_system_as_a_spec_and_as_an_object(
    spec: str, by_object: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = spec.format("custom_model_module")
    key_of_custom_model(tmp_path, spec)
    stored = r2med.evaluate(spec, TASK)
    model = importlib.import_module("custom_model_module").Custom()

    result = r2med.evaluate(by_object, TASK, models={"mine": model})

    assert result.reused and result.folder == stored.folder
    assert len(leaderboard("demo", task=TASK, results=Path("r2med-results")).rows) == (
        1 if spec.startswith("model") else 2  # the first stage has its own row
    )
