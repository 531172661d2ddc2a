"""Names of metrics: `ndcg@10`, `recall@100`, `mrr`; the same on the command line and in results."""

from __future__ import annotations

import re
from dataclasses import dataclass

from r2med.errors import UsageError, nearest

#: What each metric answers, for help texts and documentation.
DESCRIPTIONS: dict[str, str] = {
    "ndcg": "normalised discounted cumulative gain, graded",
    "map": "mean average precision, over all positives of the query",
    "recall": "share of the query's positives found",
    "precision": "share of the first k that are positive",
    "hit": "1 when a positive is among the first k",
    "mrr": "1 / rank of the first positive",
}
HEADLINE = ("ndcg@10", "map@10", "recall@100", "precision@10", "hit@10", "mrr")
#: The union of the cutoffs that the published tables use.
CUTOFFS = (1, 3, 5, 10, 25, 50, 100)

_FORM = re.compile(r"([a-z]+)(?:@([1-9][0-9]*))?")
_ALIASES = {"p": "precision", "r": "recall", "rr": "mrr", "success": "hit"}


@dataclass(frozen=True, order=True)
class Metric:
    """A metric at a cutoff; `mrr` may go without one and then reads the whole run."""

    kind: str
    cutoff: int | None

    def __str__(self) -> str:
        return self.kind if self.cutoff is None else f"{self.kind}@{self.cutoff}"


def parse_metric(text: str) -> Metric:
    """Read a metric's name; the error offers the nearest known ones."""
    found = _FORM.fullmatch(text.strip().lower())
    kind = _ALIASES.get(found[1], found[1]) if found else text
    if not found or kind not in DESCRIPTIONS:
        examples = [name if name == "mrr" else f"{name}@10" for name in DESCRIPTIONS]
        raise UsageError(f"metric {text!r} is not known. {nearest(text, examples)}")
    if found[2] is None and kind != "mrr":
        raise UsageError(f"metric {text!r} needs a cutoff, as in {kind}@10.")
    return Metric(kind, int(found[2]) if found[2] else None)


def stored_metrics() -> list[Metric]:
    """Every metric that a result keeps for each query."""
    kinds = [kind for kind in DESCRIPTIONS if kind != "mrr"]
    return [Metric(kind, cutoff) for kind in kinds for cutoff in CUTOFFS] + [Metric("mrr", None)]
