"""A small task with answers, and a scripted model whose answers are known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from r2med.answer.asking import (
    ask_questions,
    describe_set,
    open_answering_model,
    prompt_questions,
)
from r2med.answer.conditions import CONDITIONS, Condition, build_questions
from r2med.answer.prompt import AnswerPrompt, find_prompt
from r2med.answer.store import AnswerSet, AnswerStore
from r2med.results.select import Ranking
from r2med.tasks.task import Task
from tests.building import texts
from tests.judge.making import make_run, make_task, remote_of
from tests.llm_server import LLMServer

ANSWERS = {"q1": "Botulism", "q2": "Lead poisoning", "q3": "IgA nephropathy", "q4": "Scurvy"}
DOCUMENTS = {
    **{f"secret-{q}-pos": f"evidence for {a}" for q, a in ANSWERS.items()},
    **{f"secret-{q}-neg": f"nothing about {q}" for q in ANSWERS},
    "secret-other": "about ducks",
}
JUDGED = {q: {f"secret-{q}-pos": 1, f"secret-{q}-neg": 0} for q in ANSWERS}
#: `found` has the positive first for q1 and q2, last for q3, and never for q4.
FOUND = {
    "q1": ["secret-q1-pos", "secret-q1-neg", "secret-other"],
    "q2": ["secret-q2-pos", "secret-other", "secret-q2-neg"],
    "q3": ["secret-q3-neg", "secret-other", "secret-q3-pos"],
    "q4": ["secret-q4-neg", "secret-other"],
}


def task_with_answers(answers: Mapping[str, str | None] = ANSWERS) -> Task:
    task = make_task(DOCUMENTS, {q: f"Which disease is {q}?" for q in ANSWERS}, JUDGED)
    return replace(task, queries=replace(task.queries, answers=texts(*answers.values())))


TASK = task_with_answers()
RANKINGS = (Ranking("found", make_run(FOUND)),)
LISTS = {q: [f"secret-{q}-neg", "secret-other"] for q in ANSWERS}
LOST = Ranking("lost", make_run(LISTS))


def reply(body: dict[str, Any]) -> str:
    """Answer rightly and cite the evidence where it is shown, else abstain; know q1 by heart."""
    prompt = body["messages"][-1]["content"]
    if "Candidate answer:" in prompt:
        return grade(prompt)
    evidence = re.search(r"\[(\d+)\] evidence for (.+)", prompt)
    if evidence:
        return f"Answer: {evidence[2]}\nBecause: it says so [{evidence[1]}]."
    if "Passages:" in prompt:
        return "Answer: insufficient evidence"
    known = "Botulism" if "q1" in prompt else "Influenza"
    return f"Answer: {known}\nBecause: I know."


def grade(prompt: str) -> str:
    parts = re.search(
        r"Reference answer:\n(.*?)\n\nCandidate answer:\n(.*?)\n\nGive one", prompt, re.DOTALL
    )
    assert parts is not None
    return json.dumps({"correctness": 3 if parts[1] == parts[2] else 1, "rationale": "x"})


def ask(
    server: LLMServer,
    results: Path,
    task: Task = TASK,
    rankings: Sequence[Ranking] = RANKINGS,
    *,
    llm: str = "scripted",
    k: int = 2,
    samples: int = 1,
    conditions: Sequence[Condition] = CONDITIONS,
    prompt: AnswerPrompt | None = None,
    name: str | None = None,
) -> AnswerSet:
    remote = remote_of(server)
    chat = open_answering_model(llm, remote, samples)
    chosen = prompt or find_prompt("default")
    questions = build_questions(task, rankings, k=k, conditions=conditions)
    description = describe_set(
        task, chat, chosen, name=name, k=k, distractors=questions.distractors
    )
    answers = AnswerStore(results, warn=pytest.fail).open(description)
    ask_questions(prompt_questions(questions, chosen, samples), chat, answers)
    remote.close()
    return answers
