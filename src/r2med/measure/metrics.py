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
from r2med.plugins import load_plugins
from r2med.runs import Run
from r2med.runs.run import find_positions
from r2med.tasks.task import Judgements

HEADLINE = ("ndcg@10", "map@10", "recall@100", "precision@10", "hit@10", "mrr")
#: The share of judged documents that is shown beside scores and verdicts.
JUDGED = "judged@10"
#: The union of the cutoffs that the published tables use.
CUTOFFS = (1, 3, 5, 10, 25, 50, 100)
PERSISTENCE = 0.8

_STORED = ("ndcg", "map", "recall", "precision", "hit")
_WITHOUT_CUTOFF = ("rprec", "bpref")
_CUTOFF_NEEDED = ("recall", "precision", "hit", "judged")
_FORM = re.compile(r"([a-z]+)(?:\(([^()]*)\))?(?:@([1-9][0-9]*))?")
_ALIASES = {"ap": "map", "p": "precision", "r": "recall", "rr": "mrr", "success": "hit"}
#: Options in parentheses: pattern, conversion, and the expectation named in errors.
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
    """A metric; without a cutoff, it is computed on the whole list."""

    family: str
    cutoff: int | None
    rel: int = 1
    """The lowest judgement score of a positive."""
    judged_only: bool = False
    """Whether unjudged documents are removed from the lists first (condensed lists)."""
    p: float = 0.0
    """The persistence of rbp; 0 for all others."""

    def __str__(self) -> str:
        options = [f"p={self.p:g}"] if self.p else []
        options += [f"rel={self.rel}"] if self.rel != 1 else []
        options += ["judged_only=True"] if self.judged_only else []
        cutoff = "" if self.cutoff is None else f"@{self.cutoff}"
        return self.family + (f"({','.join(options)})" if options else "") + cutoff


def parse_metrics(text: str) -> list[Metric]:
    """The metrics of a comma-separated list, as on the command line."""
    return [parse_metric(name) for name in _OUTSIDE_PARENTHESES.split(text)]


def parse_metric(text: str) -> Metric:
    """Read a metric's name, ours or ir_measures'; the error offers the nearest known ones."""
    match = _FORM.fullmatch(text.strip().lower().replace(" ", ""))
    family = _ALIASES.get(match[1], match[1]) if match else text
    if not match or _function_of(family) is None:
        without_cutoff = ("mrr", "rbp", *_WITHOUT_CUTOFF)
        families = [*_FAMILIES, *load_plugins().metrics]
        examples = [name if name in without_cutoff else f"{name}@10" for name in families]
        raise UsageError(f"metric {text!r} is not known. {nearest(text, examples)}")
    if match[3] is None and family in _CUTOFF_NEEDED:
        raise UsageError(f"metric {text!r} needs a cutoff, as in {family}@10.")
    if match[3] is not None and family in _WITHOUT_CUTOFF:
        raise UsageError(f"metric {text!r}: {family} reads the whole run and takes no cutoff.")
    cutoff = int(match[3]) if match[3] else None
    return Metric(family, cutoff, **_options(family, match[2] or "", text))


def _options(family: str, text: str, metric: str) -> dict[str, Any]:
    """Parse the options in parentheses: p of rbp, rel and judged_only."""
    allowed = {"rbp": ["p", "rel", "judged_only"], "ndcg": ["judged_only"], "judged": []}.get(
        family, ["rel"] if family == "bpref" else ["rel", "judged_only"]
    )
    options: dict[str, Any] = {"p": PERSISTENCE} if family == "rbp" else {}
    for option in filter(None, text.split(",")):
        name, _, value = option.partition("=")
        if name not in allowed:
            expectation = f"takes {' and '.join(allowed)}" if allowed else "takes none"
            raise UsageError(f"metric {metric!r} has no option {name!r}; {family} {expectation}.")
        pattern, convert, expected = _OPTIONS[name]
        if not re.fullmatch(pattern, value):
            raise UsageError(f"metric {metric!r}: {name} is {value!r}, expected {expected}.")
        options[name] = convert(value)
    return options


