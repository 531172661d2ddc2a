"""What an expansion changes: by overlap, by whether it names the answer, by cause, by word."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import variance
from typing import Any

import pytest

from r2med import Resources, RunOptions, evaluate_all, load_task
from r2med.errors import UsageError
from r2med.evaluation.reasoning import ReasoningStudy, study_reasoning
from tests.cli.running import run
from tests.llm_server import running_llm_server

TASK = "demo/medqa-diag"
EXPANDED = "hyde:some-model | bm25"


@pytest.fixture
def named() -> set[str]:
    """Queries whose generated text names the answer."""
    return {"1", "2", "3"}


@pytest.fixture
def study(named: set[str]) -> Iterator[ReasoningStudy]:
    """A model that names the answer of three queries, and writes about fish otherwise."""
    task = load_task(TASK)
    rows = list(
        zip(
            task.queries.ids.to_pylist(),
            task.queries.texts.to_pylist(),
            task.queries.answers.to_pylist(),
            strict=True,
        )
    )

    def reply(body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        query_id, _, answer = next(row for row in rows if row[1][:60] in prompt)
        return f"This is {answer}." if query_id in named else "Fever of unknown origin in children."

    with running_llm_server() as server:
        server.reply = reply
        with Resources(RunOptions(llm_url=server.url)) as resources:
            evaluate_all(["bm25", EXPANDED], TASK, resources=resources)
        yield study_reasoning(EXPANDED, "bm25", task=TASK)


def test_generations_are_grouped_by_whether_they_name_the_answer(
    study: ReasoningStudy, named: set[str]
) -> None:
    groups = {group.name: group for group in study.naming}

    assert groups["names the answer"].queries == len(named)
    assert groups["does not name it"].queries == study.queries - len(named)
    assert groups["names the answer"].change > groups["does not name it"].change


def test_quarters_cover_all_queries_in_order_of_overlap(study: ReasoningStudy) -> None:
    weighted = sum(group.queries * group.change for group in study.quarters) / study.queries
    overall = sum(group.queries * group.change for group in study.naming) / study.queries

    assert sum(group.queries for group in study.quarters) == study.queries
    assert weighted == pytest.approx(overall)


def test_words_that_only_the_generation_has_and_wrong_documents_share_are_listed(
    study: ReasoningStudy,
) -> None:
    listed = {word.word: word for word in study.pulling_words}

    assert {"unknown", "origin", "children"} & listed.keys()
    assert all(word.documents >= word.queries >= 1 for word in listed.values())


def test_misses_are_counted_by_family_for_both_systems(study: ReasoningStudy) -> None:
    assert {miss.family for miss in study.misses} == {"clinical evidence"}
    assert sum(miss.a for miss in study.misses) > sum(miss.b for miss in study.misses)


@pytest.mark.usefixtures("study")
def test_the_command_prints_every_part() -> None:
    printed = run("compare", EXPANDED, "bm25", "--task", TASK, "--reasoning")

    assert printed.code == 0
    for part in ("shared", "names the answer", "cause of missed positives", "generated word"):
        assert part in printed.out


def test_systems_without_generations_are_still_compared_by_overlap() -> None:
    evaluate_all(["bm25", "bm25-lucene"], TASK)

    study = study_reasoning("bm25", "bm25-lucene", task=TASK)

    assert study.naming == ()
    assert len(study.quarters) == 4
    assert any("no stored generations" in notice for notice in study.notices)


def test_samples_that_are_searched_one_by_one_have_scores_and_a_variance() -> None:
    system = "hyde:some-model[combine=fuse,n=3] | bm25"
    with running_llm_server() as server:
        server.reply = lambda body: ("anaemia", "jaundice", "a cough")[body["seed"] % 3]
        with Resources(RunOptions(llm_url=server.url)) as resources:
            fused, _ = evaluate_all([system, "bm25"], TASK, resources=resources)

    study = study_reasoning(system, "bm25", task=TASK)

    [samples] = study.samples
    stored = fused.record.samples
    assert stored is not None
    assert samples.scores == tuple(row["ndcg@10"] for row in stored.metrics)
    assert samples.variance == pytest.approx(variance(samples.scores))
    assert (samples.system, samples.task) == (system, TASK)
    printed = run("compare", system, "bm25", "--task", TASK, "--reasoning")
    assert "samples alone" in printed.out and f"{100 * samples.scores[0]:.2f}" in printed.out


def test_three_systems_are_refused() -> None:
    with pytest.raises(UsageError, match="two systems"):
        study_reasoning("bm25", "bm25-lucene", "bm25-nano", task=TASK)


def test_intervals_of_changes_hold_the_change() -> None:
    evaluate_all(["bm25", "bm25-lucene"], TASK)

    study = study_reasoning("bm25-lucene", "bm25", task=TASK)

    assert all(g.difference.low <= g.change <= g.difference.high for g in study.quarters)
