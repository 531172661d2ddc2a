"""Pipelines end to end: members are reused, ceilings hold, given rankings fit or say why not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.errors import DataError, MissingError
from r2med.results.record import Result
from tests.tasks.writing import write_parquet

SPLIT = "NanoThing"
DOCUMENTS = {f"d{n:03}": f"text {n} " + "fever " * (n % 7) for n in range(120)}
QUERIES = {"1": "fever and chills", "2": "a cough", "3": "kidney failure"}
POSITIVES = [("1", "d003"), ("1", "d050"), ("2", "d110"), ("3", "d000")]


class ByNumber:
    """Prefers documents whose number is high; remembers how many pairs it was given."""

    identity = "by-number"

    def __init__(self) -> None:
        self.pairs = 0

    def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        self.pairs += len(pairs)
        return [float(document.split()[1]) for _, document in pairs]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Nano task with two candidate subsets; query 2 has its positive at rank 101 only."""
    names = list(DOCUMENTS)
    hybrid = {"1": names[:100], "2": [*names[:100], "d110"], "3": names[5:60]}
    write_parquet(
        tmp_path / "corpus" / f"{SPLIT}.parquet", _id=names, text=list(DOCUMENTS.values())
    )
    write_parquet(
        tmp_path / "queries" / f"{SPLIT}.parquet", _id=list(QUERIES), text=list(QUERIES.values())
    )
    write_parquet(
        tmp_path / "qrels" / f"{SPLIT}.parquet",
        query__id=[q for q, _ in POSITIVES],
        corpus__id=[d for _, d in POSITIVES],
    )
    for name, lists in {
        "reranking_hybrid": hybrid,
        "bm25": dict.fromkeys(QUERIES, names[:20]),
        "dense": dict.fromkeys(QUERIES, names[10:30]),
    }.items():
        write_parquet(
            tmp_path / name / f"{SPLIT}.parquet",
            query__id=list(lists),
            corpus__ids=list(lists.values()),
        )
    return tmp_path


@pytest.fixture
def task(folder: Path) -> r2med.Task:
    return r2med.load_task(f"{folder}#{SPLIT}")


def ids(result: Result, query: str) -> list[str]:
    return [document for document, _ in result.run.ranking(query)]


def told_by(result_of: str, task: r2med.Task, **options: Any) -> list[str]:
    told: list[str] = []
    r2med.evaluate(result_of, task, warn=told.append, **options)
    return told


def test_members_become_results_of_their_own_and_are_reused(task: r2med.Task) -> None:
    fused = r2med.evaluate("bm25 + bm25-nano", task)

    member = r2med.evaluate("bm25", task)
    again = r2med.evaluate("bm25 + bm25-nano | minmax", task)

    assert not fused.reused and member.reused
    assert {cost.reused for cost in again.record.costs if cost.part == "bm25"} == {True}


def test_forced_members_run_once_for_all_systems(task: r2med.Task) -> None:
    results = r2med.evaluate_all(["bm25", "bm25 + bm25-nano"], task)

    forced = r2med.evaluate_all(["bm25", "bm25 + bm25-nano"], task, force=True)

    assert [result.reused for result in (*results, *forced)] == [False] * 4
    assert [r.metrics for r in results] == [r.metrics for r in forced]


def test_another_depth_reuses_the_scores_of_the_first(task: r2med.Task) -> None:
    first, second = ByNumber(), ByNumber()
    r2med.evaluate("bm25 | mine@10", task, models={"mine": first})

    r2med.evaluate("bm25 | mine@30", task, models={"mine": second})

    assert (first.pairs, second.pairs) == (30, 60)


