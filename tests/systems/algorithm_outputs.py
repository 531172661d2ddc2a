"""One output of every algorithm that decides rankings, on fixed inputs.

`python -m tests.systems.algorithm_outputs` writes the outputs of algorithms whose version is new to
`algorithm_outputs.json`. It refuses an output that changed under the same version.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from r2med.algorithms import ALGORITHM_VERSIONS
from r2med.expand.agents import TAGS
from r2med.expand.answers import Rule, classify_answer, extract_answer
from r2med.models.checkpoint import locate
from r2med.models.encoding import Form
from r2med.remote.budget import Budget, Limits
from r2med.rerank.llm_answers import read_grade, read_order, read_scores, split_thought
from r2med.rerank.scores import reorder_run
from r2med.retrieve.api import ApiEncoder, ApiSettings
from r2med.retrieve.bm25.analyzers import find_analyzer
from r2med.retrieve.fusion import Fusion
from r2med.retrieve.multi import TokenRows, maxsim, pack_words
from r2med.retrieve.run_files import Findings, restrict_to_task
from r2med.runs import Run
from r2med.settings import parse_settings
from r2med.systems.build import System
from r2med.systems.registry import entries
from tests.building import texts
from tests.retrieve.small_task import own_task

FILE = Path(__file__).with_name("algorithm_outputs.json")
TEXTS = ["The patient's kidneys were failing.", "Dose of insulin: 3.5 mg", "", "IL-6 & COVID-19"]
RUNS = (
    {"q1": [("d1", 3.0), ("d2", 2.0), ("d3", 1.0)], "q2": [("d2", 1.0)]},
    {"q1": [("d3", 0.9), ("d4", 0.5), ("d1", 0.5)], "q2": [("d5", 0.1), ("d2", 0.1)]},
)


def lists(run: Run) -> dict[str, list[list[Any]]]:
    return {query: [list(hit) for hit in run.ranking(query)] for query in run.query_ids.to_pylist()}


def runs() -> list[Run]:
    return [Run.from_lists(content) for content in RUNS]


def analysis(name: str) -> list[list[str]]:
    columns = find_analyzer(name).analyze(texts(*TEXTS))
    return [columns.row(row) for row in range(len(columns))]


def search(spec: str, model: object = None) -> dict[str, list[list[Any]]]:
    task = own_task()
    models = {"mine": model} if model is not None else {}
    stage: Any = System.from_spec(spec, models=models).stage
    return lists(stage.retriever.prepare(task).search(task.queries, depth=3))


def bm25() -> object:
    return {name: search(name) for name in ("bm25", "bm25-lucene", "bm25-nano")}


def letters(batch: list[str]) -> list[list[float]]:
    return [[text.count(letter) + 0.1 for letter in "aeiou"] for text in batch]


def checkpoint(folder: Path, *, library: bool = False) -> Path:
    """A tiny encoder whose weights are a fixed formula, not random numbers."""
    import torch

    from tests.retrieve.checkpoints import save_model, save_modules

    save_model(folder, "bert")
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    for place, name in enumerate(sorted(weights)):
        shape = weights[name].shape
        values = torch.arange(int(np.prod(shape)), dtype=torch.float64).reshape(shape)
        weights[name] = torch.sin(values * 0.37 + place).to(torch.float32) * 0.2
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if library:
        save_modules(folder, pooling="mean")
        config = json.loads((folder / "1_Pooling" / "config.json").read_text())
        config |= {"pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    return folder


def encoded(*, library: bool = False) -> object:
    with tempfile.TemporaryDirectory() as folder:
        path = checkpoint(Path(folder) / "model", library=library)
        outputs = {}
        for options in ("[pooling=model]",) if library else ("", "[pooling=cls]", "[pooling=last]"):
            stage: Any = System.from_spec(f"dense:{path}{options}").stage
            task = own_task()
            documents = stage.retriever.encode(task, "document", list(DOCUMENT_TEXTS))
            outputs[options] = documents.matrix()[documents.distinct].tolist()
        return outputs


DOCUMENT_TEXTS = ("renal failure", "the heart of the patient", "")


def static_encoding() -> object:
    from r2med.retrieve.dense.static import StaticEncoder

    model = StaticEncoder(locate("dleemiller/word-llama-l2-supercat"), normalize=True)
    inputs = model.inputs(TEXTS, Form("", 5))
    return [row[:8] for row in model.encode(inputs, np.arange(len(TEXTS))).tolist()]


def api_encoding() -> object:
    outputs = []
    for name in ("openai", "openai-raw"):
        settings = parse_settings(ApiSettings, entries()[name].fields)
        encoder = ApiEncoder(settings, "query", Budget(Limits()))
        outputs.append(list(encoder.inputs(TEXTS, Form("Find: ", 6000)).texts))
    return outputs


def pair_scoring() -> object:
    import torch
    from safetensors.torch import load_file, save_file

    from r2med.rerank.scores import Candidates
    from tests.rerank import tiny

    with tempfile.TemporaryDirectory() as folder:
        path = tiny.save_bert(Path(folder) / "bert")
        weights = load_file(path / "model.safetensors")
        for place, name in enumerate(sorted(weights)):
            shape = weights[name].shape
            values = torch.arange(int(np.prod(shape)), dtype=torch.float64).reshape(shape)
            weights[name] = torch.sin(values * 0.37 + place).to(torch.float32) * 0.2
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
        stage: Any = System.from_spec(f"bm25 | ce:{path}@3").stage
        one = Candidates("q", "acute fever", ["a", "b"], ["cough drug dose", "heart " * 90])
        return [scores.tolist() for scores in stage.reranker.rerank([one]).scores]


def llm_reranking() -> object:
    answers = ["<think>[1]?</think>[3] > [1] > [3]", "2, 1", '{"[1]": 4, "[2]": 11}', "Score: 7/10"]
    return [
        [list(read_order(part, 3) or ()), read_scores(part, 3), read_grade(part)]
        for part in (split_thought(answer)[1] for answer in answers)
    ]


def expansion() -> object:
    rule = Rule("{query} {generated}", ("{query}", "{generated}"))
    form = rule.form("q", "why?", ["because", "therefore"])
    raws = ["I'm sorry, but I can't help.", "<think>a</think> b", "<answer>c</answer>"]
    return {
        "form": [form.lexical, [[part.text, part.generated] for part in form.dense]],
        "judged": [classify_answer(raw, raw, "stop").outcome for raw in raws],
        "stripped": [[extract_answer(raw, how) for how in ("think", "answer")] for raw in raws],
        "turns": [list(vars(TAGS["search-r1"].read("x <search>a b</search> c")).values())],
    }


def fusion() -> object:
    methods = (Fusion(), Fusion("minmax"), Fusion("zscore", weights=(1.0, 2.0)))
    return [lists(method.fuse(runs(), depth=3)) for method in methods]


def reranking() -> object:
    first = runs()[0]
    scores = [np.array([0.1, 0.9], np.float32), np.array([0.5], np.float32)]
    return {tail: lists(reorder_run(first, scores, 2, tail)) for tail in ("keep", "drop")}


def sparse_search() -> object:
    return pack_words(sp.csr_matrix(np.array([[0.0, 2.0, 0.5], [1.0, 0.0, 0.0]]))).tolist()


def late_interaction() -> object:
    rows = np.arange(12, dtype=np.float32).reshape(6, 2) - 4
    queries, documents = TokenRows(rows, np.array([0, 2, 6])), TokenRows(rows, np.array([0, 3, 6]))
    return maxsim(queries, documents).tolist()


def run_fitting() -> object:
    run, findings = restrict_to_task(runs()[1], own_task(), Findings(), "run")
    return [lists(run), dict(findings.facts())]


OUTPUTS: Mapping[str, Callable[[], object]] = {
    "lucene-analysis": lambda: analysis("lucene"),
    "nano-analysis": lambda: analysis("nano"),
    "bm25": bm25,
    "transformer-encoding": encoded,
    "library-encoding": lambda: encoded(library=True),
    "static-encoding": static_encoding,
    "api-encoding": api_encoding,
    "vector-search": lambda: search("mine", letters),
    "sparse-search": sparse_search,
    "late-interaction": late_interaction,
    "run-fitting": run_fitting,
    "fusion": fusion,
    "expansion": expansion,
    "pair-scoring": pair_scoring,
    "llm-reranking": llm_reranking,
    "reranking": reranking,
}


def output_of(name: str) -> Any:
    """The output as JSON has it; floats are compared with a tolerance."""
    return json.loads(json.dumps(OUTPUTS[name]()))


def is_close(first: Any, second: Any) -> bool:
    """Whether two outputs are equal, numbers to about four digits."""
    if isinstance(first, float | int) and isinstance(second, float | int):
        return bool(np.isclose(first, second, rtol=1e-4, atol=1e-4))
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_close, first, second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(is_close(first[k], second[k]) for k in first)
    return bool(first == second)


def main() -> None:
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, version in ALGORITHM_VERSIONS.items():
        output = output_of(name)
        known = stored.get(name, {"version": None})
        if known["version"] == version and not is_close(known["output"], output):
            raise SystemExit(f"{name}: the output changed; raise its version in r2med.algorithms.")
        if known["version"] != version:
            stored[name] = {"version": version, "output": output}
    lines = [f"  {json.dumps(name)}: {json.dumps(stored[name])}" for name in sorted(stored)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
