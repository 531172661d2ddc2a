"""Write results on NanoR2MED in the format of HAKARI-Bench's results repository.

One file per task, `OUT/hakari-results/MODEL/hakari-bench__NanoR2MED/TASK.json.xz`. Fields that only
HAKARI's own runner knows, such as its batch size, are null.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from r2med.errors import UsageError
from r2med.paths import slug
from r2med.results.record import Result
from r2med.results.versions import name_versions
from r2med.storage import write_file
from r2med.tasks.registry import TaskEntry, registered_task

_DATASET = "hakari-bench/NanoR2MED"
_PRIMARY = "ndcg@10"
#: Metrics by the names that HAKARI uses.
_METRICS = {"ndcg@10": "ndcg@10", "hit@100": "acc@100", "recall@100": "recall@100"}
#: The method that HAKARI lists a system under, by the backend of its first stage.
_METHODS = {"bm25": "bm25", "sparse": "sparse", "late": "late-interaction"}


def export_hakari(results: Sequence[Result], out: Path, warn: Callable[[str], None]) -> list[Path]:
    """Write results on the published NanoR2MED; other results are left out with a warning."""
    written = []
    named_results = [
        (name, result)
        for name, version in name_versions(results).items()
        for result in version.results
    ]
    for name, result in named_results:
        entry = registered_task(result.task)
        if result.suite != "nano" or entry is None:
            warn(f"{result.task}: left out; HAKARI-Bench takes results on NanoR2MED only.")
            continue
        if result.record.task.differences:
            warn(f"{result.task}: left out; the data is not the published data.")
            continue
        task_name = entry.split or entry.name
        folder = out / "hakari-results" / slug(name) / _DATASET.replace("/", "__")
        path = folder / f"{task_name}.json.xz"
        text = json.dumps(_to_hakari(name, result, entry, task_name), indent=2) + "\n"
        write_file(path, lzma.compress(text.encode()))
        written.append(path)
    if not written:
        raise UsageError(
            "Nothing to export: no result on the published NanoR2MED. "
            "Try: r2med fetch nano && r2med eval bm25 --task nano"
        )
    return written


def _to_hakari(name: str, result: Result, entry: TaskEntry, task_name: str) -> dict[str, Any]:
    stages = result.record.stages
    is_reranker = stages[-1].type == "reranker"
    method = "reranker" if is_reranker else _METHODS.get(stages[0].backend or "", "dense")
    metrics = {
        f"{task_name}_r2med_{hakari_metric}": result.metrics[metric]
        for metric, hakari_metric in _METRICS.items()
    }
    return {
        "generated_at_utc": datetime.now(UTC).isoformat(),
        "model": {"id": name, "method": method, "source": {"revision": result.key}},
        "environment": {"packages": dict(result.record.versions)},
        "target": {
            "dataset_name": "NanoR2MED",
            "dataset_id": _DATASET,
            "dataset_revision": entry.hub.revision if entry.hub else None,
            "split_name": task_name,
            "task_name": task_name,
            "corpus_config": "corpus",
            "queries_config": "queries",
            "qrels_config": "qrels",
            "candidate_config": "reranking_hybrid",
        },
        "config": {
            "batch_size": None,
            "primary_metric": _PRIMARY,
            "candidate_ranking": "reranking_hybrid" if is_reranker else None,
            "rerank_top_k": stages[-1].depth if is_reranker else None,
            "system": result.system,
        },
        "evaluation": {
            "evaluated_at_utc": result.record.created,
            "aggregate_metric": _PRIMARY,
            "aggregate_metric_value": result.metrics[_PRIMARY],
        },
        "metrics": metrics,
        "rerank_metrics": metrics if is_reranker else None,
    }