def stored_metrics() -> list[Metric]:
    """Every metric that a result stores for each query.

    Verdicts need the share of judged documents and the headline metrics on condensed lists.
    """
    usual = [Metric(family, cutoff) for family in _STORED for cutoff in CUTOFFS] + [
        Metric("mrr", None)
    ]
    condensed = [condense(parse_metric(name)) for name in HEADLINE]
    return [*usual, parse_metric(JUDGED), *filter(None, condensed)]


def condense(metric: Metric) -> Metric | None:
    """The metric on condensed lists; None for condensed metrics, judged@k and bpref."""
    if metric.judged_only or metric.family in ("judged", "bpref"):
        return None
    return replace(metric, judged_only=True)


@dataclass(frozen=True, eq=False)
class Gains:
    """The judgement score at each rank, and all judgement scores, with one row per judged query."""

    query_ids: pa.LargeStringArray
    levels: Matrix
    """Judgement score of the document at each rank; minus infinity if unjudged or past the end."""
    judged: Matrix
    """All judgement scores of each query, highest first, padded with minus infinity."""
    lengths: NDArray[np.int64]
    """Number of documents that each query retrieved."""

    def at_least(self, level: int) -> NDArray[np.int64]:
        """Number of documents of each query with a judgement score of at least `level`."""
        counts: NDArray[np.int64] = np.count_nonzero(self.judged >= level, axis=1)
        return counts

    @cached_property
    def condensed(self) -> Gains:
        """The same lists without unjudged documents; the documents below them move up.

        As in trec_eval, a judgement score below 0 means unjudged.
        """
        judged = self.levels >= 0
        rows, columns = np.nonzero(judged)
        ranks = np.cumsum(judged, axis=1)[rows, columns] - 1
        levels = np.full(self.levels.shape, _UNJUDGED)
        levels[rows, ranks] = self.levels[rows, columns]
        return replace(self, levels=levels)


def gains(run: Run, judgements: Judgements) -> Gains:
    """Join a run with judgements; a judged query without a list in the run has no levels."""
    encoded = judgements.query_ids.dictionary_encode()
    query_ids = encoded.dictionary
    judged_rows = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    run = run.over(query_ids, find_positions(run.query_ids, query_ids))
    return Gains(
        query_ids=query_ids,
        levels=_levels_by_rank(run, judgements, judged_rows),
        judged=_levels_best_first(judgements, judged_rows, len(query_ids)),
        lengths=run.lengths,
    )


def _levels_by_rank(run: Run, judgements: Judgements, judged_rows: NDArray[np.int64]) -> Matrix:
    """Return the judged score at each rank; `judged_rows` are the queries of the judgements."""
    levels = np.full((len(run), int(run.lengths.max(initial=0))), _UNJUDGED)
    codes = find_positions(judgements.document_ids, run.document_ids)
    is_ranked = codes >= 0
    # A pair of query and document becomes one number, so that pairs can be looked up.
    width = len(run.document_ids)
    ranked_pairs = pa.array(run.query_rows * width + run.documents)
    judged_pairs = pa.array(judged_rows[is_ranked] * width + codes[is_ranked])
    positions = find_positions(ranked_pairs, judged_pairs)
    # An unjudged pair has position -1, which selects the last value.
    values = np.append(judgements.scores[is_ranked].astype(np.float64), _UNJUDGED)
    levels[run.query_rows, run.ranks - 1] = values[positions]
    return levels


def _levels_best_first(
    judgements: Judgements, judged_rows: NDArray[np.int64], query_count: int
) -> Matrix:
    """Return all judged scores of each query, best first and padded."""
    order = np.lexsort((-judgements.scores.astype(np.int64), judged_rows))
    counts = np.bincount(judged_rows, minlength=query_count)
    list_starts = np.repeat(np.cumsum(counts) - counts, counts)
    columns = np.arange(len(order)) - list_starts
    best_first = np.full((query_count, int(counts.max(initial=0))), _UNJUDGED)
    best_first[judged_rows[order], columns] = judgements.scores[order]
    return best_first


