"""What a reader of the scores must know about the data: counted on loading, told as notices."""

from __future__ import annotations

from dataclasses import dataclass

from r2med.errors import DataError


@dataclass(frozen=True)
class Findings:
    """Oddities that do not stop a load; an example names the first place of its kind."""

    documents: int = 0
    shared_ids: int = 0
    shared_id_rows: int = 0
    repeated_texts: int = 0
    empty_documents: int = 0
    empty_queries: int = 0
    unjudged_queries: int = 0
    other_split_queries: int = 0
    unknown_queries: int = 0
    unknown_query_example: str = ""
    unknown_documents: int = 0
    unknown_document_example: str = ""
    repeated_judgements: int = 0
    repaired_texts: int = 0

    def notices(self) -> tuple[str, ...]:
        """A sentence for each, with what follows from it."""
        told = [*self._about_documents(), *self._about_queries(), *self._about_judgements()]
        return tuple(sentence for count, sentence in told if count)

    def check_strict(self) -> None:
        """Fail where a judgement is for something that is not there."""
        for count, what, example in (
            (self.unknown_queries, "query", self.unknown_query_example),
            (self.unknown_documents, "document", self.unknown_document_example),
        ):
            if count:
                raise DataError(
                    f"{_many(count, 'judgement')} with an unknown {what} id; the first is "
                    f"{example}.\nLeave --strict (strict=True) out to go on with a notice."
                )

    def _about_documents(self) -> list[tuple[int, str]]:
        return [
            (
                self.shared_ids,
                f"{self.shared_id_rows:,} document rows share {_many(self.shared_ids, 'id')}: "
                "BM25 indexes every row, dense retrieval keeps the last one of an id.",
            ),
            (
                self.repeated_texts,
                f"{self.repeated_texts:,} of {self.documents:,} documents repeat the text of "
                "an earlier one.",
            ),
            (self.empty_documents, f"{_many(self.empty_documents, 'document')} without text."),
            (
                self.repaired_texts,
                f"{_many(self.repaired_texts, 'text')} with half a surrogate pair, "
                "replaced by U+FFFD.",
            ),
        ]

    def _about_queries(self) -> list[tuple[int, str]]:
        return [
            (self.empty_queries, f"{_many(self.empty_queries, 'query')} without text."),
            (
                self.unjudged_queries,
                f"{_many(self.unjudged_queries, 'query')} without judgements, "
                "left out of all means.",
            ),
            (
                self.other_split_queries,
                f"{_many(self.other_split_queries, 'query')} without judgements in this split, "
                "left out of the task.",
            ),
        ]

    def _about_judgements(self) -> list[tuple[int, str]]:
        return [
            (
                self.unknown_queries,
                f"{_many(self.unknown_queries, 'judgement')} with an unknown query id, dropped; "
                f"the first is {self.unknown_query_example}.",
            ),
            (
                self.unknown_documents,
                f"{_many(self.unknown_documents, 'judgement')} with an unknown document id, kept: "
                "trec_eval counts such documents too, though none can be found; "
                f"the first is {self.unknown_document_example}.",
            ),
            (
                self.repeated_judgements,
                f"{_many(self.repeated_judgements, 'judgement')} given more than once with the "
                "same score, counted once.",
            ),
        ]


def _many(count: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"1 {noun}" if count == 1 else f"{count:,} {plural}"
