"""What is odd about a given ranking: counted, told, and never silently mended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from r2med.errors import DataError


@dataclass(frozen=True)
class Findings:
    """Counts of oddities; an example names the first of its kind."""

    unknown_queries: int = 0
    unknown_query: str = ""
    unknown_documents: int = 0
    unknown_document: str = ""
    missing_queries: int = 0
    repeats: str = "refuse"
    repeated_documents: int = 0
    repeated_ranks: int = 0
    unsorted_queries: int = 0
    without_scores: bool = False

    def facts(self) -> Mapping[str, object]:
        """Those that were found, for the record."""
        facts = {name: value for name, value in asdict(self).items() if value}
        if not self.repeated_documents:
            facts.pop("repeats")
        return facts

    def notices(self) -> list[str]:
        """A sentence for each, with what follows from it."""
        told = [
            (
                self.unknown_queries,
                f"{_many(self.unknown_queries, 'query', 'queries')} not in this task, dropped; "
                f"the first is {self.unknown_query!r}.",
            ),
            (
                self.unknown_documents,
                f"{_many(self.unknown_documents, 'entry', 'entries')} for documents that are not "
                f"in the corpus, dropped; the first is {self.unknown_document!r}.",
            ),
            (
                self.missing_queries,
                f"{_many(self.missing_queries, 'query', 'queries')} of the task without any "
                "document; they score zero.",
            ),
            (
                self.repeated_documents,
                f"{_many(self.repeated_documents, 'entry', 'entries')} for a document that the "
                f"list of its query holds already; the {self.repeats} one counts.",
            ),
            (
                self.unsorted_queries,
                f"{_many(self.unsorted_queries, 'list', 'lists')} whose ranks contradict the "
                "scores; scores decide, as in trec_eval.",
            ),
            (
                self.repeated_ranks,
                f"{_many(self.repeated_ranks, 'list', 'lists')} with a rank given twice; "
                f"{'lines' if self.without_scores else 'scores'} decide.",
            ),
            (int(self.without_scores), "no scores; the ranks decide."),
        ]
        return [sentence for count, sentence in told if count]

    def check_strict(self, source: str) -> None:
        """Fail where the ranking names something that is not there."""
        for count, what, example in (
            (self.unknown_queries, "queries that are not in this task", self.unknown_query),
            (
                self.unknown_documents,
                "entries for documents that are not in the corpus",
                self.unknown_document,
            ),
        ):
            if count:
                raise DataError(
                    f"{source}: {count:,} {what}; the first is {example!r}.\n"
                    "Was the run made on other data? Without --strict they are dropped and counted."
                )


def _many(count: int, one: str, more: str) -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {more}"
