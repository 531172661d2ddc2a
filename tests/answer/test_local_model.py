"""Answers of a real small model: they are read, stored and scored under all conditions."""

from __future__ import annotations

from pathlib import Path

import pytest

import r2med
from r2med.answer.asking import (
    ask_questions,
    describe_set,
    open_answering_model,
    prompt_questions,
)
from r2med.answer.conditions import CONDITIONS, build_questions
from r2med.answer.prompt import find_prompt
from r2med.answer.reporting import report_answers
from r2med.answer.store import AnswerStore
from r2med.remote.chat import Remote
from r2med.results.select import Ranking
from r2med.tasks.load import load_task
from tests.local_llm import smollm2_url  # noqa: F401 - a fixture


def test_a_real_small_model_answers_under_all_conditions(
    smollm2_url: str,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    task = load_task("demo/medqa-diag").sample(1)
    ranking = Ranking("bm25", r2med.evaluate("bm25", task).ranked)
    prompt = find_prompt("default")
    remote = Remote(url=smollm2_url)
    chat = open_answering_model("smollm2[max_tokens=24]", remote, 1)
    questions = build_questions(task, [ranking], k=1)
    description = describe_set(
        task, chat, prompt, name=None, k=1, distractors=questions.distractors
    )
    answers = AnswerStore(tmp_path, warn=pytest.fail).open(description)

    ask_questions(prompt_questions(questions, prompt, 1), chat, answers)
    remote.close()

    rows = report_answers([answers]).rows
    assert [row.condition for row in rows] == list(CONDITIONS)
    assert all(row.answers == 1 and 0 <= row.f1 <= 1 for row in rows)
    texts = [answer.text for answer in answers.answers().values()]
    assert len(texts) == 4 and all(text.strip() for text in texts)
