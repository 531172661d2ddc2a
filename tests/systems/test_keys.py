"""Every input that can change a ranking changes the key of its result; nothing else does."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med import algorithms
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.remote.budget import Limits
from r2med.results.record import result_key
from r2med.retrieve.dense import retriever as dense_retriever
from r2med.settings import read_packaged_toml
from r2med.systems.build import System
from r2med.tasks.registry import find_task
from r2med.tasks.task import Task, column_hash
from tests.retrieve.small_task import own_task

pytest.importorskip("torch")

WEIGHTS = "model/model.safetensors"
URL = "http://127.0.0.1:1/v1"
MODULE = """
class Encoder:
    identity = "encoder"

    def encode(self, texts):
        return [[len(text), {number}] for text in texts]

    def predict(self, pairs):
        return [{number} for _ in pairs]
"""
#: One system for every kind of stage; FOLDER is a checkpoint, FILE a file of generations.
SYSTEMS = {
    "bm25": "bm25",
    "dense": 'dense:FOLDER[query_instruction="Find a {passage} for this {kind}: "]',
    "api": f"api:m[url={URL},query_instruction='For {{kind}}: ']",
    "fusion": "bm25 + bm25-nano",
    "expander": "hyde:qwen-7b[generations=live] | bm25",
    "file": "hyde:qwen-7b[generations=FILE] | bm25",
    "pairs": "bm25 | ce:FOLDER@5",
    "llm": "bm25 | listwise:qwen-7b@5",
    "custom": "model:keyed_module:Encoder",
    "own": "bm25 | own:keyed_module:Encoder@5",
    "run": "run:RUN",
    "static": "wordllama",
    "sparse": "splade:FOLDER",
    "late": "colbert:FOLDER",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint, a module, generations and a run file in the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    write_module(tmp_path, 1)
    write_generations(tmp_path, "a passage")
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 1.0 x\n")
    return tmp_path


def write_module(folder: Path, number: int) -> None:
    (folder / "keyed_module.py").write_text(MODULE.format(number=number))
    sys.modules.pop("keyed_module", None)


def write_generations(folder: Path, text: str) -> None:
    rows = [{"id": query, "hy_doc": text} for query in ("q1", "q2")]
    (folder / "generations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def key_of(name: str, task: Task, folder: Path, options: RunOptions | None = None) -> str:
    spec = SYSTEMS[name].replace("'", '"').replace("FOLDER", str(folder / "model"))
    spec = spec.replace("FILE", str(folder / "generations.jsonl"))
    spec = spec.replace("RUN", str(folder / "run.trec"))
    options = replace(options or RunOptions(), llm_url=(options and options.llm_url) or URL)
    stage = System.from_spec(spec, Resources(options, warn=lambda _: None)).stage
    return result_key(task.hash, stage.identity(task), stage.ties(task))


def registered_task(**changes: Any) -> Task:
    """A small task with a registered entry, some of whose fields are changed."""
    return own_task(entry=replace(find_task("Biology"), **changes))


def change_texts(column: pa.Array, row: int, text: str) -> pa.Array:
    texts = column.to_pylist()
    texts[row % len(texts)] = f"{texts[row % len(texts)]}{text}"
    return pa.array(texts, pa.large_string())


@settings(max_examples=60, deadline=None)
@given(
    part=st.sampled_from(["documents", "queries", "document ids", "judgements"]),
    row=st.integers(0, 10),
    text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=3),
)
def test_every_byte_of_the_data_changes_the_key(part: str, row: int, text: str) -> None:
    task = own_task()
    corpus, queries, judgements = task.corpus, task.queries, task.judgements
    changed = {
        "documents": lambda: replace(
            task, corpus=replace(corpus, texts=change_texts(corpus.texts, row, text))
        ),
        "document ids": lambda: replace(
            task, corpus=replace(corpus, ids=change_texts(corpus.ids, row, text))
        ),
        "queries": lambda: replace(
            task, queries=replace(queries, texts=change_texts(queries.texts, row, text))
        ),
        "judgements": lambda: replace(
            task,
            judgements=type(judgements)(
                pa.array(["q1"], pa.large_string()),
                pa.array([f"d{text}"], pa.large_string()),
                np.array([row + 1], dtype=np.int32),
            ),
        ),
    }[part]()

    stage = System.from_spec("bm25").stage
    keys = [result_key(t.hash, stage.identity(t), stage.ties(t)) for t in (task, changed)]

    assert keys[0] != keys[1]


def write_prompt(folder: Path, text: str, name: str) -> RunOptions:
    """A folder of prompts of the user's, in which one text of a prompt is longer."""
    from r2med.expand import prompts as expander_prompts
    from r2med.rerank import llm

    package = Path(expander_prompts.__file__).parent / "hyde"
    shutil.copytree(package, folder / "prompts" / "hyde", dirs_exist_ok=True)
    shutil.copytree(Path(llm.__file__).parent / "prompts", folder / "prompts", dirs_exist_ok=True)
    file = folder / "prompts" / name
    content = file.read_text()
    position = content.rindex("{query}")
    file.write_text(f"{content[:position]}{text} {content[position:]}")
    return RunOptions(prompts=folder / "prompts")


