"""Freeze a build: the task in R2MED's layout and as Parquet, with manifest, card and audit keys.

The same inputs give the same bytes: there are no dates, and every list has a fixed order.

    frozen/NAME/                corpus.jsonl, query.jsonl, qrels.jsonl (evidence)
    frozen/NAME/judgements/     gold.jsonl, undecided.jsonl
    frozen/hub/                 the same as Parquet, with a README for the hub
    frozen/manifest.json        counts, hashes and the record of every stage
    frozen/README.md            data card; funnel.svg is its figure
    frozen/exclusions.jsonl.gz  audit keys: hashes that keep the benchmark out of training data
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from r2med.audit.evaluation import write_exclusions
from r2med.build.answers import names_answer
from r2med.build.card import CardFacts, write_card
from r2med.build.folder import BuildFolder, BuildRecord, hash_file, write_rows
from r2med.build.funnel import Funnel, funnel_svg, make_funnel
from r2med.build.items import BuildItem
from r2med.build.judge import load_judged
from r2med.build.review import ReviewState, read_review, record_review
from r2med.build.searching import run_system
from r2med.build.working_task import check_current, hash_inputs, load_working_task, make_queries
from r2med.errors import DataError, plural
from r2med.execution.resources import Resources
from r2med.judge.pool import texts_of
from r2med.judge.rubric import find_rubric
from r2med.measure.scores import measure
from r2med.settings import setting, settings_identity
from r2med.storage import atomic_folder
from r2med.tasks.load import load_task
from r2med.tasks.task import Judgements, Task

METRIC = "ndcg@10"


@dataclass(frozen=True)
class FreezeSettings:
    """The table `[freeze]` of build.toml."""

    lexical_baseline: str = "bm25"
    """System that must not solve a query; see `drop_if_lexical_ndcg`."""
    drop_if_lexical_ndcg: float | None = setting(default=1.0, least=0, most=1)
    """Queries are dropped if the baseline reaches this nDCG@10; "none" keeps all queries."""
    dev_share: float = setting(default=0.0, least=0, most=0.9)
    """Share of the queries in a development split; 0 writes one task without splits."""


@dataclass(frozen=True)
class Relevance:
    """The decided and undecided candidates of one query, sorted."""

    positives: tuple[str, ...]
    negatives: tuple[str, ...]
    undecided: tuple[str, ...]


@dataclass(frozen=True)
class FreezeOutcome:
    """The frozen folder and its figures."""

    folder: Path
    tasks: tuple[Path, ...]
    record: BuildRecord
    review: ReviewState
    funnel: Funnel


@dataclass(frozen=True)
class _Split:
    """Items that are written as one task."""

    name: str
    hub_name: str
    items: tuple[BuildItem, ...]


def freeze_build(folder: BuildFolder, resources: Resources) -> FreezeOutcome:
    """Write the finished benchmark to the folder `frozen`, replacing an earlier one in one step.

    Raises:
        UsageError: A stage has not finished, or its inputs changed since.
        DataError: No query is left.
    """
    settings = folder.stage_settings("freeze", FreezeSettings)
    check_current(folder, "judge")
    with folder.hold("freeze"):
        task, items = load_working_task(folder)
        _, review = record_review(folder, warn=resources.warn)
        if review.disagreements:
            resources.warn(
                f"{plural(review.disagreements, 'pair')} with different labels not settled: "
                "without a majority on relevance the judge's grade counts. Settle them on the page "
                f"of: r2med build review {folder.path} --reviewer NAME"
            )
        relevance = decide_relevance(folder, resources)
        queries_in = len(items)
        drops: Counter[str] = Counter()
        remaining = [item for item in items if relevance[item.id].positives]
        drops["no positive"] = queries_in - len(remaining)
        remaining, solved = _drop_solved(task, remaining, relevance, settings, resources)
        drops["solved by the lexical baseline"] = solved
        if not remaining:
            reasons = ", ".join(f"{count} {reason}" for reason, count in drops.items())
            raise DataError(
                f"{folder.path}: no query is left of {queries_in} ({reasons}). Look at "
                f"{folder.judged_path.name}; a stricter judge or corpus may have no positives."
            )
        gold = _gold(task, remaining, relevance)
        record = BuildRecord(
            stage="freeze",
            parameters=settings_identity(settings),
            models=(settings.lexical_baseline,),
            inputs={
                **hash_inputs(folder),
                folder.judged_path.name: hash_file(folder.judged_path),
            },
            counts_in={"queries": queries_in},
            counts_out={
                "queries": len(remaining),
                "passages": len(task.corpus),
                "positives": sum(len(relevance[item.id].positives) for item in remaining),
                "negatives": sum(len(relevance[item.id].negatives) for item in remaining),
                "undecided": sum(len(relevance[item.id].undecided) for item in remaining),
                "gold": sum(len(documents) for documents in gold.values()),
            },
            drops={reason: count for reason, count in drops.items() if count},
        )
        earlier = [r for r in folder.records() if r.stage not in ("freeze", "check")]
        funnel = make_funnel(folder.benchmark.name, [*earlier, record])
        with atomic_folder(folder.frozen_folder) as draft:
            tasks = _write_all(
                draft, folder, task, remaining, relevance, gold, settings, record, review, funnel
            )
        folder.write_record(record)
    paths = tuple(folder.frozen_folder / name for name in tasks)
    return FreezeOutcome(folder.frozen_folder, paths, record, review, funnel)


def decide_relevance(folder: BuildFolder, resources: Resources) -> dict[str, Relevance]:
    """Return the candidates' relevance by query; labels of people replace the judge's grades."""
    _, labels = read_review(folder, warn=resources.warn)
    judge_record = folder.record("judge")
    assert judge_record is not None
    name = str(judge_record.parameters["rubric"])
    is_file = name.endswith(".toml") or "/" in name
    rubric = find_rubric(str(folder.resolve(name)) if is_file else name)
    groups: dict[str, dict[bool | None, list[str]]] = {}
    for candidate in load_judged(folder):
        pair = (candidate.query_id, candidate.document_id)
        relevant = rubric.is_relevant(labels[pair]) if pair in labels else candidate.relevant
        groups.setdefault(candidate.query_id, {}).setdefault(relevant, []).append(
            candidate.document_id
        )
    _, items = load_working_task(folder)
    return {
        item.id: Relevance(
            positives=tuple(sorted(groups.get(item.id, {}).get(True, ()))),
            negatives=tuple(sorted(groups.get(item.id, {}).get(False, ()))),
            undecided=tuple(sorted(groups.get(item.id, {}).get(None, ()))),
        )
        for item in items
    }


def make_judgements(items: Sequence[BuildItem], relevance: Mapping[str, Relevance]) -> Judgements:
    """Return positives as 1 and judged negatives as 0, in the order of the queries."""
    rows = [
        (item.id, document_id, score)
        for item in items
        for documents, score in (
            (relevance[item.id].positives, 1),
            (relevance[item.id].negatives, 0),
        )
        for document_id in documents
    ]
    return Judgements(
        pa.array([row[0] for row in rows], pa.large_string()),
        pa.array([row[1] for row in rows], pa.large_string()),
        np.array([row[2] for row in rows], dtype=np.int32),
    )


def _drop_solved(
    task: Task,
    items: Sequence[BuildItem],
    relevance: Mapping[str, Relevance],
    settings: FreezeSettings,
    resources: Resources,
) -> tuple[list[BuildItem], int]:
    """Return the items that the lexical baseline does not solve, and the number it solves."""
    threshold = settings.drop_if_lexical_ndcg
    if threshold is None or not items:
        return list(items), 0
    judged = replace(
        task, queries=make_queries(items), judgements=make_judgements(items, relevance)
    )
    run = run_system(settings.lexical_baseline, judged, resources)
    scores = measure(run, judged.judgements, [METRIC], ties="list")
    values = dict(zip(scores.query_ids.to_pylist(), scores[METRIC].tolist(), strict=True))
    unsolved = [item for item in items if values.get(item.id, 0.0) < threshold - 1e-9]
    return unsolved, len(items) - len(unsolved)


def _gold(
    task: Task, items: Sequence[BuildItem], relevance: Mapping[str, Relevance]
) -> dict[str, list[str]]:
    """Return, for each query, the positives whose text contains the answer."""
    texts = texts_of(task, {d for item in items for d in relevance[item.id].positives})
    return {
        item.id: [d for d in relevance[item.id].positives if names_answer(texts[d], item.answer)]
        for item in items
    }


def _splits(name: str, items: Sequence[BuildItem], dev_share: float) -> list[_Split]:
    """Split items by a hash of their ids, so that new items do not move others between splits."""
    if not dev_share:
        return [_Split(name, "test", tuple(items))]
    limit = int(dev_share * 2**32)

    def is_dev(item: BuildItem) -> bool:
        digest = hashlib.sha256(f"split/{item.id}".encode()).digest()
        return int.from_bytes(digest[:4], "big") < limit

    dev = tuple(item for item in items if is_dev(item))
    test = tuple(item for item in items if not is_dev(item))
    splits = [_Split(f"{name}-dev", "dev", dev), _Split(f"{name}-test", "test", test)]
    for split in splits:
        if not split.items:
            raise DataError(
                f"[freeze] dev_share {dev_share} leaves no query in {split.hub_name}; choose "
                "another share, or 0."
            )
    return splits


def _write_all(
    draft: Path,
    folder: BuildFolder,
    task: Task,
    items: Sequence[BuildItem],
    relevance: Mapping[str, Relevance],
    gold: Mapping[str, Sequence[str]],
    settings: FreezeSettings,
    record: BuildRecord,
    review: ReviewState,
    funnel: Funnel,
) -> list[str]:
    """Write every file of the frozen folder, and return the names of its task folders."""
    benchmark = folder.benchmark
    splits = _splits(benchmark.name, items, settings.dev_share)
    frozen_tasks = []
    for split in splits:
        _write_task(draft / split.name, folder, split.items, relevance, gold)
        _write_hub(draft / "hub", task, split, relevance, gold)
        loaded = load_task(draft / split.name, name=split.name, use_copy=False)
        frozen_tasks.append(loaded)
    write_exclusions(frozen_tasks, draft / "exclusions.jsonl.gz")
    (draft / "funnel.svg").write_text(funnel_svg(funnel), encoding="utf-8")
    licences = passage_licences(folder)
    records = [r for r in folder.records() if r.stage not in ("freeze", "check")]
    facts = CardFacts(
        benchmark=benchmark,
        records=(*records, record),
        review=review,
        funnel=funnel,
        splits={split.hub_name: len(split.items) for split in splits},
        item_licences=dict(sorted(Counter(item.licence for item in items).items())),
        passage_licences=licences,
    )
    write_card(draft / "README.md", facts)
    write_card(draft / "hub" / "README.md", facts, for_hub=True)
    manifest = {
        "name": benchmark.name,
        "title": benchmark.title,
        "licence": benchmark.licence,
        "language": benchmark.language,
        "counts": dict(record.counts_out),
        "review": {**asdict(review), "is_reached": review.is_reached},
        "tasks": {loaded.name: loaded.hash for loaded in frozen_tasks},
        "stages": [asdict(r) for r in facts.records],
        "files": {
            path.relative_to(draft).as_posix(): hash_file(path)
            for path in sorted(draft.rglob("*"))
            if path.is_file()
        },
    }
    text = json.dumps(manifest, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (draft / "manifest.json").write_text(text, encoding="utf-8")
    return [split.name for split in splits]


def _write_task(
    target: Path,
    folder: BuildFolder,
    items: Sequence[BuildItem],
    relevance: Mapping[str, Relevance],
    gold: Mapping[str, Sequence[str]],
) -> None:
    target.mkdir()
    shutil.copyfile(folder.corpus_path, target / "corpus.jsonl")
    write_rows(target / "query.jsonl", (_query_row(item, relevance) for item in items))
    evidence = (
        {"q_id": item.id, "p_id": document_id, "score": score}
        for item in items
        for documents, score in (
            (relevance[item.id].positives, 1),
            (relevance[item.id].negatives, 0),
        )
        for document_id in documents
    )
    write_rows(target / "qrels.jsonl", evidence)
    gold_rows = (
        {"q_id": item.id, "p_id": document_id, "score": 1}
        for item in items
        for document_id in gold[item.id]
    )
    write_rows(target / "judgements" / "gold.jsonl", gold_rows)
    undecided = (
        {"q_id": item.id, "p_id": document_id}
        for item in items
        for document_id in relevance[item.id].undecided
    )
    write_rows(target / "judgements" / "undecided.jsonl", undecided)


def _query_row(item: BuildItem, relevance: Mapping[str, Relevance]) -> dict[str, Any]:
    return {
        "id": item.id,
        "text": item.query,
        "doc_id": list(relevance[item.id].positives),
        "answer": item.answer,
        "body_system": "",
        "reasoning": item.reasoning,
        "reasoning_by": item.reasoning_by,
        "type": item.type,
        "source": item.source,
        "licence": item.licence,
    }


def _write_hub(
    target: Path,
    task: Task,
    split: _Split,
    relevance: Mapping[str, Relevance],
    gold: Mapping[str, Sequence[str]],
) -> None:
    """Write a split as Parquet, one folder per configuration."""
    judgements = make_judgements(split.items, relevance)
    gold_pairs = [(item.id, document_id) for item in split.items for document_id in gold[item.id]]
    undecided = [
        (i.id, document_id) for i in split.items for document_id in relevance[i.id].undecided
    ]
    tables = {
        "corpus": pa.table({"id": task.corpus.ids, "text": task.corpus.texts}),
        "query": pa.Table.from_pylist([_query_row(item, relevance) for item in split.items]),
        "qrels": pa.table(
            {
                "q_id": judgements.query_ids,
                "p_id": judgements.document_ids,
                "score": pa.array(judgements.scores),
            }
        ),
        "gold": _pair_table(gold_pairs),
        "undecided": _pair_table(undecided),
    }
    for config, table in tables.items():
        path = target / config / f"{split.hub_name}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, compression="zstd")


def _pair_table(pairs: Sequence[tuple[str, str]]) -> pa.Table:
    return pa.table(
        {
            "q_id": pa.array([pair[0] for pair in pairs], pa.large_string()),
            "p_id": pa.array([pair[1] for pair in pairs], pa.large_string()),
        }
    )


def passage_licences(folder: BuildFolder) -> dict[str, int]:
    """Count the passages of each licence."""
    from r2med.build.folder import read_rows

    if not folder.passages_path.is_file():
        return {}
    counts = Counter(
        str(row.get("licence") or "not stated") for _, row in read_rows(folder.passages_path)
    )
    return dict(sorted(counts.items()))
