"""Results in the formats of other tools: TREC run files, CSV tables, mteb's results cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from r2med.atomic import atomic_file
from r2med.errors import R2MedError
from r2med.home import slug
from r2med.results.lookup import leaves, newest_by_system
from r2med.results.record import Result
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import csv_text
from r2med.tasks.registry import find_task


def export_trec(results: Sequence[Result], out: Path, tell: Tell = log) -> list[Path]:
    """One run file per result, as `OUT/<task>/<system>-<key>.trec`."""
    written = []
    for result in results:
        path = out / slug(result.task) / f"{result.folder.name}.trec"
        result.run.to_trec(path, tag=slug(result.name))
        written.append(path)
    return written


def export_csv(results: Sequence[Result], out: Path, tell: Tell = log) -> list[Path]:
    """`results.csv`, one row per result and metric; `scores.csv`, one per result and query."""
    means = pa.Table.from_pylist(
        [
            {**_named(result), "metric": metric, "value": value}
            for result in results
            for metric, value in result.metrics.items()
        ]
    )
    queries = pa.concat_tables(map(_named_scores, results), promote_options="default")
    written = []
    for name, table in (("results.csv", means), ("scores.csv", queries)):
        _write(out / name, csv_text(table))
        written.append(out / name)
    return written


def export_mteb(results: Sequence[Result], out: Path, tell: Tell = log) -> list[Path]:
    """A results cache of mteb, which `mteb.ResultCache(OUT).load_results()` reads unaided.

    A system has one revision for all of its tasks, `OUT/results/<model>/<revision>/<task>.json`
    with a `model_meta.json` beside them; of several results on a task the newest is taken.
    """
    newest_first = sorted(results, key=lambda result: result.record.created, reverse=True)
    systems: dict[str, list[Result]] = {}
    for task in dict.fromkeys(result.task for result in results):
        on_task = [result for result in newest_first if result.task == task]
        for name, result in newest_by_system(on_task, tell).items():
            systems.setdefault(name, []).append(result)
    written = []
    for own in systems.values():
        system, revision = own[0].name, _mteb_revision(own)
        name = slug(system)  # with a short hash where it lost something
        name += "" if name == system else f"-{hashlib.sha256(system.encode()).hexdigest()[:8]}"
        folder = out / "results" / f"r2med__{name}" / revision
        model: dict[str, object] = {"name": f"r2med/{name}", "revision": revision}
        model |= {"languages": ["eng-Latn"], "framework": [], **dict.fromkeys(_UNKNOWN)}
        _write(folder / "model_meta.json", model)
        for result in own:
            data, task = _mteb_task(result)
            path = folder / f"{task}.json"
            _write(path, _mteb_record(result, task, data))
            written.append(path)
    return written


EXPORTS: Mapping[str, Callable[[Sequence[Result], Path, Tell], list[Path]]] = {
    "trec": export_trec,
    "csv": export_csv,
    "mteb": export_mteb,
}


def _mteb_revision(results: Sequence[Result]) -> str:
    """A hash of what decides a system's rankings on all of the tasks alike.

    What lies beside a task's data, such as its generations, differs from task to task.
    """
    first, *others = ({*map(repr, leaves(each.record.system.identity))} for each in results)
    alike = sorted(first.intersection(*others))
    return hashlib.sha256(json.dumps(alike).encode()).hexdigest()[:40]


#: Fields of mteb's model_meta.json that it needs and nobody here knows.
_UNKNOWN = (
    *("loader", "release_date", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim"),
    *("license", "open_weights", "public_training_code", "public_training_data"),
    *("similarity_fn_name", "use_instructions", "training_datasets"),
)


def _mteb_record(result: Result, name: str, revision: str) -> dict[str, object]:
    scores: dict[str, object] = {
        metric.replace("hit@", "hit_rate@").replace("@", "_at_"): value
        for metric, value in result.metrics.items()
    }
    scores |= {"main_score": result.metrics["ndcg@10"], "hf_subset": "default"}
    return {
        "dataset_revision": revision,
        "task_name": name,
        "mteb_version": None,
        "scores": {"test": [scores | {"languages": ["eng-Latn"]}]},
        "evaluation_time": sum(result.seconds.values()),
        "kg_co2_emissions": None,
    }


def _mteb_task(result: Result) -> tuple[str, str]:
    """The revision and the name mteb knows the task by; data of the user's own keeps its name."""
    try:
        entry = find_task(result.task)
    except R2MedError:
        return result.data, slug(result.task)
    revision = (entry.hub.revision if entry.hub else None) or result.data
    if entry.suite != "full":
        return revision, slug(entry.name)
    return revision, f"R2MED{re.sub(r'[^A-Za-z]', '', entry.name)}Retrieval"


def _write(path: Path, content: str | dict[str, object]) -> None:
    """A text as it is, anything else as JSON."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
    with atomic_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def _named(result: Result) -> dict[str, str]:
    return {
        "suite": result.suite or "local",
        "task": result.task,
        "system": result.name,
        "spec": result.system,
        "result": result.folder.name,
    }


def _named_scores(result: Result) -> pa.Table:
    scores = result.scores.to_arrow()
    named = {name: pa.repeat(value, len(scores)) for name, value in _named(result).items()}
    return pa.table({**named, **dict(zip(scores.column_names, scores.columns, strict=True))})
