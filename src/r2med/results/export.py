"""Results in the formats of other tools: TREC run files, CSV tables, mteb's results cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from r2med.atomic import write_file
from r2med.home import slug
from r2med.results.lookup import leaves, newest_by_system, newest_first
from r2med.results.record import Result
from r2med.retrieve.conditions import Tell, log
from r2med.tabular import csv_text
from r2med.tasks.registry import registered_task


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
    scores = []
    for result in results:
        table = result.scores.to_arrow()
        named = {name: pa.repeat(value, len(table)) for name, value in _named(result).items()}
        scores.append(
            pa.table({**named, **dict(zip(table.column_names, table.columns, strict=True))})
        )
    queries = pa.concat_tables(scores, promote_options="default")
    written = {out / "results.csv": means, out / "scores.csv": queries}
    for path, table in written.items():
        _write(path, csv_text(table))
    return [*written]


def export_mteb(results: Sequence[Result], out: Path, tell: Tell = log) -> list[Path]:
    """A results cache of mteb, which `mteb.ResultCache(OUT).load_results()` reads unaided.

    A system has one revision for all of its tasks, `OUT/results/<model>/<revision>/<task>.json`
    with a `model_meta.json` beside them; of several results on a task the newest is taken.
    """
    systems: dict[str, list[Result]] = {}
    for task in dict.fromkeys(result.task for result in results):
        on_task = [result for result in newest_first(results) if result.task == task]
        for name, result in newest_by_system(on_task, tell).items():
            systems.setdefault(name, []).append(result)
    written = []
    for own in systems.values():
        # What lies beside a task's data, such as its generations, differs from task to task; the
        # revision is a hash of what decides the rankings on all of the tasks alike.
        first, *others = ({*map(repr, leaves(each.record.system.identity))} for each in own)
        alike = json.dumps(sorted(first.intersection(*others)))
        revision, system = hashlib.sha256(alike.encode()).hexdigest()[:40], own[0].name
        name = slug(system)  # with a short hash where it lost something
        name += "" if name == system else f"-{hashlib.sha256(system.encode()).hexdigest()[:8]}"
        folder = out / "results" / f"r2med__{name}" / revision
        model: dict[str, object] = {"name": f"r2med/{name}", "revision": revision}
        model |= {"languages": ["eng-Latn"], "framework": [], **dict.fromkeys(_UNKNOWN)}
        _write(folder / "model_meta.json", json.dumps(model, indent=2) + "\n")
        for result in own:
            record = _mteb_record(result)
            written.append(folder / f"{record['task_name']}.json")
            _write(written[-1], json.dumps(record, indent=2) + "\n")
    return written


EXPORTS: Mapping[str, Callable[[Sequence[Result], Path, Tell], list[Path]]] = {
    "trec": export_trec,
    "csv": export_csv,
    "mteb": export_mteb,
}


#: Fields of mteb's model_meta.json that it needs and nobody here knows.
_UNKNOWN = (
    *("loader", "release_date", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim"),
    *("license", "open_weights", "public_training_code", "public_training_data"),
    *("similarity_fn_name", "use_instructions", "training_datasets"),
)


def _mteb_record(result: Result) -> dict[str, object]:
    """A result under the revision and the name that mteb knows its task by, if it does."""
    entry = registered_task(result.task) if result.suite else None
    name, revision = slug(result.task), result.data
    if entry:
        revision = (entry.hub.revision if entry.hub else None) or revision
        if entry.suite == "full":
            name = f"R2MED{re.sub(r'[^A-Za-z]', '', entry.name)}Retrieval"
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


def _write(path: Path, text: str) -> None:
    write_file(path, text)


def _named(result: Result) -> dict[str, str]:
    return {
        "suite": result.suite or "local",
        "task": result.task,
        "system": result.name,
        "spec": result.system,
        "result": result.folder.name,
    }