def score_column(gains: Gains, metric: Metric) -> Column:
    """The metric's value for each query."""
    lists = gains.condensed if metric.judged_only else gains
    function = _function_of(metric.family)
    if function is None:
        raise UsageError(f"metric {metric}: the plugin that adds it is not installed.")
    return function(lists, metric, metric.cutoff or max(gains.levels.shape[1], 1))


def _ndcg(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Graded nDCG; without a cutoff, the ideal list has all judged documents."""
    best = gains.judged.shape[1] if metric.cutoff is None else cutoff
    return _ratio(_discounted_gain(gains.levels, cutoff), _discounted_gain(gains.judged, best))


def _map(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Mean average precision, over all positives of the query."""
    relevant = _is_relevant(gains, metric, cutoff)
    precisions = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    return _ratio((precisions * relevant).sum(axis=1), gains.at_least(metric.rel))


def _mrr(gains: Gains, metric: Metric, cutoff: int) -> Column:
    relevant = _is_relevant(gains, metric, cutoff)
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return np.where(relevant.any(axis=1), 1.0 / (1 + relevant.argmax(axis=1)), 0.0)


def _rprec(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Precision at rank R, where R is the query's number of positives."""
    positives = gains.at_least(metric.rel)
    relevant = _is_relevant(gains, metric, cutoff)
    within = np.arange(relevant.shape[1]) < positives[:, None]
    return _ratio((relevant & within).sum(axis=1, dtype=np.float64), positives)


def _bpref(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Binary preference: how often positives are above judged negatives.

    Unjudged documents are skipped.
    """
    relevant = _is_relevant(gains, metric, cutoff)
    positives = gains.at_least(metric.rel)
    negatives = gains.at_least(0) - positives
    above = np.cumsum((gains.levels >= 0) & ~relevant, axis=1)
    bound = np.maximum(np.minimum(positives, negatives), 1)[:, None]
    shares = 1.0 - np.minimum(above, positives[:, None]) / bound
    return _ratio((shares * relevant).sum(axis=1), positives)


def _rbp(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Rank-biased precision, for a reader who continues to the next document with probability p."""
    relevant = _is_relevant(gains, metric, cutoff)
    return (1 - metric.p) * (relevant @ metric.p ** np.arange(relevant.shape[1]))


def _judged_share(gains: Gains, metric: Metric, cutoff: int) -> Column:
    """Share of judged documents among the first k, or among all if the list is shorter."""
    judged = np.count_nonzero(gains.levels[:, :cutoff] > _UNJUDGED, axis=1)
    return _ratio(judged.astype(np.float64), np.minimum(gains.lengths, cutoff))


def _is_relevant(gains: Gains, metric: Metric, cutoff: int) -> NDArray[np.bool_]:
    relevant: NDArray[np.bool_] = gains.levels[:, :cutoff] >= metric.rel
    return relevant


def _count(gains: Gains, metric: Metric, cutoff: int) -> Column:
    counts: Column = _is_relevant(gains, metric, cutoff).sum(axis=1, dtype=np.float64)
    return counts


def _discounted_gain(levels: Matrix, cutoff: int) -> Column:
    """The discounted gain of the first ranks; a document adds 0 if unjudged or judged below 0."""
    cut = np.maximum(levels[:, :cutoff], 0.0)
    summed: Column = cut @ (1.0 / np.log2(np.arange(2, cut.shape[1] + 2)))
    return summed


def _ratio(amount: Column, total: NDArray[np.generic]) -> Column:
    ratios: Column = np.divide(
        amount, total, out=np.zeros(len(amount)), where=np.asarray(total) > 0
    )
    return ratios


_FAMILIES: dict[str, Callable[[Gains, Metric, int], Column]] = {
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
    "judged": _judged_share,
}


def _function_of(family: str) -> Callable[[Gains, Metric, int], Column] | None:
    """Return the function of a metric family; plugins are read only for names not built in."""
    return _FAMILIES.get(family) or load_plugins().metrics.get(family)