class Changed(NamedTuple):
    """The task and options after a change, where they are what changed."""

    task: Task | None = None
    options: RunOptions | None = None


def rewrite(path: Path, content: bytes) -> Changed:
    path.write_bytes(content)
    return Changed()


def reworded(monkeypatch: pytest.MonkeyPatch) -> Changed:
    """Change the package's words for the passages of every purpose."""
    wording = json.loads(json.dumps(read_packaged_toml("retrieve/dense/wording.toml")))
    for row in wording["wording"]:
        row["passage"] = f"good {row['passage']}"
    monkeypatch.setattr(dense_retriever, "read_packaged_toml", lambda path: wording)
    return Changed()


def rewrite_module(folder: Path) -> Changed:
    write_module(folder, 2)
    return Changed()


def rewrite_generations(folder: Path) -> Changed:
    write_generations(folder, "another passage")
    return Changed()


#: For each input, a system that uses it and what changes it.
CHANGES: Mapping[str, tuple[str, Callable[[Path, pytest.MonkeyPatch], Changed]]] = {
    "weights": ("dense", lambda folder, _: rewrite(folder / WEIGHTS, b"WEIGHTS")),
    "weights of a projection": (
        "dense",
        lambda folder, _: rewrite(folder / "model" / "head.bin", b"layer"),
    ),
    "weights of a reranker": ("pairs", lambda folder, _: rewrite(folder / WEIGHTS, b"WEIGHTS")),
    "kind in the instruction": ("dense", lambda *_: Changed(registered_task(kind="riddle"))),
    "purpose in the instruction": ("dense", lambda *_: Changed(registered_task(purpose="other"))),
    "instruction behind an API": ("api", lambda *_: Changed(registered_task(kind="riddle"))),
    "wording of the package": ("dense", lambda _, monkeypatch: reworded(monkeypatch)),
    "prompt of an expander": (
        "expander",
        lambda folder, _: Changed(options=write_prompt(folder, "Dear model,", "hyde/post.toml")),
    ),
    "prompt of a reranker": (
        "llm",
        lambda folder, _: Changed(options=write_prompt(folder, "Dear model,", "listwise.toml")),
    ),
    "server of a model": (
        "expander",
        lambda *_: Changed(options=RunOptions(llm_url="http://127.0.0.1:2/v1")),
    ),
    "generations": ("file", lambda folder, _: rewrite_generations(folder)),
    "class source": ("custom", lambda folder, _: rewrite_module(folder)),
    "class source of a reranker": ("own", lambda folder, _: rewrite_module(folder)),
    "run file": ("run", lambda folder, _: rewrite(folder / "run.trec", b"q1 Q0 d2 1 1.0 x\n")),
    "suite of a fusion": ("fusion", lambda *_: Changed(replace(registered_task(), suite="nano"))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_input_of_a_ranking_changes_the_key(
    change: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, apply = CHANGES[change]
    before = key_of(name, registered_task(), folder)

    changed = apply(folder, monkeypatch)

    task = changed.task or registered_task()
    assert key_of(name, task, folder, changed.options) != before


@pytest.mark.parametrize("algorithm", algorithms.ALGORITHM_VERSIONS)
def test_another_version_of_an_algorithm_changes_the_keys_of_its_results(
    algorithm: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {
        "lucene-analysis": ("bm25", "fusion", "llm"),
        "nano-analysis": ("fusion",),
        "bm25": ("bm25", "fusion", "llm"),
        "transformer-encoding": ("dense",),
        "library-encoding": ("sparse", "late"),
        "static-encoding": ("static",),
        "api-encoding": ("api",),
        "vector-search": ("dense", "api", "custom", "static"),
        "sparse-search": ("sparse",),
        "late-interaction": ("late",),
        "run-fitting": ("run",),
        "fusion": ("fusion",),
        "expansion": ("expander", "file"),
        "pair-scoring": ("pairs",),
        "llm-reranking": ("llm",),
        "reranking": ("pairs", "llm", "own"),
    }[algorithm]
    task = registered_task()
    before = {name: key_of(name, task, folder) for name in SYSTEMS}
    raised = {**algorithms.ALGORITHM_VERSIONS, algorithm: 99}
    monkeypatch.setattr(algorithms, "ALGORITHM_VERSIONS", raised)

    changed = {name for name in SYSTEMS if key_of(name, task, folder) != before[name]}

    assert changed >= set(users)
    assert changed != set(SYSTEMS), "a version of one algorithm makes all results anew"


def move_model(folder: Path) -> None:
    """Copy the checkpoint over itself: other times and inodes, the same content."""
    shutil.copytree(folder / "model", folder / "copy")
    shutil.rmtree(folder / "model")
    (folder / "copy").rename(folder / "model")
    (folder / "model" / "README.md").write_text("A card.")
    (folder / "model" / "pytorch_model.bin").write_bytes(b"the same weights for other libraries")


OTHER_OPTIONS = st.builds(
    RunOptions,
    trust_remote_code=st.booleans(),
    strict=st.booleans(),
    device=st.sampled_from([None, "cpu"]),
    batch_tokens=st.integers(1, 10_000),
    memory=st.integers(1, 10**9),
    limits=st.builds(Limits, tokens=st.none() | st.integers(1, 10**6)),
    fresh=st.booleans(),
)


@settings(max_examples=8, deadline=None)
@given(options=OTHER_OPTIONS, name=st.text(min_size=1, max_size=5), notice=st.text(max_size=5))
def test_everything_else_leaves_the_key(
    options: RunOptions, name: str, notice: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "path", list(sys.path))
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text('{"model_type": "bert"}')
        (folder / "model" / "model.safetensors").write_bytes(b"weights")
        write_module(folder, 1)
        write_generations(folder, "a passage")
        (folder / "run.trec").write_text("q1 Q0 d1 1 1.0 x\n")
        task = registered_task()
        before = {system: key_of(system, task, folder) for system in SYSTEMS}
        move_model(folder)
        other = replace(task, name=name, notices=(notice,), source=folder)

        after = {system: key_of(system, other, folder, options) for system in SYSTEMS}

    assert after == before


def test_one_system_has_one_identity_on_all_of_its_tasks(folder: Path) -> None:
    tasks = [registered_task(), registered_task(kind="riddle")]
    spec = SYSTEMS["dense"].replace("FOLDER", str(folder / "model"))
    stage = System.from_spec(spec).stage

    identities = [stage.identity(task) for task in tasks]

    assert identities[0] != identities[1]
    common = [algorithms.without_task_specifics(identity) for identity in identities]
    assert common[0] == common[1]


def test_the_hash_of_columns_tells_boundaries_apart() -> None:
    texts = [["ab", "c"], ["a", "bc"], ["abc"], ["", "abc"]]

    hashes = {column_hash([pa.array(row, pa.large_string())]) for row in texts}

    assert len(hashes) == len(texts)
