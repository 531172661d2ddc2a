"""Ask a model the questions of a task under all conditions, and store its answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2med.answer.citations import read_citations
from r2med.answer.conditions import PosedQuestion, Questions
from r2med.answer.correctness import is_short, score_answer
from r2med.answer.prompt import DEFAULT, AnswerPrompt
from r2med.answer.store import (
    AnswerKey,
    AnswerSet,
    AnswerSetDescription,
    StoredAnswer,
    data_hash,
)
from r2med.errors import UsageError
from r2med.judge.panel import Show, hash_messages, open_model
from r2med.remote.budget import RequestEstimate
from r2med.remote.chat import Chat, Remote
from r2med.remote.completions import ChatAnswer, ChatRequest
from r2med.tasks.task import Task

#: Answers that are asked for at once and then stored together.
_CHUNK = 256
#: Tokens of an answer with its reason, for estimates.
ANSWER_TOKENS = 120


@dataclass(frozen=True)
class Prompted:
    """One sample of a question, with the conversation that is sent to the model."""

    question: PosedQuestion
    request: ChatRequest

    @property
    def key(self) -> AnswerKey:
        """The key under which the answer is stored."""
        question = self.question
        return AnswerKey(
            question.query_id, question.condition, question.system, self.request.sample
        )

    @property
    def prompt_hash(self) -> str:
        """Hash that identifies the conversation."""
        return hash_messages(self.request.messages)


@dataclass(frozen=True)
class AskingOutcome:
    """The answer set after asking, and counts of its new and its earlier answers."""

    answers: AnswerSet
    added: int
    """Answers that were added now."""
    already: int
    """Answers that the set already had."""


def open_answering_model(name: str, remote: Remote, samples: int) -> Chat:
    """Open the language model that answers the questions.

    Raises:
        UsageError: Several samples are asked for at temperature 0.
    """
    chat = open_model(name, remote, option="--llm")
    if samples > 1 and chat.llm.temperature == 0:
        raise UsageError(
            f"{samples} samples at temperature 0 would be {samples} equal answers. Give the model "
            f"a temperature, as in --llm '{chat.llm.name}[temperature=0.7]'."
        )
    return chat


def describe_set(
    task: Task, chat: Chat, prompt: AnswerPrompt, *, name: str | None, k: int, distractors: str
) -> AnswerSetDescription:
    """Return the description of the answer set that a model writes to."""
    return AnswerSetDescription(
        name=name or default_name(chat.llm.name, k, prompt),
        task=task.name,
        suite=task.suite,
        data=data_hash(task),
        model=json.loads(json.dumps(chat.identity)),
        llm=chat.llm.name,
        prompt=prompt,
        k=k,
        distractors=distractors,
    )


def default_name(llm: str, k: int, prompt: AnswerPrompt) -> str:
    """Return the name of a set: the model, k, and the prompt if it is not the default one."""
    parts = [llm, f"k{k}"] if prompt.name == DEFAULT else [llm, f"k{k}", prompt.name]
    joined = "-".join(parts)
    return "".join(c if c.isalnum() or c in "._=-" else "-" for c in joined).strip("-.")[:80]


def prompt_questions(questions: Questions, prompt: AnswerPrompt, samples: int) -> list[Prompted]:
    """Return the conversation of every question, `samples` times each."""
    prompted = []
    for question in questions.questions:
        passages = None if question.condition == "closed-book" else question.passages
        messages = prompt.messages(question.text, passages)
        prompted += [
            Prompted(question, ChatRequest(messages, sample=sample)) for sample in range(samples)
        ]
    return prompted


def find_unanswered(
    prompted: Sequence[Prompted], stored: Mapping[AnswerKey, StoredAnswer]
) -> list[Prompted]:
    """Return the conversations that have no stored answer to the same prompt.

    An answer to another prompt, for example with the passages of an earlier run, does not count.
    """
    return [
        item
        for item in prompted
        if item.key not in stored or stored[item.key].prompt_hash != item.prompt_hash
    ]


def estimate_answers(chat: Chat, prompted: Sequence[Prompted]) -> RequestEstimate:
    """Return the expected calls, tokens and cost of asking; cached answers are free."""
    return chat.estimate([item.request for item in prompted], length=ANSWER_TOKENS)


def ask_questions(
    prompted: Sequence[Prompted], chat: Chat, answers: AnswerSet, *, show: Show = lambda *_: None
) -> AskingOutcome:
    """Ask the questions without an answer in a set, and store the answers as they arrive."""
    todo = find_unanswered(prompted, answers.answers())
    for start in range(0, len(todo), _CHUNK):
        chunk = todo[start : start + _CHUNK]
        replies = chat.complete([item.request for item in chunk], show=show)
        answers.add([_to_answer(item, reply) for item, reply in zip(chunk, replies, strict=True)])
    return AskingOutcome(answers, len(todo), len(prompted) - len(todo))


def _to_answer(item: Prompted, reply: ChatAnswer) -> StoredAnswer:
    question = item.question
    scores = score_answer(reply.text, question.reference, question=question.text)
    is_closed = question.condition == "closed-book"
    return StoredAnswer(
        query_id=question.query_id,
        condition=question.condition,
        system=question.system,
        sample=item.request.sample,
        prompt_hash=item.prompt_hash,
        question=question.text,
        reference=question.reference,
        passage_ids=question.passage_ids,
        relevant=question.relevant,
        positives=question.positives,
        text=reply.text,
        finish=reply.finish,
        option=scores.option,
        match=scores.match,
        f1=scores.f1,
        is_short=is_short(question.reference),
        abstained=scores.abstained,
        cited=() if is_closed else read_citations(reply.text),
        retrieval=dict(question.retrieval),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        money=reply.money,
        seconds=reply.seconds,
    )
