"""Metrics exactly as trec_eval computes them: their names, and their values for every query.

`ndcg@10`, `recall@100`, `mrr` are the same on the command line and in results; the notation of
ir_measures (`nDCG@10`, `AP(rel=2)@100`, `RBP(p=0.8)`) is read too. A run is joined with its
judgements once, into a matrix of judged scores by rank that all metrics read. Written by hand
because the oracles, pytrec_eval and ir_measures, take dictionaries of Python objects and are
hundreds of times slower; the tests hold them together.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import UsageError, nearest
from r2med.runs import Run
from r2med.runs.run import places_of
from r2med.tasks.task import Judgements

HEADLINE = ("ndcg@10", "map@10", "recall@100", "precision@10", "hit@10", "mrr")
#: The union of the cutoffs that the published tables use.
CUTOFFS = (1, 3, 5, 10, 25, 50, 100)
PERSISTENCE = 0.8

_STORED = ("ndcg", "map", "recall", "precision", "hit")
_WITHOUT_CUTOFF = ("rprec", "bpref")
_CUTOFF_NEEDED = ("recall", "precision", "hit", "judged")
_FORM = re.compile(r"([a-z]+)(?:\(([^()]*)\))?(?:@([1-9][0-9]*))?")
_ALIASES = {"ap": "map", "p": "precision", "r": "recall", "rr": "mrr", "success": "hit"}
#: What may stand in parentheses: its form, how it is read, and what was expected otherwise.
_OPTIONS: dict[str, tuple[str, Callable[[str], object], str]] = {
    "rel": ("[0-9]*[1-9][0-9]*", int, "a whole number above 0"),
    "judged_only": ("true|false", lambda value: value == "true", "True or False"),
    "p": (r"0?\.[0-9]*[1-9][0-9]*", float, "a number between 0 and 1"),
}
_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")
_UNJUDGED = -np.inf

Matrix = NDArray[np.float64]
Column = NDArray[np.float64]


@dataclass(frozen=True, order=True)
class Metric:
    """A metric; without a cutoff it reads the whole run."""

    kind: str
    cutoff: int | None
    rel: int = 1
    """The least judged score of a positive."""
    judged_only: bool = False
    """Whether unjudged documents are taken out of the lists first: condensed lists."""
    p: float = 0.0
    """The persistence of rbp; 0 for all others."""

    def __str__(self) -> str:
        options = [f"p={self.p:g}"] if self.p else []
        options += [f"rel={self.rel}"] if self.rel != 1 else []
        options += ["judged_only=True"] if self.judged_only else []
        cutoff = "" if self.cutoff is None else f"@{self.cutoff}"
        return self.kind + (f"({','.join(options)})" if options else "") + cutoff


def parse_metrics(text: str) -> list[Metric]:
    """The metrics of a comma-separated list, as on the command line."""
    return [parse_metric(name) for name in _OUTSIDE_PARENTHESES.split(text)]


def parse_metric(text: str) -> Metric:
    """Read a metric's name, ours or ir_measures'; the error offers the nearest known ones."""
    match = _FORM.fullmatch(text.strip().lower().replace(" ", ""))
    kind = _ALIASES.get(match[1], match[1]) if match else text
    if not match or kind not in _KINDS:
        whole = ("mrr", "rbp", *_WITHOUT_CUTOFF)
        examples = [name if name in whole else f"{name}@10" for name in _KINDS]
        raise UsageError(f"metric {text!r} is not known. {nearest(text, examples)}")
    if match[3] is None and kind in _CUTOFF_NEEDED:
        raise UsageError(f"metric {text!r} needs a cutoff, as in {kind}@10.")
    if match[3] is not None and kind in _WITHOUT_CUTOFF:
        raise UsageError(f"metric {text!r}: {kind} reads the whole run and takes no cutoff.")
    cutoff = int(match[3]) if match[3] else None
    return Metric(kind, cutoff, **_options(kind, match[2] or "", text))


def _options(kind: str, text: str, metric: str) -> dict[str, Any]:
    """What stands in parentheses: p of rbp, rel, judged_only; each with its allowed values."""
    allowed = {"rbp": ["p", "rel", "judged_only"], "ndcg": ["judged_only"], "judged": []}.get(
        kind, ["rel"] if kind == "bpref" else ["rel", "judged_only"]
    )
    options: dict[str, Any] = {"p": PERSISTENCE} if kind == "rbp" else {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in allowed:
            known = f"takes {' and '.join(allowed)}" if allowed else "takes none"
            raise UsageError(f"metric {metric!r} has no option {name!r}; {kind} {known}.")
        form, read, wanted = _OPTIONS[name]
        if not re.fullmatch(form, value):
            raise UsageError(f"metric {metric!r}: {name} is {value!r}, expected {wanted}.")
        options[name] = read(value)
    return options


def stored_metrics() -> list[Metric]:
    """Every metric that a result keeps for each query."""
    return [Metric(kind, cutoff) for kind in _STORED for cutoff in CUTOFFS] + [Metric("mrr", None)]


@dataclass(frozen=True, eq=False)
class Gains:
    """One row per judged query: what stands at each rank, and what there is to be found."""

    query_ids: pa.LargeStringArray
    levels: Matrix
    """Judged score of the document at each rank; minus infinity when unjudged or past the end."""
    judged: Matrix
    """The query's judged scores, best first, padded with minus infinity."""
    lengths: NDArray[np.int64]
    """How many documents each query retrieved."""

    def at_least(self, level: int) -> NDArray[np.int64]:
        """How many documents of each query are judged this much or more."""
        counts: NDArray[np.int64] = np.count_nonzero(self.judged >= level, axis=1)
        return counts

    @cached_property
    def condensed(self) -> Gains:
        """The same lists without unjudged documents, the others moved up.

        A judged score below 0 is trec_eval's mark for unjudged.
        """
        order = np.argsort(self.levels < 0, axis=1, kind="stable")
        return replace(self, levels=np.take_along_axis(self.levels, order, axis=1))


