"""What became of a task on its way into a pool: counts, and a sentence for each loss."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolReport:
    """Counts of everything kept and lost."""

    source_queries: int
    source_documents: int
    queries_without_positive: int
    repeated_query_texts: int
    queries_over_limit: int
    queries: int
    queries_left_without_positive: int
    """Chosen first, dropped because none of their positives was kept."""
    documents: int
    positive_documents: int
    judged_negative_documents: int
    fill_documents: int
    positives: int
    """Judgements kept."""
    positives_repeated_text: int
    """Judgements dropped because an equal text was already there under another id."""
    positives_over_limit: int
    positives_over_cap: int
    positives_not_in_corpus: int
    repeated_texts_skipped: int
    rows_looked_at: int
    """How far the fill went into its order of documents."""

    @property
    def positives_lost(self) -> int:
        """Judgements of chosen queries that the pool does not have."""
        return (
            self.positives_repeated_text
            + self.positives_over_limit
            + self.positives_over_cap
            + self.positives_not_in_corpus
        )

    def notices(self, limit: int) -> list[str]:
        """A sentence for each loss a reader of the scores must know."""
        told = [
            (
                self.positives_over_limit,
                f"{_many(self.positives_over_limit, 'positive')} dropped: the pool's "
                f"{limit:,} documents are fewer than the positives.",
            ),
            (
                self.positives_repeated_text,
                f"{_many(self.positives_repeated_text, 'positive')} dropped: an equal text was "
                "already in the pool.",
            ),
            (
                self.positives_over_cap,
                f"{_many(self.positives_over_cap, 'positive')} dropped by the limit of positives "
                "a query.",
            ),
            (
                self.positives_not_in_corpus,
                f"{_many(self.positives_not_in_corpus, 'positive')} dropped: not in the corpus.",
            ),
            (
                self.queries_without_positive,
                f"{_many(self.queries_without_positive, 'query')} without a positive left out.",
            ),
            (
                self.repeated_query_texts,
                f"{_many(self.repeated_query_texts, 'query')} with a text asked before left out.",
            ),
            (
                self.queries_over_limit,
                f"{_many(self.queries_over_limit, 'query')} left out: more than were asked for.",
            ),
            (
                self.queries_left_without_positive,
                f"{_many(self.queries_left_without_positive, 'query')} dropped: no positive left.",
            ),
            (
                int(self.documents < limit),
                f"{self.documents:,} documents instead of {limit:,}: the source has no more that "
                "may be taken.",
            ),
        ]
        return [sentence for count, sentence in told if count]


def _many(count: int, one: str) -> str:
    plural = {"query": "queries", "positive": "positives"}[one]
    return f"1 {one}" if count == 1 else f"{count:,} {plural}"