def test_the_ceiling_is_what_an_oracle_on_the_same_candidates_scores(task: r2med.Task) -> None:
    class Oracle:
        identity = "oracle"

        def predict(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
            texts = {(QUERIES[q], DOCUMENTS[d]) for q, d in POSITIVES}
            return [float(pair in texts) for pair in pairs]

    models = {"mine": ByNumber(), "oracle": Oracle()}
    for tail in ("keep", "drop"):
        mine = r2med.evaluate(f"bm25 | mine[tail={tail}]@20", task, models=models)
        best = r2med.evaluate(f"bm25 | oracle[tail={tail}]@20", task, models=models)

        assert mine.record.reranking is not None
        assert mine.record.reranking.ceiling == pytest.approx(best.metrics)
        assert all(
            mine.metrics[name] <= mine.record.reranking.ceiling[name] + 1e-12
            for name in mine.metrics
        )


def test_the_safeguard_is_off_unless_asked_for(task: r2med.Task) -> None:
    plain = r2med.evaluate("candidates:reranking_hybrid", task)

    assert len(ids(plain, "2")) == 100
    assert plain.record.safeguard is None


def test_the_effect_of_the_safeguard_is_shown(task: r2med.Task) -> None:
    models = {"mine": ByNumber()}
    off = r2med.evaluate("candidates:reranking_hybrid | mine@101", task, models=models)
    on = r2med.evaluate(
        "candidates:reranking_hybrid[safeguard=true] | mine@101", task, models=models
    )

    assert on.record.safeguard is not None
    assert on.record.safeguard.queries == 1
    assert on.record.safeguard.metrics_without == pytest.approx(off.metrics)
    assert on.metrics["ndcg@10"] > off.metrics["ndcg@10"]


def test_candidates_are_measured_in_their_own_order(task: r2med.Task) -> None:
    result = r2med.evaluate("candidates:reranking_hybrid", task)

    assert result.record.system.ties == "list"
    assert ids(result, "3") == list(DOCUMENTS)[5:60]


def test_fused_candidates_on_nano_are_the_published_hybrid(task: r2med.Task) -> None:
    nano = replace(task, suite="nano")
    lists = [list(DOCUMENTS)[:20], list(DOCUMENTS)[10:30]]
    scores = {
        d: sum(1 / (100 + listed.index(d) + 1) for listed in lists if d in listed)
        for d in DOCUMENTS
    }
    best = {d: min(lst.index(d) for lst in lists if d in lst) for d, s in scores.items() if s}
    expected = sorted(best, key=lambda d: (-scores[d], best[d], d))

    result = r2med.evaluate("candidates:bm25 + candidates:dense", nano)

    assert ids(result, "1") == expected
    assert result.record.system.ties == "list"


@pytest.fixture
def echoed(tmp_path: Path) -> Path:
    """Generations for demo/biology that repeat the query: an expansion that changes nothing."""
    queries = r2med.load_task("demo/biology").queries
    path = tmp_path / "echoed.jsonl"
    rows = zip(queries.ids.to_pylist(), queries.texts.to_pylist(), strict=True)
    path.write_text("".join(json.dumps({"id": i, "hy_doc": t}) + "\n" for i, t in rows))
    return path


@pytest.mark.parametrize("members", ["bm25 + bm25-nano", "bm25 + bm25-nano@20 | minmax"])
def test_an_expansion_that_changes_nothing_alters_no_fused_ranking(
    echoed: Path, members: str
) -> None:
    plain = r2med.evaluate(members, "demo/biology")

    expanded = r2med.evaluate(f"hyde:echo[generations={echoed}] | ({members})", "demo/biology")

    for query in plain.run.query_ids.to_pylist():
        assert ids(expanded, query) == ids(plain, query)


@pytest.mark.parametrize("before", ["", "hyde:echo[generations={}] | "])
def test_fusion_counts_only_documents_that_bm25_matched(echoed: Path, before: str) -> None:
    expander = before.format(echoed)

    dropped, filled = (
        r2med.evaluate(f"({expander}bm25-lucene[unmatched={how}]) + bm25-nano", "demo/biology")
        for how in ("drop", "fill")
    )

    for query in dropped.run.query_ids.to_pylist():
        assert ids(dropped, query) == ids(filled, query)


def test_a_published_run_keeps_the_documents_that_match_nothing(task: r2med.Task) -> None:
    assert len(ids(r2med.evaluate("bm25", task), "3")) == 100


def test_lists_from_elsewhere_are_fused_whole(tmp_path: Path, task: r2med.Task) -> None:
    path = tmp_path / "other.trec"
    path.write_text("1 Q0 d001 1 0 x\n1 Q0 d003 2 -1 x\n", encoding="utf-8")

    result = r2med.evaluate(f"run:{path} + candidates:bm25", task)

    assert ids(result, "1")[:2] == ["d001", "d003"]


def test_a_subset_that_is_not_there_names_those_that_are(task: r2med.Task) -> None:
    with pytest.raises(MissingError, match="Did you mean 'reranking_hybrid'"):
        r2med.evaluate("candidates:reranking_hybird", task)


def test_changed_candidates_are_another_result(folder: Path, task: r2med.Task) -> None:
    before = r2med.evaluate("candidates:bm25", task)
    write_parquet(
        folder / "bm25" / f"{SPLIT}.parquet", query__id=["1"], corpus__ids=[["d003", "d050"]]
    )

    after = r2med.evaluate("candidates:bm25", task)

    assert not after.reused
    assert after.metrics != before.metrics


def test_a_run_from_another_tool_is_reranked(tmp_path: Path, task: r2med.Task) -> None:
    path = tmp_path / "other.trec"
    path.write_text("1 Q0 d001 1 3.5 x\n1 Q0 d003 2 2.5 x\n3 Q0 d000 1 9 x\n", encoding="utf-8")

    result = r2med.evaluate(f"run:{path} | mine@10", task, models={"mine": ByNumber()})

    assert [ids(result, query) for query in ("1", "2", "3")] == [["d003", "d001"], [], ["d000"]]


PLACES = ((0, 3), (1, 2), (0, 1))


@pytest.mark.parametrize("keep, order", [("first", [0, 1]), ("last", [1, 0])])
def test_a_run_that_lists_documents_twice_is_read_as_the_system_says(
    tmp_path: Path, task: r2med.Task, keep: str, order: list[int]
) -> None:
    query, documents = task.queries.ids[0].as_py(), task.corpus.ids[:2].to_pylist()
    path = tmp_path / "twice.trec"
    lines = [f"{query} Q0 {documents[place]} {3 - score} {score} x" for place, score in PLACES]
    path.write_text("\n".join(lines), encoding="utf-8")
    told: list[str] = []

    with pytest.raises(DataError, match=r"line 3: .* appears twice(.|\n)*repeats=first"):
        r2med.evaluate(f"run:{path}", task)
    result = r2med.evaluate(f"run:{path}[repeats={keep}]", task, warn=told.append)

    ranked = [name for name, _ in result.run.ranking(query)]
    assert ranked == [documents[place] for place in order]
    wanted = "entries that repeat a document of the same list: 1;"
    assert any(wanted in line for line in told)


def test_a_stored_result_is_a_first_stage(task: r2med.Task) -> None:
    stored = r2med.evaluate("bm25@30", task)

    given = r2med.evaluate(f'run:"{stored.folder}"', task)

    assert given.metrics == stored.metrics


def test_unknown_queries_and_documents_are_counted_and_dropped(
    tmp_path: Path, task: r2med.Task
) -> None:
    path = tmp_path / "other.trec"
    path.write_text(
        "1 Q0 d003 1 3 x\n1 Q0 nope 2 2 x\n9 Q0 d001 1 3 x\n8 Q0 d001 1 3 x\n", encoding="utf-8"
    )

    told = [message.split(": ", 2)[2] for message in told_by(f"run:{path}", task)]

    assert told == [
        "queries not in this task: 2, such as '9'; dropped.",
        "entries for documents not in the corpus: 1, such as 'nope'; dropped.",
        "queries of the task without any document: 2; they score zero.",
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [("9 Q0 d001 1 3 x", "queries not in this task"), ("1 Q0 no 1 3 x", "documents not in the")],
)
def test_strict_refuses_what_the_task_does_not_know(
    tmp_path: Path, task: r2med.Task, line: str, why: str
) -> None:
    path = tmp_path / "other.trec"
    path.write_text(f"{line}\n1 Q0 d001 1 3 x\n", encoding="utf-8")

    with pytest.raises(DataError, match=why):
        r2med.evaluate(f"run:{path}", task, strict=True)


def test_lists_shorter_than_the_depth_are_told(task: r2med.Task) -> None:
    told: list[str] = []

    r2med.evaluate("bm25@20 | mine@50", task, models={"mine": ByNumber()}, warn=told.append)

    assert told == [
        f"{task.name}: mine@50: 3 of 3 lists have fewer than 50 documents; all of these "
        "are reranked. Give the first stage a larger depth with @, as in bm25@50."
    ]


def test_every_stage_says_what_it_cost(task: r2med.Task) -> None:
    result = r2med.evaluate("bm25 | mine@10", task, models={"mine": ByNumber()})

    stages = json.loads((result.folder / "result.json").read_text(encoding="utf-8"))["costs"]

    assert [(cost["part"], cost["stage"]) for cost in stages] == [
        ("", "load"),
        ("bm25", "index"),
        ("bm25", "search"),
        ("mine@10", "rerank"),
        ("", "measure"),
    ]
    assert stages[3]["texts"] == 30
    assert all(cost["seconds"] >= 0 for cost in stages)
