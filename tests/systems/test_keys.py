"""Every input that can change a ranking changes the key of its result; nothing else does."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
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
from r2med.remote.registry import LLM
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
def measure(text):
    return {helper} * len(text)

class Encoder:
    identity = "encoder"

    def encode(self, texts):
        return [[measure(text), {number}] for text in texts]

    def predict(self, pairs):
        return [{number} for _ in pairs]
"""
#: The files of a checkpoint that decide its vectors. The JSON files end with spaces, whose bytes
#: may change without another meaning.
CHECKPOINT = {
    "config.json": b'{"model_type": "bert"}' + b" " * 8,
    "model.safetensors": b"weights",
    "tokenizer.json": b"{}" + b" " * 8,
    "1_Pooling/config.json": b"{}" + b" " * 8,
    "2_Dense/pytorch_model.bin": b"projection",
}
#: One system for every kind of stage; FOLDER is a checkpoint, FILE a file of generations.
SYSTEMS = {
    "bm25": "bm25",
    "dense": 'dense:FOLDER[query_instruction="Find a {passage} for this {kind}: "]',
    "api": f"api:m[url={URL},query_instruction='For {{kind}}: ']",
    "fusion": "bm25 + bm25-nano",
    "expander": "hyde:qwen-7b[generations=live] | bm25",
    "file": "query2doc:qwen-7b[generations=FILE] | bm25",
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
    write_inputs(tmp_path, monkeypatch)
    return tmp_path


def write_inputs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write what the systems read, and work in their folder."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, content in CHECKPOINT.items():
        path = folder / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    write_module(folder, 1)
    write_generations(folder, "a passage")
    (folder / "run.trec").write_text("q1 Q0 d1 1 1.0 x\n")


def write_module(folder: Path, number: int, helper: int = 1) -> None:
    (folder / "keyed_module.py").write_text(MODULE.format(number=number, helper=helper))
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
    part=st.sampled_from(["documents", "queries", "document ids", "judgements", "exclusions"]),
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
        "exclusions": lambda: replace(
            task,
            queries=replace(
                queries, excluded_ids=pa.array([json.dumps([text]), None], pa.large_string())
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


def rewrite_helper(folder: Path) -> Changed:
    write_module(folder, 1, helper=2)
    return Changed()


def rewrite_generations(folder: Path) -> Changed:
    write_generations(folder, "another passage")
    return Changed()


#: For each input, a system that uses it and what changes it.
CHANGES: Mapping[str, tuple[str, Callable[[Path, pytest.MonkeyPatch], Changed]]] = {
    "weights": ("dense", lambda folder, _: rewrite(folder / WEIGHTS, b"WEIGHTS")),
    "another file of weights": (
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
    "helper of a class": ("custom", lambda folder, _: rewrite_helper(folder)),
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


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(CHECKPOINT)), index=st.integers(0, 100))
def test_every_byte_of_a_checkpoint_changes_the_key(
    name: str, index: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as monkeypatch:
        write_inputs(folder, monkeypatch)
        users = ("dense", "pairs", "sparse", "late")
        before = {user: key_of(user, registered_task(), folder) for user in users}
        path = folder / "model" / name
        status, content = path.stat(), bytearray(path.read_bytes())
        index %= 8 if name.endswith(".json") else len(content)
        content[-1 - index] = ord("\n") if name.endswith(".json") else content[-1 - index] ^ 1

        # As `cp -p` and tar do: another content, the same size and time.
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

        after = {user: key_of(user, registered_task(), folder) for user in users}
    assert not {user for user in users if after[user] == before[user]}


#: Fields of a language model's entry: another value for those that can change an answer or how it
#: is read, with the systems that they change, and for those that cannot.
BOTH = ("expander", "llm")
LLM_CHANGES: Mapping[str, tuple[object, tuple[str, ...]]] = {
    "model": ("another-model", BOTH),
    "server": ("any", BOTH),
    "stripping": ("think", ("expander", "file", "llm")),
    "top_p": (0.25, BOTH),
    "seed": (7, BOTH),
    "max_tokens": (99, BOTH),
    "max_tokens_as": ("max_completion_tokens", BOTH),
    "extra": ({"reasoning_effort": "low"}, BOTH),
    "temperature": (0.25, ("expander",)),  # a reranker sets its own
    "reasoning": (True, ("file",)),  # such a model's text is searched without the query
    "description": ("Another description", ()),
    "published_as": ("another name", ()),
    "key_env": ("ANOTHER_KEY", ()),
    "url": ("http://127.0.0.1:9/v1", ()),  # --llm-url replaces it
    "active_parameters": (1.5, ()),
    "output_limit": (50, ()),
    "expected_tokens": (50, ()),
    "price_in": (5.0, ()),
    "price_out": (5.0, ()),
    "price_date": ("2020-01", ()),
    "price_source": ("a page", ()),
}


@pytest.mark.parametrize("name", LLM_CHANGES)
def test_fields_of_a_language_model_change_the_keys_of_what_they_can_change(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value, users = LLM_CHANGES[name]
    before = {system: key_of(system, registered_task(), folder) for system in SYSTEMS}
    text = json.dumps(value)
    if isinstance(value, dict):
        text = "{" + ", ".join(f"{key} = {json.dumps(item)}" for key, item in value.items()) + "}"
    (folder / "llms.toml").write_text(f"[qwen-7b]\n{name} = {text}\n")
    monkeypatch.setenv("R2MED_LLM_CONFIG", str(folder / "llms.toml"))

    after = {system: key_of(system, registered_task(), folder) for system in SYSTEMS}

    assert {system for system in SYSTEMS if after[system] != before[system]} == set(users)


def test_every_field_of_a_language_model_is_among_those_tested() -> None:
    used_without_server = {"local", "local_package", "local_sha256", "local_context"}

    names = {field.name for field in fields(LLM)} - {"name"}

    assert names == LLM_CHANGES.keys() | used_without_server


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


OTHER_OPTION_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "trust_remote_code": st.booleans(),
    "strict": st.booleans(),
    "device": st.sampled_from([None, "cpu"]),
    "batch_tokens": st.integers(1, 10_000),
    "memory": st.integers(1, 10**9),
    "limits": st.builds(
        Limits,
        tokens=st.none() | st.integers(1, 10**6),
        concurrency=st.integers(1, 64),
        timeout=st.floats(1, 1000),
        attempts=st.integers(1, 9),
        backoff=st.floats(0, 9),
    ),
    "fresh": st.booleans(),
}
OTHER_OPTIONS = st.builds(RunOptions, **OTHER_OPTION_VALUES)
#: Options that can change a ranking; `CHANGES` has each of them.
RANKING_OPTIONS = {"llm_url", "prompts"}


def test_every_option_is_among_those_tested() -> None:
    other_names = {field.name for field in fields(RunOptions)} - RANKING_OPTIONS

    assert other_names == OTHER_OPTION_VALUES.keys()


@pytest.mark.parametrize(
    ("spec", "other_spec"),
    [
        ("bm25", "bm25[k1=0.9,b=0.4]"),
        ("bm25", "(BM25)"),
        ("bm25", "mine=bm25"),
        ("bm25 + bm25-nano", "x=bm25 + (bm25-nano) | rrf"),
        ("dense:./model", "y=dense:FOLDER/model"),
        ("run:run.trec", "run:./run.trec"),
        ("hyde:qwen-7b[generations=FILE] | bm25", "hyde:qwen-7b[generations=COPY] | (bm25)"),
        ("bm25 | ce:./model@5", "z=bm25 | ce:FOLDER/model@5"),
    ],
)
def test_labels_spellings_and_paths_leave_the_key(spec: str, other_spec: str, folder: Path) -> None:
    shutil.copy(folder / "generations.jsonl", folder / "copy.jsonl")
    task = registered_task()
    keys = []
    for text in (spec, other_spec):
        for name, path in (
            ("FOLDER", folder),
            ("FILE", folder / "generations.jsonl"),
            ("COPY", folder / "copy.jsonl"),
        ):
            text = text.replace(name, str(path))
        stage = System.from_spec(text, Resources(RunOptions(), warn=lambda _: None)).stage
        keys.append(result_key(task.hash, stage.identity(task), stage.ties(task)))

    assert keys[0] == keys[1]


@settings(max_examples=8, deadline=None)
@given(options=OTHER_OPTIONS, name=st.text(min_size=1, max_size=5), notice=st.text(max_size=5))
def test_everything_else_leaves_the_key(
    options: RunOptions, name: str, notice: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as monkeypatch:
        write_inputs(folder, monkeypatch)
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
