"""The house keeps its shape: rooms import earlier rooms only, and the front door stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med

BASE_MODULES = {
    "algorithms", "errors", "number_format", "offline", "paths", "plugins", "schema", "settings",
    "storage", "tables", "versions",
}  # fmt: skip
ROOMS = (
    "tasks",
    "runs",
    "remote",
    "execution",
    "models",
    "retrieve",
    "expand",
    "rerank",
    "systems",
    "measure",
    "results",
    "judge",
    "answer",
    "nano",
    "audit",
    "evaluation",
    "build",
    "agents",
    "callbacks",
    "report",
    "serve",
    "explore",
    "cli",
)
HEAVY = {
    "numpy",
    "pyarrow",
    "pandas",
    "polars",
    "scipy",
    "torch",
    "transformers",
    "sentence_transformers",
    "openai",
    "ray",
    "huggingface_hub",
    "altair",
    "starlette",
    "duckdb",
}
PACKAGE = Path(r2med.__file__).parent


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if path.parent != PACKAGE]


def imported(path: Path) -> Iterator[str]:
    """The rooms and ground-floor modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name.split(".")[1] for name in names if name.startswith("r2med."))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_earlier_rooms(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    allowed = BASE_MODULES | set(ROOMS[: ROOMS.index(room) + 1])

    assert set(imported(path)) <= allowed


@pytest.mark.parametrize("name", sorted(BASE_MODULES))
def test_the_ground_floor_stands_on_nothing_but_itself(name: str) -> None:
    assert set(imported(PACKAGE / f"{name}.py")) <= BASE_MODULES


def loaded_after(code: str) -> set[str]:
    listing = f"{code}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_plain_bm25_loads_no_room_of_models_that_it_does_not_run() -> None:
    code = "import r2med; r2med.evaluate('bm25', 'demo/biology')"
    listing = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True
    )
    rooms = {name.split(".")[1] for name in done.stdout.split() if name.startswith("r2med.")}

    assert not rooms & {"remote", "expand", "rerank", "models", "judge"}


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded_after("import r2med") & HEAVY


def test_the_command_line_loads_nothing_heavy_before_it_works() -> None:
    assert not loaded_after("import r2med.cli.app") & HEAVY


def test_every_public_name_means_the_same_before_and_after_everything_is_loaded() -> None:
    code = """
import importlib, pkgutil, types, r2med
first = {name: getattr(r2med, name) for name in dir(r2med)}
for room in pkgutil.iter_modules(r2med.__path__, "r2med."):
    if room.name != "r2med.__main__":
        importlib.import_module(room.name)
task = r2med.load_task("demo/biology")
result, other = r2med.evaluate_all([r2med.System.from_spec("bm25"), "bm25-nano"], task)
assert isinstance(task, r2med.Task) and isinstance(task.corpus, r2med.Corpus)
assert isinstance(task.queries, r2med.Queries) and isinstance(task.judgements, r2med.Judgements)
assert isinstance(result, r2med.Result) and isinstance(result.run, r2med.Run)
assert isinstance(result.scores, r2med.Scores) and len(list(r2med.Store().folders())) == 2
assert not r2med.RunOptions().strict and r2med.Resources().workers is None
for use in (r2med.compare("bm25", "bm25-nano"), r2med.leaderboard("demo"), r2med.diagnose(result)):
    assert str(use)
try:
    r2med.reproduce("bm25", "demo")
except r2med.R2MedError as problem:
    assert "No figures are published for the demo suite" in str(problem)
scores = r2med.score(result.run, task.judgements, ["ndcg@10"])
assert scores.means()["ndcg@10"] == result.metrics["ndcg@10"]
again = {name: getattr(r2med, name) for name in dir(r2med)}
assert first == again, set(first) ^ set(again)
assert not any(isinstance(value, types.ModuleType) for value in again.values())
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = r2med.no_such_name
