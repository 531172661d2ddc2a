"""Results in the formats of other tools: TREC run files, CSV tables, mteb's JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from r2med.atomic import atomic_file
from r2med.errors import R2MedError
from r2med.results.record import Result
from r2med.tabular import csv_text
from r2med.tasks.registry import find_task


def export_trec(results: Iterable[Result], out: Path) -> list[Path]:
    """One run file a result, as `OUT/<task>/<system>.trec`."""
    written = []
    for result in results:
        path = out / _file_name(result.task) / f"{result.folder.name}.trec"
        result.run.to_trec(path, tag=_file_name(result.system))
        written.append(path)
    return written


def export_csv(results: Iterable[Result], out: Path) -> list[Path]:
    """`results.csv`, one row per result and metric; `scores.csv`, one per result and query."""
    found = list(results)
    means = pa.Table.from_pylist(
        [
            {**_named(result), "metric": metric, "value": value}
            for result in found
            for metric, value in result.metrics.items()
        ]
    )
    queries = pa.concat_tables(map(_named_scores, found), promote_options="default")
    written = []
    for name, table in (("results.csv", means), ("scores.csv", queries)):
        with atomic_file(out / name) as draft:
            draft.write_text(csv_text(table), encoding="utf-8")
        written.append(out / name)
    return written


def export_mteb(results: Iterable[Result], out: Path) -> list[Path]:
    """Files as mteb stores results, `OUT/<system>/<revision>/<task>.json`, one a result."""
    written = []
    for result in results:
        revision, name = _mteb_task(result)
        path = out / _file_name(result.system) / result.folder.name[-12:] / f"{name}.json"
        text = json.dumps(_mteb_record(result, name, revision), indent=2) + "\n"
        with atomic_file(path) as draft:
            draft.write_text(text, encoding="utf-8")
        written.append(path)
    return written


EXPORTS: Mapping[str, Callable[[Iterable[Result], Path], list[Path]]] = {
    "trec": export_trec,
    "csv": export_csv,
    "mteb": export_mteb,
}


def _mteb_record(result: Result, name: str, revision: str) -> dict[str, object]:
    scores = {metric.replace("@", "_at_"): value for metric, value in result.metrics.items()}
    return {
        "dataset_revision": revision,
        "task_name": name,
        "mteb_version": None,
        "scores": {
            "test": [
                {
                    **scores,
                    "main_score": result.metrics["ndcg@10"],
                    "hf_subset": "default",
                    "languages": ["eng-Latn"],
                }
            ]
        },
        "evaluation_time": sum(result.seconds.values()),
        "kg_co2_emissions": None,
    }


def _mteb_task(result: Result) -> tuple[str, str]:
    """The revision and the name mteb knows the task by; data of the user's own keeps its name."""
    try:
        entry = find_task(result.task)
    except R2MedError:
        return result.record.task.hash, _file_name(result.task)
    revision = (entry.hub.revision if entry.hub else None) or result.record.task.hash
    if entry.suite != "full":
        return revision, _file_name(entry.name)
    return revision, f"R2MED{re.sub(r'[^A-Za-z]', '', entry.name)}Retrieval"


def _named(result: Result) -> dict[str, str]:
    return {"suite": result.suite or "local", "task": result.task, "system": result.system}


def _named_scores(result: Result) -> pa.Table:
    scores = result.scores.to_arrow()
    named = {name: pa.repeat(value, len(scores)) for name, value in _named(result).items()}
    return pa.table({**named, **dict(zip(scores.column_names, scores.columns, strict=True))})


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "unnamed"
