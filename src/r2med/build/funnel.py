"""The funnel of a build: how many items, queries and candidates remain after each step, and why.

The figure is SVG written here, because it is part of the frozen files: it must not depend on the
optional plotting libraries, and the same counts must give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape

import pyarrow as pa

from r2med.build.folder import STAGES, BuildRecord
from r2med.tables import Tabular, make_table, table_columns

_WIDTH, _ROW, _LABEL, _BAR = 760, 26, 330, 320
_COLOURS = {"remain": "#0f8f8f", "drop": "#c98a2b", "count": "#5a6b7b"}


@dataclass(frozen=True)
class FunnelStep:
    """One step of the funnel: how many units it dropped, and how many remained."""

    stage: str
    unit: str
    """The unit that is counted: items, queries, documents, passages or candidates."""
    step: str
    dropped: int
    remaining: int


@dataclass(frozen=True, eq=False)
class Funnel(Tabular):
    """The steps of a build, with the counts of dropped and remaining units."""

    name: str
    steps: tuple[FunnelStep, ...]
    missing: tuple[str, ...] = ()
    """Stages that have not finished."""

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per step."""
        return make_table(table_columns(FunnelStep), [asdict(step) for step in self.steps])


def make_funnel(name: str, records: Sequence[BuildRecord]) -> Funnel:
    """Return the funnel of the finished stages."""
    steps: list[FunnelStep] = []
    for record in records:
        if record.stage == "corpus":
            steps += [*_file_steps(record), *_filter_steps(record)]
        elif record.stage in ("items", "freeze"):
            steps += _filter_steps(record)
        elif record.stage == "pool":
            pooled = record.counts_out["candidates"]
            steps.append(FunnelStep("pool", "candidates", "pooled candidates", 0, pooled))
        elif record.stage == "judge":
            steps += _judge_steps(record)
        elif record.stage == "review":
            labelled = record.counts_out["labelled pairs"]
            steps.append(FunnelStep("review", "candidates", "labelled by people", 0, labelled))
    finished = {record.stage for record in records}
    missing = tuple(stage for stage in STAGES[:-1] if stage not in finished)
    return Funnel(name, tuple(steps), missing)


def _file_steps(record: BuildRecord) -> list[FunnelStep]:
    """Return the steps of the corpus's files: all files, and unreadable files or rows."""
    count, unreadable = record.counts_in.get("files", 0), record.counts_in.get("unreadable", 0)
    steps = [FunnelStep("corpus", "files", "files", 0, count)] if count else []
    if unreadable:
        text = "unreadable files or rows"
        steps.append(FunnelStep("corpus", "files", text, unreadable, count))
    return steps


def _filter_steps(record: BuildRecord) -> list[FunnelStep]:
    """Return the steps of a stage: one for the input, one per reason for drops, one for output."""
    unit_in, total = next(iter(record.counts_in.items()), ("items", 0))
    unit_out, final = next(iter(record.counts_out.items()), ("items", 0))
    steps = [FunnelStep(record.stage, unit_in, f"{unit_in} read", 0, total)]
    remaining = total
    same_unit = unit_in == unit_out
    for reason, count in record.drops.items():
        remaining = remaining - count if same_unit else remaining
        steps.append(FunnelStep(record.stage, unit_out, reason, count, remaining))
    word = "in the benchmark" if record.stage == "freeze" else "written"
    steps.append(FunnelStep(record.stage, unit_out, f"{unit_out} {word}", 0, final))
    return steps


def _judge_steps(record: BuildRecord) -> list[FunnelStep]:
    steps = [
        FunnelStep("judge", "candidates", reason, count, record.counts_in["candidates"] - count)
        for reason, count in record.drops.items()
    ]
    for name in ("positives", "negatives", "undecided"):
        steps.append(FunnelStep("judge", "candidates", name, 0, record.counts_out[name]))
    return steps


def funnel_markdown(funnel: Funnel) -> str:
    """Return the funnel as a Markdown table."""
    rows = ["| stage | step | dropped | remaining |", "|---|---|---:|---:|"]
    for step in funnel.steps:
        dropped = f"{step.dropped:,}" if step.dropped else ""
        rows.append(f"| {step.stage} | {step.step} | {dropped} | {step.remaining:,} |")
    return "\n".join(rows)


def funnel_svg(funnel: Funnel) -> str:
    """Return the funnel as an SVG figure: bars for remaining and dropped items."""
    height = _ROW * (len(funnel.steps) + 2)
    widest: dict[str, int] = {}
    for step in funnel.steps:
        size = max(step.remaining, step.dropped)
        widest[step.unit] = max(widest.get(step.unit, 1), size)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="system-ui, sans-serif" font-size="13" '
        f'role="img" aria-label="Funnel of {escape(funnel.name)}">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="18" font-weight="600" fill="#1c2733">{escape(funnel.name)}: from '
        "questions to queries</text>",
    ]
    for index, step in enumerate(funnel.steps):
        top = _ROW * (index + 1) + 4
        is_drop = step.dropped > 0
        count = step.dropped if is_drop else step.remaining
        colour = _COLOURS["drop" if is_drop else "remain"]
        length = max(1, round(_BAR * count / widest[step.unit]))
        sign = "−" if is_drop else ""
        parts.append(
            f'<text x="12" y="{top + 15}" fill="{_COLOURS["count"]}">{step.stage}</text>'
            f'<text x="70" y="{top + 15}" fill="#1c2733">{escape(step.step)}</text>'
            f'<rect x="{_LABEL}" y="{top + 3}" width="{length}" height="16" rx="2" '
            f'fill="{colour}"/>'
            f'<text x="{_LABEL + length + 8}" y="{top + 15}" fill="#1c2733">{sign}{count:,}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
