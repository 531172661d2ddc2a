"""Scores under other wordings: of an encoder's instruction, and of the queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r2med import Resources, RunOptions, evaluate, load_task
from r2med.errors import DataError, UsageError
from r2med.evaluation.rewording import Rewording, read_rewordings, reword_queries
from r2med.evaluation.sensitivity import measure_sensitivity
from tests.cli.running import run
from tests.llm_server import running_llm_server

TASK = "demo/biology"
INSTRUCTED = 'wordllama[query_instruction="Given a {kind}, {purpose}: "]'


def test_a_paraphrase_replaces_the_sentence_of_the_instruction() -> None:
    task = load_task(TASK)

    measured = measure_sensitivity(INSTRUCTED, task, instructions=["{kind}: {purpose}"])

    by_hand = evaluate('wordllama[query_instruction="{kind}: {purpose}: "]', task)
    assert [score.type for score in measured.scores] == ["original", "instruction"]
    assert measured.scores[1].score == pytest.approx(by_hand.metrics["ndcg@10"], abs=1e-12)
    assert measured.original.score == evaluate(INSTRUCTED, task).metrics["ndcg@10"]


def test_eight_paraphrases_come_with_the_package() -> None:
    measured = measure_sensitivity(INSTRUCTED, load_task(TASK))

    assert len(measured.of_type("instruction")) == 8
    assert measured.spread > 0


def test_the_same_wording_changes_nothing() -> None:
    task = load_task(TASK)
    same = Rewording("same", dict(task.queries.items()))

    measured = measure_sensitivity("bm25", task, rewordings=[same])

    assert (measured.spread, measured.stability, measured.unstable_queries) == (0, 0, ())
    assert measured.scores[1].changed_queries == 0


def test_reworded_queries_are_searched_and_two_systems_compared() -> None:
    task = load_task(TASK)
    answers = task.queries.answers.to_pylist()
    by_id = dict(zip(task.queries.ids.to_pylist(), answers, strict=True))
    telling = Rewording("wording 1", {"1": by_id["1"]})

    measured = measure_sensitivity("bm25", task, against="wordllama", rewordings=[telling])

    assert measured.scores[1].changed_queries <= 1
    assert all(score.difference is not None for score in measured.scores)
    original = evaluate("bm25", task).metrics["ndcg@10"]
    rival = evaluate("wordllama", task).metrics["ndcg@10"]
    assert measured.original.difference == pytest.approx(original - rival)


def test_variations_are_not_stored_among_the_results(tmp_path: Path) -> None:
    task = load_task(TASK)

    measure_sensitivity(INSTRUCTED, task, instructions=["Find {purpose}"], results=tmp_path)

    listed = json.loads(run("results", "--results", str(tmp_path), "--json").out)
    assert [row["system"] for row in listed] == [INSTRUCTED]


def test_a_system_without_instruction_needs_rewordings() -> None:
    with pytest.raises(UsageError, match="no stage has an instruction"):
        measure_sensitivity("bm25", load_task(TASK))


def test_lines_of_one_query_are_several_wordings(tmp_path: Path) -> None:
    path = tmp_path / "reworded.jsonl"
    rows = [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}, {"id": "1", "text": "c"}]
    path.write_text("\n".join(map(json.dumps, rows)))

    first, second = read_rewordings(path, load_task(TASK))

    assert (first.texts, second.texts) == ({"1": "a", "2": "b"}, {"1": "c"})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"id": "1"}', 'no "id" and "text"'),
        ('{"id": "none", "text": "a"}', "has no query 'none'"),
        ('{"id": "1", "text": " "}', '"text" must be a text'),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "reworded.jsonl"
    path.write_text('{"id": "2", "text": "b"}\n' + line)

    with pytest.raises(DataError, match=f"line 2.*{problem}"):
        read_rewordings(path, load_task(TASK))


def test_a_language_model_rewords_and_its_meaning_is_checked() -> None:
    task = load_task(TASK)
    first_text = task.query("1")

    def reply(body: dict[str, Any]) -> str:
        prompt: str = body["messages"][-1]["content"]
        if "Answer with one word" in prompt:
            return "No." if first_text in prompt else "Yes"
        return "In other words: " + prompt.split("Query:\n")[1].split("\n")[0]

    with running_llm_server() as server:
        server.reply = reply
        options = RunOptions(llm_url=server.url)
        warnings: list[str] = []
        with Resources(options, warn=warnings.append) as resources:
            [reworded] = reword_queries(task, "some-model", resources, count=1)

    assert reworded.rejected == 1
    assert "1" not in reworded.texts
    assert reworded.texts["2"].startswith("In other words: ")
    assert any("1 query of" in warning for warning in warnings)


def test_the_command_prints_the_spread_and_a_row_per_wording(tmp_path: Path) -> None:
    paraphrases = tmp_path / "mine.txt"
    paraphrases.write_text("Find {purpose} for a {kind}\n")

    printed = run(
        *("sensitivity", INSTRUCTED, "--task", TASK, "--compare-with", "bm25"),
        *("--instructions", str(paraphrases)),
    )
    as_json = run(
        *("sensitivity", INSTRUCTED, "--task", TASK, "--instructions", str(paraphrases), "--json")
    )

    assert printed.code == 0
    queries = len(load_task(TASK).queries)
    assert f"2 wordings of {queries} queries" in " ".join(printed.out.split())
    assert json.loads(as_json.out)["spread"] >= 0
