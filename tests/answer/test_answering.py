"""Four conditions with a scripted model: exact scores, stored answers, resumption, bad input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from r2med.answer.conditions import build_questions
from r2med.answer.grading import (
    build_label_queue,
    calibrate_judge,
    find_answer_rubric,
    find_grades,
    grade_answers,
    label_texts,
    open_grades,
    open_labels,
)
from r2med.answer.listing import answer_rows, describe_answers, export_answers, rank_answers
from r2med.answer.prompt import find_prompt
from r2med.answer.reporting import report_answers
from r2med.answer.scoring import Arm, ArmFigures
from r2med.answer.store import AnswerSet, AnswerStore
from r2med.errors import DataError, MissingError, UsageError
from r2med.judge.panel import open_panel
from r2med.judge.review import label_pair
from tests.answer.making import (
    ANSWERS,
    FOUND,
    LOST,
    RANKINGS,
    TASK,
    ask,
    reply,
    task_with_answers,
)
from tests.answer.phrasings import QUESTION
from tests.building import texts
from tests.judge.making import remote_of
from tests.llm_server import LLMServer, running_llm_server, says


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        running.reply = reply
        yield running


def figures(answers: AnswerSet, **options: Any) -> dict[str, ArmFigures]:
    rows = report_answers([answers], **options).tasks[0].rows
    return {Arm(row.condition, row.system).label: row for row in rows}


def test_conditions_show_the_right_passages() -> None:
    questions = build_questions(TASK, RANKINGS, k=2).questions
    shown = {(q.query_id, q.condition): q.passage_ids for q in questions}

    assert shown["q3", "closed-book"] == ()
    assert shown["q3", "retrieved"] == ("secret-q3-neg", "secret-other")
    assert shown["q3", "oracle"] == ("secret-q3-pos",)
    assert shown["q3", "distracted"] == ("secret-q3-neg",)
    retrieved = next(q for q in questions if (q.query_id, q.condition) == ("q1", "retrieved"))
    assert retrieved.relevant == (1,) and retrieved.positives == 1
    assert retrieved.retrieval["recall@2"] == 1.0


def test_a_model_sees_numbered_passages_and_never_ids(server: LLMServer, tmp_path: Path) -> None:
    ask(server, tmp_path)

    prompts = json.dumps(server.bodies)
    assert "[1] evidence for Botulism" in prompts and "secret" not in prompts
    assert {body["temperature"] for body in server.bodies} == {0}


def test_known_answers_give_exact_scores(server: LLMServer, tmp_path: Path) -> None:
    rows = figures(ask(server, tmp_path))

    assert {label: row.score for label, row in rows.items()} == {
        "closed-book": 0.25,
        "retrieved: found": 0.5,
        "oracle": 1.0,
        "distracted: found": 0.0,
    }
    retrieved = rows["retrieved: found"]
    assert retrieved.share == pytest.approx((0.5 - 0.25) / (1.0 - 0.25))
    assert retrieved.match == 0.5 and retrieved.abstained == 0.5
    assert retrieved.abstentions is not None
    assert (retrieved.abstentions.right, retrieved.abstentions.wrong) == (2, 0)
    assert (retrieved.citation_precision, retrieved.citation_recall) == (1.0, 1.0)
    assert rows["closed-book"].abstentions is None
    assert rows["closed-book"].citation_precision is None


def test_a_model_that_does_not_use_evidence_has_no_share_of_the_way(
    server: LLMServer, tmp_path: Path
) -> None:
    server.reply = lambda body: (
        "Answer: Botulism" if "evidence for Botulism" in str(body) else "Answer: Influenza"
    )

    report = report_answers([ask(server, tmp_path)])

    rows = {Arm(row.condition, row.system).label: row for row in report.rows}
    assert rows["oracle"].score > rows["closed-book"].score
    assert rows["retrieved: found"].share is None
    assert "No share of the way is given" in str(report)


def test_every_task_counts_once_in_all_figures(server: LLMServer, tmp_path: Path) -> None:
    is_first = pa.array([query_id == "q1" for query_id in ANSWERS])
    one_query = replace(TASK, name="small", queries=TASK.queries.filter(is_first))
    sets = [ask(server, tmp_path), ask(server, tmp_path, one_query)]

    report = report_answers(sets)

    [closed] = [row for row in report.rows if row.condition == "closed-book"]
    assert closed.score == closed.match == closed.f1 == pytest.approx((0.25 + 1.0) / 2)


def test_a_judge_decides_long_references(server: LLMServer, tmp_path: Path) -> None:
    long = {name: f"{answer}, which is the disease that the whole text of this long case describes"
            for name, answer in ANSWERS.items()}  # fmt: skip
    answers = ask(server, tmp_path, task_with_answers(long))
    with pytest.raises(DataError, match="r2med answer grade scripted-k2"):
        report_answers([answers])
    panel = open_panel(["judge"], find_answer_rubric(None), remote_of(server))
    server.reply = lambda body: json.dumps(
        {"correctness": 3 if "Candidate answer:\nInfluenza" not in str(body["messages"][-1]
         ["content"]) else 2}
    )  # fmt: skip

    count = grade_answers(answers, panel, open_grades(answers, panel))

    rows = figures(answers)
    assert count == 7  # Botulism by heart and with evidence is one answer
    assert rows["closed-book"].score == (1 + 3 * 0.5) / 4
    assert rows["closed-book"].shares == {
        "correct": 0.25, "partly": 0.75, "wrong": 0.0, "abstained": 0.0
    }  # fmt: skip
    assert rows["retrieved: found"].shares["abstained"] == 0.5
    asked = len(server.seen)
    assert grade_answers(answers, panel, open_grades(answers, panel)) == 0
    assert len(server.seen) == asked


def test_a_judge_is_calibrated_against_labels_of_people(server: LLMServer, tmp_path: Path) -> None:
    answers = ask(server, tmp_path)
    panel = open_panel(["judge"], find_answer_rubric(None), remote_of(server))
    grades = open_grades(answers, panel)
    grade_answers(answers, panel, grades)
    assert calibrate_judge(answers, grades) is None
    queue = build_label_queue(answers, grades, TASK, 100)
    store = open_labels(answers)
    queue = store.open(queue)
    shown = label_texts(answers)(queue.pairs[0])
    assert set(shown) == {"query", "answer", "passage"} and "secret" not in str(shown)
    given = dict(grades.grades())
    flipped = next(pair for pair, grade in given.items() if grade == 3)
    for pair in queue.pairs:
        label = 2 if pair == flipped else given[pair]
        store.add(label_pair(queue, "ann", pair, label))

    calibration = calibrate_judge(answers, grades)

    assert calibration is not None and calibration.answers == len(given) == 7
    assert calibration.agreement.value == pytest.approx(6 / 7)
    assert calibration.confusion["partly"]["correct"] == 1
    assert calibration.confusion["wrong"]["wrong"] == 3
    assert calibration.mean_judge == pytest.approx(4 / 7)
    assert calibration.mean_people == pytest.approx(3.5 / 7)
    assert report_answers([answers]).calibrations == (calibration,)


@pytest.mark.parametrize(("judge", "family"), [("gpt4", "gpt"), ("scripted", ""), ("other", None)])
def test_a_judge_of_the_same_family_is_warned_of(
    server: LLMServer, tmp_path: Path, judge: str, family: str | None
) -> None:
    answers = ask(server, tmp_path, llm="gpt4" if judge == "gpt4" else "scripted")
    panel = open_panel([judge], find_answer_rubric(None), remote_of(server))
    grade_answers(answers, panel, open_grades(answers, panel))

    warnings = [w for w in report_answers([answers]).warnings if "one model family" in w]

    assert len(warnings) == (family is not None)


def test_options_need_no_judge(server: LLMServer, tmp_path: Path) -> None:
    queries = replace(
        TASK.queries,
        texts=texts(*[QUESTION] * 4),
        answers=texts("C", "B", "Botulism", "C. Botulism"),
    )
    server.reply = lambda body: "The answer is (C) Botulism, as in [1]."

    rows = figures(ask(server, tmp_path, replace(TASK, queries=queries)))

    assert {row.score for row in rows.values()} == {0.75}
    assert rows["oracle"].option == 0.75


def test_asking_again_asks_nothing_and_another_system_is_added(
    server: LLMServer, tmp_path: Path
) -> None:
    answers = ask(server, tmp_path)
    asked, before = len(server.seen), answers.answers()
    answers.close()

    again = ask(server, tmp_path)
    assert len(server.seen) == asked and again.answers() == before

    more = ask(server, tmp_path, rankings=[*RANKINGS, LOST])
    assert {answer.system for answer in more.answers().values()} == {"", "found", "lost"}
    report = report_answers([more])
    assert [c.p_holm for c in report.comparisons] == [
        max(c.p_holm, c.difference.p_randomisation) for c in report.comparisons
    ]
    assert report.relation is not None and len(report.relation.points) == 8
    assert report_answers([more], systems=["lost"]).relation is not None
    with pytest.raises(DataError, match="it has answers with: found, lost"):
        report_answers([more], systems=["bm25"])


def test_a_changed_run_is_asked_again(server: LLMServer, tmp_path: Path) -> None:
    ask(server, tmp_path)
    changed = replace(RANKINGS[0], run=LOST.run)

    answers = ask(server, tmp_path, rankings=[changed])

    assert figures(answers)["retrieved: found"].score == 0.0


def test_other_settings_under_the_same_name_are_refused(server: LLMServer, tmp_path: Path) -> None:
    ask(server, tmp_path, name="mine")

    with pytest.raises(UsageError, match="has another k"):
        ask(server, tmp_path, name="mine", k=3)
    with pytest.raises(UsageError, match="has another prompt"):
        prompt = replace(find_prompt("default"), system="Be brief.")
        ask(server, tmp_path, name="mine", prompt=prompt)
    with pytest.raises(UsageError, match="has another data"):
        ask(server, tmp_path, task_with_answers({**ANSWERS, "q4": "Rickets"}), name="mine")
    with pytest.raises(UsageError, match=r"answer set '\.\./x': a name"):
        ask(server, tmp_path, name="../x")


def test_queries_without_answers_or_positives_are_named_and_counted() -> None:
    task = task_with_answers({**ANSWERS, "q2": None, "q3": "  "})
    questions = build_questions(task, RANKINGS, k=2)

    assert questions.without_answer == ("q2", "q3")
    assert "2 queries (q2, q3) have no reference answer" in questions.notices[0]
    assert {question.query_id for question in questions.questions} == {"q1", "q4"}
    with pytest.raises(DataError, match="no query can be asked: 4 queries without a reference"):
        build_questions(task_with_answers(dict.fromkeys(ANSWERS)), RANKINGS, k=2)


def test_k_larger_than_the_run_shows_what_there_is(server: LLMServer, tmp_path: Path) -> None:
    questions = build_questions(TASK, RANKINGS, k=50)

    assert any("4 queries with fewer than 50 passages (the least has 2)" in notice
               for notice in questions.notices)  # fmt: skip
    rows = figures(ask(server, tmp_path, k=50))
    assert rows["retrieved: found"].score == 0.75


def test_a_model_that_never_cites(server: LLMServer, tmp_path: Path) -> None:
    server.reply = lambda body: "Answer: Botulism\nBecause: it is."

    report = report_answers([ask(server, tmp_path)])

    retrieved = next(row for row in report.rows if row.condition == "retrieved")
    assert retrieved.citation_precision is None and retrieved.citation_recall == 0.0
    assert retrieved.uncited == 1.0
    assert "mine, retrieved: found: no answer cites a passage." in report.warnings


@pytest.mark.parametrize("step", [says(""), says(None, refusal="no")])
def test_missing_answers_count_as_wrong_and_are_reported(
    server: LLMServer, tmp_path: Path, step: Any
) -> None:
    server.script += [step]

    report = report_answers([ask(server, tmp_path, conditions=["closed-book"])])

    assert sum(row.missing for row in report.rows) == 1
    assert any("1 answer of 4 empty, refused or too long" in text for text in report.warnings)


def test_several_samples_have_a_spread(server: LLMServer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 samples at temperature 0"):
        ask(server, tmp_path, samples=2)
    server.reply = lambda body: f"Answer: {'Botulism' if body['seed'] % 2 else 'Influenza'}"

    answers = ask(
        server, tmp_path, samples=2, llm="scripted[temperature=0.7,seed=0]",
        conditions=["closed-book", "oracle"],
    )  # fmt: skip

    rows = figures(answers)
    assert rows["closed-book"].answers == 8 and rows["closed-book"].queries == 4
    assert rows["closed-book"].score == pytest.approx(1 / 8)
    assert rows["closed-book"].spread == pytest.approx(0.25 / 2**0.5)


def test_answers_are_listed_exported_ranked_and_deleted(server: LLMServer, tmp_path: Path) -> None:
    answers = ask(server, tmp_path)
    store = AnswerStore(tmp_path, warn=pytest.fail)

    row = describe_answers(store.find("scripted-k2", TASK))
    assert (row.queries, row.answers, row.systems, row.judge) == (4, 16, "found", None)
    lines = [json.loads(line) for line in export_answers(answers, ".jsonl").splitlines()]
    assert lines == json.loads(json.dumps(answer_rows(answers)))
    assert len(export_answers(answers, ".csv").splitlines()) > 16
    board = rank_answers([answers])
    assert [row.condition for row in board.rows] == [
        "oracle", "retrieved", "closed-book", "distracted"
    ]  # fmt: skip
    store.delete(answers)
    assert store.sets() == []
    with pytest.raises(MissingError, match="there is no answer set"):
        store.find("scripted-k2", TASK)
    assert find_grades(answers, None) is None


def test_a_rubric_for_documents_is_refused() -> None:
    with pytest.raises(UsageError, match="is not a rubric for answers"):
        find_answer_rubric("graded")


def test_a_task_without_negatives_distracts_with_unjudged_documents() -> None:
    positives = TASK.judgements.scores > 0
    task = replace(TASK, judgements=TASK.judgements.filter(pa.array(positives)))
    questions = build_questions(task, RANKINGS, k=2)

    assert questions.distractors == "unjudged"
    distracted = [q for q in questions.questions if q.condition == "distracted"]
    assert all(not q.relevant for q in distracted)
    assert distracted[0].passage_ids == tuple(d for d in FOUND["q1"] if not d.endswith("pos"))
