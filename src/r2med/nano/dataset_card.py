"""README.md of a Nano folder: front matter that the hub reads, and the facts a reader needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from r2med.nano.folder import configs_of, shard

_WHAT = {
    "corpus": "`{_id, text}`: the documents",
    "queries": "`{_id, text}`",
    "qrels": "`{query-id, corpus-id}`: every row is a positive",
    "bm25": "`{query-id, corpus-ids}`: candidates of BM25, best first, 500 a query",
    "reranking_hybrid": "`{query-id, corpus-ids}`: reciprocal rank fusion of the two others, cut "
    "at 100; a positive stands at rank 101 where those hold none",
}
_FILLS = {
    "source": "the corpus in source order, as published",
    "random": "documents by a seeded hash of their ids",
    "hard": "what a retriever ranks highest for the queries",
}


def dataset_card(title: str, files: Sequence[str], tasks: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole file, from the paths of the folder's files and the record of its tasks."""
    configs = configs_of(files)
    return "\n".join(
        [
            *_front_matter(configs, tasks),
            f"# {title}",
            "",
            "Compact retrieval tasks by the recipe of NanoR2MED, made with `r2med nano build`. "
            "Judgements are binary. A research instrument, never a clinical decision system.",
            "",
            "| split | queries | documents | positives | source |",
            "|---|---:|---:|---:|---|",
            *(_task_row(split, task) for split, task in sorted(tasks.items())),
            "",
            "| config | what it holds |",
            "|---|---|",
            *(f"| {config} | {_WHAT.get(config, _dense(config))} |" for config in configs),
            "",
            *(_made(split, task) for split, task in sorted(tasks.items())),
            "`nano.json` holds every count, the recipe and the sha256 of each file.",
            "",
        ]
    )


def _front_matter(
    configs: Mapping[str, Sequence[str]], tasks: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    lines = ["---", "task_categories:", "- text-retrieval", "tags:", "- medical", "- retrieval"]
    documents = sum(int(task["report"]["documents"]) for task in tasks.values())
    lines += ["size_categories:", f"- {_size(documents)}", "configs:"]
    for config, splits in configs.items():
        lines += [f"- config_name: {config}", "  data_files:"]
        for split in splits:
            lines += [f"  - split: {split}", f"    path: {shard(config, split)}"]
    return [*lines, "---", ""]


def _size(rows: int) -> str:
    for limit, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K")):
        if rows < limit:
            return name
    return "100K<n<1M"


def _dense(config: str) -> str:
    return (
        f"`{{query-id, corpus-ids}}`: candidates of the encoder {config}, best first, 500 a query"
    )


def _task_row(split: str, task: Mapping[str, Any]) -> str:
    report = task["report"]
    figures = (f"{report[name]:,}" for name in ("queries", "documents", "positives"))
    return f"| {split} | {' | '.join(figures)} | {task['source']['name']} |"


def _made(split: str, task: Mapping[str, Any]) -> str:
    report, recipe = task["report"], task["recipe"]
    lost = "".join(f" {notice}" for notice in task["notices"])
    return (
        f"**{split}**: {report['positive_documents']:,} positive documents, "
        f"{report['judged_negative_documents']:,} judged non-positives, "
        f"{report['fill_documents']:,} to fill ({_FILLS[recipe['fill']]}).{lost}\n"
    )
