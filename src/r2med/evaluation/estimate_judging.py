"""Estimates of judging what systems retrieve, for `r2med estimate --judge-llm`.

The estimates use mean lengths and the largest possible pool. `r2med judge --estimate` counts the
real prompts and the cached answers instead, but needs stored results of the systems.
"""

from __future__ import annotations

from dataclasses import replace

from r2med.evaluation.estimate import StageEstimate, TaskSize
from r2med.evaluation.estimate_answers import estimate_requests
from r2med.judge.judging import default_rubric
from r2med.judge.panel import JUDGEMENT_TOKENS
from r2med.judge.pool import query_texts
from r2med.judge.rubric import Rubric, find_rubric
from r2med.remote.budget import CHARACTERS_PER_TOKEN
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatRequest, estimate_prompt_tokens

_EXTRA_FIELDS = ("answer", "reasoning")


def estimate_judging(
    chat: Chat, size: TaskSize, systems: int, *, depth: int, calibration: int, samples: int
) -> StageEstimate:
    """Estimate judging the pool of several systems, and a calibration sample.

    The pool is assumed to be as large as possible: the systems share no document, and no document
    is judged yet. The rubric is the default of the task, or `reasoning` if the task's data is not
    here.
    """
    documents = min(systems * depth, size.documents)
    requests = (size.queries * documents + calibration) * samples
    rubric = find_rubric("reasoning") if size.data is None else default_rubric(size.data)
    name = f"at most {documents} documents per query, {calibration} for calibration"
    estimate = estimate_requests(
        chat,
        size,
        name,
        "judge",
        requests=requests,
        prompt_tokens=requests * _prompt_length(rubric, size),
        answer_tokens=JUDGEMENT_TOKENS,
    )
    return replace(estimate, basis=f"the largest possible pool; {estimate.basis}")


def _prompt_length(rubric: Rubric, size: TaskSize) -> float:
    """Return the number of tokens of a prompt whose query and document have the mean lengths."""
    template = rubric.messages(dict.fromkeys(rubric.fields, "-"))
    texts = size.query_tokens + size.document_tokens
    if size.data is not None:
        queries = query_texts(size.data).values()
        fields = [field for field in _EXTRA_FIELDS if field in rubric.fields]
        characters = sum(len(query[field]) for query in queries for field in fields)
        texts += characters / max(1, len(queries)) / CHARACTERS_PER_TOKEN
    return estimate_prompt_tokens(ChatRequest(template)) + texts
