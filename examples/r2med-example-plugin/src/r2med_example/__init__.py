"""Add a system with its backend, a metric and an exporter to r2med."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from r2med.measure.metrics import Gains, Metric
    from r2med.plugins import Plugin
    from r2med.results.record import Result


def register(plugin: Plugin) -> None:
    """Called by r2med when it meets a name that it does not have."""
    plugin.add_registry(Path(__file__).parent / "registry.toml")
    plugin.add_backend("letters", "r2med_example.backend:LetterSettings")
    plugin.add_metric("second", second_relevant)
    plugin.add_exporter("markdown", export_markdown)


def second_relevant(gains: Gains, metric: Metric, cutoff: int) -> NDArray[np.float64]:
    """1 for queries with at least two relevant documents among the first `cutoff`, else 0."""
    relevant = gains.levels[:, :cutoff] >= metric.rel
    return (relevant.sum(axis=1) >= 2).astype(np.float64)


def export_markdown(
    results: Sequence[Result], out: Path, warn: Callable[[str], None]
) -> list[Path]:
    """One table in Markdown, `OUT/results.md`."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [f"| {r.name} | {r.task} | {100 * r.metrics['ndcg@10']:.2f} |" for r in results]
    path = out / "results.md"
    path.write_text("\n".join(["| system | task | nDCG@10 |", "|---|---|---:|", *rows, ""]))
    return [path]
