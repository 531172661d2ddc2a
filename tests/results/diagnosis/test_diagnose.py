from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import r2med
from r2med.errors import DataError
from r2med.results.diagnosis.causes import CAUSES
from r2med.results.diagnosis.diagnose import diagnose, diagnose_ranking
from r2med.results.diagnosis.findings import Diagnosis
from r2med.results.select import ResultSet
from tests.results.diagnosis.collections import ranking_of, task_of

FILLER = {f"filler{n}": f"Unrelated note number {n} on hospital parking." for n in range(12)}
CORPUS = {
    "decoy": "Severe belly pain with vomiting after a crash diet suggests the appendix.",
    "porphyria": "Porphobilinogen excretion proves a defect of haem synthesis.",
    "porphyria-copy": "Porphobilinogen excretion proves a defect of haem synthesis!",
    **FILLER,
}
QUERY = {"q1": "Severe belly pain and vomiting after a crash diet. What is it?"}


def test_an_answer_in_other_words_is_missed_for_few_shared_terms(tmp_path: Path) -> None:
    task = task_of(tmp_path, CORPUS, QUERY, {"q1": {"porphyria": 1, "decoy": 0}})
    ranking = ranking_of({"q1": ["decoy", *FILLER, "porphyria"]})

    found = diagnose_ranking(ranking, task).queries[0]

    (positive,) = found.positives
    assert (positive.rank, positive.cause, positive.witness) == (14, "few-shared-terms", "decoy")
    assert positive.coverage == 0
    assert (found.outcome, found.cause, found.holes) == ("none found", "few-shared-terms", 9)
    assert found.top[0].label == "not relevant"
    assert set(found.top[0].shared) >= {"belly", "vomiting", "crash"}


def test_an_unjudged_copy_in_the_top_is_a_twin(tmp_path: Path) -> None:
    task = task_of(tmp_path, CORPUS, QUERY, {"q1": {"porphyria": 1}})
    ranking = ranking_of({"q1": ["porphyria-copy", *FILLER]})

    diagnosis = diagnose_ranking(ranking, task)

    (positive,) = diagnosis.queries[0].positives
    assert (positive.rank, positive.cause) == (None, "twin-retrieved")
    assert positive.witness == "porphyria-copy"
    assert diagnosis.out_of_reach == 1


def test_a_copy_that_is_judged_not_relevant_is_no_twin(tmp_path: Path) -> None:
    task = task_of(tmp_path, CORPUS, QUERY, {"q1": {"porphyria": 1, "porphyria-copy": 0}})
    ranking = ranking_of({"q1": ["porphyria-copy", *FILLER]})

    assert diagnose_ranking(ranking, task).queries[0].cause == "same-subject"


def test_a_query_that_the_run_lacks_has_all_its_positives_out_of_reach(tmp_path: Path) -> None:
    queries = {**QUERY, "q2": "haem defect"}
    task = task_of(tmp_path, CORPUS, queries, {"q1": {"decoy": 1}, "q2": {"porphyria": 2}})

    diagnosis = diagnose_ranking(ranking_of({"q1": ["decoy"]}), task)

    assert [query.outcome for query in diagnosis.queries] == ["all found", "none found"]
    assert diagnosis.out_of_reach == 1
    assert diagnosis.looked_at == 1


def test_queries_without_positives_are_an_error_that_says_so(tmp_path: Path) -> None:
    task = task_of(tmp_path, CORPUS, QUERY, {"q1": {"decoy": 0}})

    with pytest.raises(DataError, match="no query has a positive"):
        diagnose_ranking(ranking_of({"q1": ["decoy"]}), task)


def test_the_data_forms_say_the_same(tmp_path: Path) -> None:
    task = task_of(tmp_path, CORPUS, QUERY, {"q1": {"porphyria": 1, "decoy": 2}})
    diagnosis = diagnose_ranking(ranking_of({"q1": ["decoy", *FILLER, "porphyria"]}), task)

    whole = Diagnosis(diagnosis.system, (diagnosis,))
    table, told = whole.to_arrow(), whole.to_json()

    (query,) = told["tasks"][0]["queries"]
    assert table["document_id"].to_pylist() == [p["document_id"] for p in query["positives"]]
    assert table["cause"].to_pylist() == [None, "few-shared-terms"]
    assert told["tasks"][0]["missed"] == {"few-shared-terms": 1}
    assert set(told["causes"]) == set(CAUSES)


class ByLength:
    """A reranker that puts short documents first, whatever they say."""

    identity = "by length"

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        return [-float(len(document)) for _, document in pairs]


def test_what_a_reranker_lost_is_told_from_what_it_never_got(tmp_path: Path) -> None:
    task = r2med.load_task("demo/medqa-diag")
    first = r2med.evaluate("bm25", task, results=tmp_path)
    result = r2med.evaluate("bm25 | mine@20", task, results=tmp_path, models={"mine": ByLength()})
    ranking = ResultSet((result,), "").find_ranking(result.system, task)

    alone = diagnose_ranking(ranking, task, results=[result])
    beside = diagnose_ranking(ranking, task, results=[result, first])

    positives = [each for query in beside.queries for each in query.missed]
    assert {each.cause for each in positives if (each.rank or 99) > 20} == {"not-offered"}
    demoted = [each for each in positives if each.cause == "demoted"]
    assert demoted
    assert all((each.first_stage_rank or 99) <= 10 < (each.rank or 99) for each in demoted)
    assert "demoted" not in alone.causes
    assert any("r2med eval 'bm25'" in told for told in alone.open)


def test_slices_cover_every_query_once(tmp_path: Path) -> None:
    queries = {f"q{n}": "pain " * n for n in range(1, 10)}
    judged = {name: {"decoy": 1} for name in queries}
    task = task_of(tmp_path, CORPUS, queries, judged)
    ranking = ranking_of({name: ["filler1", "decoy"] for name in queries})

    found = Diagnosis("staged", (diagnose_ranking(ranking, task),)).slices

    lengths = [each for each in found if each.by == "query length"]
    assert [each.queries for each in lengths] == [3, 3, 3]
    assert [each.value for each in lengths] == ["1 to 3 words", "4 to 6 words", "7 to 9 words"]
    assert all(each.interval is None for each in lengths)


def test_one_word_is_no_words(tmp_path: Path) -> None:
    queries = {f"q{n}": "pain " * (n // 3 + 1) for n in range(9)}
    task = task_of(tmp_path, CORPUS, queries, {name: {"decoy": 1} for name in queries})

    diagnosis = diagnose_ranking(ranking_of({n: ["decoy"] for n in queries}), task)
    found = Diagnosis("staged", (diagnosis,)).slices

    lengths = [each.value for each in found if each.by == "query length"]
    assert lengths == ["1 word", "2 words", "3 words"]


def test_a_result_is_diagnosed_on_its_own_task_and_prints_as_on_the_command_line(
    tmp_path: Path,
) -> None:
    result = r2med.evaluate("bm25", "demo/medqa-diag", results=tmp_path)
    pairs = [
        (query, document)
        for query, judged in r2med.load_task("demo/medqa-diag").judgements.by_query().items()
        for document, score in judged.items()
        if score > 0
    ]
    at_top = {query: dict(result.run.ranking(query)[:10]) for query, _ in pairs}
    hits = sum(document in at_top[query] for query, document in pairs)

    found = diagnose(result, results=tmp_path)

    assert found.causes == found.tasks[0].causes
    assert f"positives in the top 10: {hits} of {len(pairs)}" in str(found)
    assert found.to_arrow().num_rows == len(pairs)
