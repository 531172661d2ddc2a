"""Export results to formats of other tools: TREC run files, CSV tables, mteb's results cache."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa

from r2med.errors import DataError
from r2med.execution.resources import Warn, log_warning
from r2med.paths import slug
from r2med.results.answers import answer_notes
from r2med.results.published_data import NOT_PUBLISHED, describe_other_data, has_published_data
from r2med.results.record import Result
from r2med.results.versions import group_versions, sort_by_age
from r2med.storage import write_file
from r2med.tables import csv_text
from r2med.tasks.registry import in_suite_order, registered_task


def export_trec(results: Sequence[Result], out: Path, tell: Warn = log_warning) -> list[Path]:
    """Write one run file per result, as `OUT/<task>/<system>-<key>.trec`.

    `OUT/notes.txt` lists what run files cannot contain: problems with answers of language models,
    and data that is not the published data.
    """
    written = []
    for result in results:
        path = out / slug(result.task) / f"{_result_name(result)}.trec"
        result.run.to_trec(path, tag=slug(result.name))
        written.append(path)
    notes = list(_export_notes(results))
    for note in notes:
        tell(note)
    if notes:
        written.append(out / "notes.txt")
        _write(written[-1], "\n".join(notes) + "\n")
    return written


def _export_notes(results: Sequence[Result]) -> Iterator[str]:
    yield from answer_notes(results)
    for result in results:
        if result.suite is not None and (difference := describe_other_data(result)):
            yield f"{_result_name(result)} on {result.task} {NOT_PUBLISHED}: {difference}"


def export_csv(results: Sequence[Result], out: Path, tell: Warn = log_warning) -> list[Path]:
    """Write `results.csv` (by result and metric) and `scores.csv` (by result and query)."""
    means = pa.Table.from_pylist(
        [
            {**_describe(result), "metric": metric, "value": value}
            for result in results
            for metric, value in result.metrics.items()
        ]
    )
    scores = []
    for result in results:
        table = result.scores.to_arrow()
        columns = {name: pa.repeat(value, len(table)) for name, value in _describe(result).items()}
        scores.append(
            pa.table({**columns, **dict(zip(table.column_names, table.columns, strict=True))})
        )
    queries = pa.concat_tables(scores, promote_options="default")
    written = {out / "results.csv": means, out / "scores.csv": queries}
    for path, table in written.items():
        _write(path, csv_text(table))
    return [*written]


def export_mteb(results: Sequence[Result], out: Path, tell: Warn = log_warning) -> list[Path]:
    """Write a results cache that `mteb.ResultCache(OUT).load_results()` reads.

    Each version of a system has one revision for all of its tasks,
    `OUT/results/<model>/<revision>/<task>.json` with a `model_meta.json`, so results of two
    versions never share a folder. Results on other data than the published data are refused,
    because mteb's task names mean the published data. The scores include counts of language
    models' answers.
    """
    _refuse_other_data(results)
    for note in answer_notes(results):
        tell(note)
    written = []
    for version in group_versions(sort_by_age(results)):
        revision = hashlib.sha256(version.key.encode()).hexdigest()[:40]
        name = slug(version.name)
        if name != version.name:  # a short hash keeps names apart that lost characters
            name += f"-{hashlib.sha256(version.name.encode()).hexdigest()[:8]}"
        folder = out / "results" / f"r2med__{name}" / revision
        model: dict[str, object] = {"name": f"r2med/{name}", "revision": revision}
        model |= {"languages": ["eng-Latn"], "framework": [], **dict.fromkeys(_UNKNOWN)}
        _write(folder / "model_meta.json", json.dumps(model, indent=2) + "\n")
        for task in in_suite_order(sorted(version.tasks)):
            result = version.result(task)
            if result is not None:
                record = _mteb_record(result)
                written.append(folder / f"{record['task_name']}.json")
                _write(written[-1], json.dumps(record, indent=2) + "\n")
    return written


def _refuse_other_data(results: Sequence[Result]) -> None:
    refused = [
        result for result in results if result.suite is not None and not has_published_data(result)
    ]
    if refused:
        listed = "\n".join(f"  {result.name}: {describe_other_data(result)}" for result in refused)
        raise DataError(
            f"mteb's task names promise the published data, which these results do not have:\n"
            f"{listed}\nExport other tasks with --task, or evaluate on the published data."
        )


EXPORTS: Mapping[str, Callable[[Sequence[Result], Path, Warn], list[Path]]] = {
    "trec": export_trec,
    "csv": export_csv,
    "mteb": export_mteb,
}


#: Fields of mteb's model_meta.json that are required but not known here.
_UNKNOWN = (
    *("loader", "release_date", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim"),
    *("license", "open_weights", "public_training_code", "public_training_data"),
    *("similarity_fn_name", "use_instructions", "training_datasets"),
)


def _mteb_record(result: Result) -> dict[str, object]:
    """Return a result with mteb's name and revision of its task, if mteb has the task."""
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
    if (answers := result.summary.answers) is not None:
        scores |= {f"answers_{name}": count for name, count in asdict(answers).items()}
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


def _result_name(result: Result) -> str:
    """Return the system and the key as a file name, without any path in the spec."""
    key = result.folder.name.rpartition("-")[2]
    return f"{slug(result.system)}-{key}"


def _describe(result: Result) -> dict[str, str]:
    """Return the columns that identify the result of a row, and the data that was searched.

    Two versions of one system, such as old and new weights in one folder, differ in `version`.
    """
    return {
        "suite": result.suite or "local",
        "task": result.task,
        "system": result.name,
        "spec": result.system,
        "version": result.system_key[:8],
        "result": _result_name(result),
        "answers": str(result.summary.answers or ""),
        "data": result.data,
        "data_note": (describe_other_data(result) or "") if result.suite else "",
    }
