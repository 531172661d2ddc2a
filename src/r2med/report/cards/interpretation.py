"""Sentences that a task's figures speak: computed, so that they stay true when figures change."""

from __future__ import annotations

from collections.abc import Iterator

from r2med.nano.candidates import TITLES
from r2med.nano.profiles import Profile, RetrievalProfile
from r2med.report.cards.facts import Facts, Scored

#: Below this difference in nDCG@10 two profiles are called level.
_LEVEL = 0.01


def readings(facts: Facts) -> Iterator[str]:
    """What the profiles and the stored results say, one statement each."""
    yield from _profiles(facts.profile)
    yield from _reach(facts.profile)
    yield from _against_published(facts.profile)
    if len(facts.scored) > 1:
        yield _stored(facts.scored[0], facts.scored[1])


def _profiles(profile: Profile) -> Iterator[str]:
    best, bm25 = profile.best, profile.of("bm25")
    dense = profile.of("dense")
    if best is not None:
        yield f"Best of the profiles by nDCG@10: {TITLES[best.role]}, {best.ndcg_10:.4f}."
    if bm25 and dense:
        gap = dense.ndcg_10 - bm25.ndcg_10
        if abs(gap) < _LEVEL:
            yield f"Words and vectors are level here (difference {gap:+.4f})."
        else:
            ahead = "Vectors are ahead of words" if gap > 0 else "Words are ahead of vectors"
            yield f"{ahead} by {abs(gap):.4f} nDCG@10."


def _reach(profile: Profile) -> Iterator[str]:
    hybrid, bm25 = profile.of("reranking_hybrid"), profile.of("bm25")
    if bm25:
        missing = 1 - bm25.hit_10
        yield (
            f"BM25 has no positive among its first ten for {100 * missing:.1f} % of the queries, "
            f"and finds {100 * bm25.recall_100_micro:.1f} % of the positives in its first hundred."
        )
    if hybrid:
        yield (
            "A reranker of the hybrid's hundred can reach at most "
            f"{100 * hybrid.recall_100_micro:.1f} % of the positives; {_guarded(hybrid)}."
        )


def _guarded(hybrid: RetrievalProfile) -> str:
    if not hybrid.safeguard_rows:
        return "they hold one for every query, so no safeguard was needed"
    share = 100 * hybrid.safeguard_rows / max(hybrid.queries, 1)
    return (
        f"for {hybrid.safeguard_rows:,} of {hybrid.queries:,} queries ({share:.1f} %) they hold "
        "none, and the safeguard puts one below them"
    )


def _against_published(profile: Profile) -> Iterator[str]:
    for row in profile.retrieval:
        if "ndcg_at_10" in row.published:
            off = row.ndcg_10 - float(row.published["ndcg_at_10"])
            told = "as published" if abs(off) < 1e-6 else f"{off:+.4f} from the published figure"
            yield f"{TITLES[row.role]}, nDCG@10: {told}."


def _stored(first: Scored, second: Scored) -> str:
    apart = first.interval.low > second.ndcg_10
    told = "ahead of" if apart else "not told apart with confidence from"
    return (
        f"Of the stored systems {first.system} scores highest; by its interval it is {told} "
        f"{second.system}. r2med compare tests the pair."
    )
