"""What is computed again: changed code and weights always, everything local under `force`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import r2med
from r2med.errors import DataError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
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
