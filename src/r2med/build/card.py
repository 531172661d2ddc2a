"""The data card of a frozen benchmark, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from r2med.build.folder import BenchmarkSettings, BuildRecord
from r2med.build.funnel import Funnel, funnel_markdown
from r2med.build.review import ReviewState
from r2med.errors import plural

_CONFIGS = ("corpus", "query", "qrels", "gold", "undecided")


@dataclass(frozen=True)
class CardFacts:
    """The facts that the data card is written from."""

    benchmark: BenchmarkSettings
    records: tuple[BuildRecord, ...]
    review: ReviewState
    funnel: Funnel
    splits: Mapping[str, int]
    """Queries by split."""
    item_licences: Mapping[str, int]
    passage_licences: Mapping[str, int]

    def record(self, stage: str) -> BuildRecord | None:
        """Return the record of a stage."""
        return next((record for record in self.records if record.stage == stage), None)


def write_card(path: Path, facts: CardFacts, *, for_hub: bool = False) -> None:
    """Write the data card; `for_hub` adds the header that names the hub's configurations."""
    sections = [
        *([_hub_header(facts)] if for_hub else []),
        _summary(facts),
        _funnel_section(facts, with_figure=not for_hub),
        _judgement_section(facts),
        _parameter_section(facts),
        _licence_section(facts),
        _limits(facts),
    ]
    path.write_text("\n\n".join(sections) + "\n", encoding="utf-8")


def _hub_header(facts: CardFacts) -> str:
    lines = ["---", f"language: {facts.benchmark.language}", "configs:"]
    for config in _CONFIGS:
        lines += [f"- config_name: {config}", "  data_files:"]
        for split in facts.splits:
            lines += [f"  - split: {split}", f"    path: {config}/{split}-*.parquet"]
    return "\n".join([*lines, "---"])


def _summary(facts: CardFacts) -> str:
    frozen = facts.record("freeze")
    assert frozen is not None
    counts = frozen.counts_out
    title = facts.benchmark.title or facts.benchmark.name
    splits = ", ".join(f"{count:,} in {split}" for split, count in facts.splits.items())
    per_query = counts["positives"] / counts["queries"]
    return "\n".join(
        [
            f"# {title}",
            "",
            "A retrieval benchmark made with `r2med build`: each query has a hidden answer and a "
            "reasoning path, and the judgements say which passages support them.",
            "",
            "| | |",
            "|---|---:|",
            f"| queries | {counts['queries']:,} ({splits}) |",
            f"| passages | {counts['passages']:,} |",
            *_distractor_row(facts),
            f"| positives (evidence) | {counts['positives']:,} ({per_query:.1f} per query) |",
            f"| of these, passages that contain the answer (gold) | {counts['gold']:,} |",
            f"| judged negatives | {counts['negatives']:,} |",
            f"| undecided, published apart | {counts['undecided']:,} |",
        ]
    )


def _distractor_row(facts: CardFacts) -> list[str]:
    corpus = facts.record("corpus")
    count = corpus.counts_out.get("distractors", 0) if corpus else 0
    return [f"| of these, passages of distractor collections | {count:,} |"] if count else []


def _funnel_section(facts: CardFacts, *, with_figure: bool) -> str:
    figure = "\n![Funnel](funnel.svg)\n" if with_figure else ""
    return f"## Funnel\n{figure}\n{funnel_markdown(facts.funnel)}"


def _judgement_section(facts: CardFacts) -> str:
    pool, judged = facts.record("pool"), facts.record("judge")
    lines = ["## Judgements", ""]
    if pool is not None:
        systems = ", ".join(f"`{name}`" for name in pool.models)
        views = ", ".join(pool.parameters["views"])
        lines += [
            f"Candidates are the first {pool.parameters['depth']} passages of {systems}, each "
            f"searching with the views {views}.",
            "",
            "| found by | candidates | only by this |",
            "|---|---:|---:|",
        ]
        for group in ("views", "systems"):
            for row in pool.figures[group]:
                lines.append(f"| {row['name']} | {row['found']:,} | {row['unique']:,} |")
        lines.append("")
    if judged is not None:
        models = ", ".join(f"`{name}`" for name in judged.models)
        lines += [
            f"Judged by {models} with the rubric `{judged.parameters['rubric']}` "
            f"({', '.join(f'{k} {v}' for k, v in judged.prompts.items())}): grades from "
            f"{judged.figures['relevant_from']} are relevant, grades to "
            f"{judged.figures['irrelevant_to']} are not, grades between are undecided.",
            "",
        ]
    return "\n".join([*lines, str(facts.review)])


def _parameter_section(facts: CardFacts) -> str:
    lines = [
        "## Parameters",
        "",
        "Thresholds, depths and numbers are choices of this benchmark's makers.",
        "",
        "| stage | parameter | value |",
        "|---|---|---|",
    ]
    for record in facts.records:
        for name, value in record.parameters.items():
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            lines.append(f"| {record.stage} | {name} | {text} |")
        for name, prompt_hash in record.prompts.items():
            lines.append(f"| {record.stage} | prompt {name} | {prompt_hash} |")
    return "\n".join(lines)


def _licence_section(facts: CardFacts) -> str:
    lines = ["## Licences", "", f"Queries and judgements: {facts.benchmark.licence}.", ""]
    lines += ["| source | licence | count |", "|---|---|---:|"]
    for name, count in facts.item_licences.items():
        lines.append(f"| questions | {name} | {count:,} |")
    for name, count in facts.passage_licences.items():
        lines.append(f"| passages | {name} | {count:,} |")
    return "\n".join(lines)


def _limits(facts: CardFacts) -> str:
    items = facts.record("items")
    written = sum(
        count
        for name, count in (items.figures.get("reasoning_by", {}) if items else {}).items()
        if name.startswith("model")
    )
    lines = [
        "## Limits",
        "",
        "- For research only, not for clinical decisions.",
        "- Only pooled passages are judged: a passage that no pooled system found counts as not "
        "relevant, although it may be. See `judged@10` in the check.",
        "- Grades of a language model are not those of a physician.",
    ]
    if written:
        lines.append(f"- {written:,} reasoning paths were written by a language model.")
    if not facts.review.is_reached:
        lines.append("- The declared agreement of reviewers was not reached or not measured.")
    if facts.review.disagreements:
        pairs = plural(facts.review.disagreements, "pair")
        lines.append(f"- Different labels of reviewers are not settled: {pairs}.")
    lines.append(
        "- Keep the queries, answers and passages out of training data: `exclusions.jsonl.gz` has "
        "the keys for `r2med audit`."
    )
    return "\n".join(lines)