def gains(run: Run, judgements: Judgements) -> Gains:
    """Look every ranked document up; a judged query that the run lacks has no levels.

    A document that is not judged has the place -1, which is that of the last value: unjudged.
    """
    judged = judgements.query_ids.dictionary_encode()
    judged_rows = judged.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    query_ids, width = judged.dictionary, len(run.document_ids)
    run = run.over(query_ids, places_of(run.query_ids, query_ids))
    levels = np.full((len(query_ids), int(run.lengths.max(initial=0))), _UNJUDGED)
    codes = places_of(judgements.document_ids, run.document_ids)
    ranked = codes >= 0
    entries = pa.array(run.query_rows * width + run.documents)
    known = pa.array(judged_rows[ranked] * width + codes[ranked])
    values = np.append(judgements.scores[ranked].astype(np.float64), _UNJUDGED)
    levels[run.query_rows, run.ranks - 1] = values[places_of(entries, known)]
    order = np.lexsort((-judgements.scores.astype(np.int64), judged_rows))
    counts = np.bincount(judged_rows, minlength=len(query_ids))
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    best_first = np.full((len(query_ids), int(counts.max(initial=0))), _UNJUDGED)
    best_first[judged_rows[order], np.arange(len(order)) - starts] = judgements.scores[order]
    return Gains(query_ids=query_ids, levels=levels, judged=best_first, lengths=run.lengths)


def score_column(gains: Gains, metric: Metric) -> Column:
    """One value per query."""
    lists = gains.condensed if metric.judged_only else gains
    return _KINDS[metric.kind](lists, metric, metric.cutoff or max(gains.levels.shape[1], 1))


def _ndcg(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Graded; without a cutoff the ideal list is whole too, however short the run."""
    best = gains.judged.shape[1] if metric.cutoff is None else cutoff
    return _ratio(_discounted(gains.levels, cutoff), _discounted(gains.judged, best))


def _map(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Mean average precision, over all positives of the query."""
    relevant = _relevant(gains, metric, cutoff)
    precisions = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    return _ratio((precisions * relevant).sum(axis=1), gains.at_least(metric.rel))


def _mrr(gains: Gains, metric: Metric, cutoff: int) -> Column:
    relevant = _relevant(gains, metric, cutoff)
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return np.where(relevant.any(axis=1), 1.0 / (1 + relevant.argmax(axis=1)), 0.0)


def _rprec(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Precision at as many documents as the query has positives."""
    positives = gains.at_least(metric.rel)
    relevant = _relevant(gains, metric, cutoff)
    within = np.arange(relevant.shape[1]) < positives[:, None]
    return _ratio((relevant & within).sum(axis=1, dtype=np.float64), positives)


def _bpref(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """How rarely a judged negative stands above a positive; unjudged documents are skipped."""
    relevant = _relevant(gains, metric, cutoff)
    positives = gains.at_least(metric.rel)
    negatives = gains.at_least(0) - positives
    above = np.cumsum((gains.levels >= 0) & ~relevant, axis=1)
    bound = np.maximum(np.minimum(positives, negatives), 1)[:, None]
    shares = 1.0 - np.minimum(above, positives[:, None]) / bound
    return _ratio((shares * relevant).sum(axis=1), positives)


def _rbp(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Rank-biased precision of a reader who goes on to the next document with probability p."""
    relevant = _relevant(gains, metric, cutoff)
    return (1 - metric.p) * (relevant @ metric.p ** np.arange(relevant.shape[1]))


def _judged(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Share of the first k that are judged; a list shorter than k is judged on what it holds."""
    judged = np.count_nonzero(gains.levels[:, :cutoff] > _UNJUDGED, axis=1)
    return _ratio(judged.astype(np.float64), np.minimum(gains.lengths, cutoff))


def _relevant(gains: Gains, metric: Metric, cutoff: int) -> NDArray[np.bool_]:
    relevant: NDArray[np.bool_] = gains.levels[:, :cutoff] >= metric.rel
    return relevant


def _count(gains: Gains, metric: Metric, cutoff: int) -> Column:
    counts: Column = _relevant(gains, metric, cutoff).sum(axis=1, dtype=np.float64)
    return counts


def _discounted(levels: Matrix, cutoff: int) -> Column:
    """The discounted gain of the first ranks; it is 0 where unjudged, below 0 or past the end."""
    cut = np.maximum(levels[:, :cutoff], 0.0)
    summed: Column = cut @ (1.0 / np.log2(np.arange(2, cut.shape[1] + 2)))
    return summed


def _ratio(part: Column, whole: NDArray[np.generic]) -> Column:
    ratios: Column = np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) > 0)
    return ratios


_KINDS: dict[str, Callable[[Gains, Metric, int], Column]] = {
    "ndcg": _ndcg,
    "map": _map,
    "recall": lambda gains, metric, cutoff: _ratio(
        _count(gains, metric, cutoff), gains.at_least(metric.rel)
    ),
    "precision": lambda gains, metric, cutoff: _count(gains, metric, cutoff) / cutoff,
    "hit": lambda gains, metric, cutoff: np.minimum(_count(gains, metric, cutoff), 1.0),
    "mrr": _mrr,
    "rprec": _rprec,
    "bpref": _bpref,
    "rbp": _rbp,
    "judged": _judged,
}
