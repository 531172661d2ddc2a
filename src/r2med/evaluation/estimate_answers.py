"""Estimates of answering the queries of a task, for `r2med estimate --answer-llm`.

The estimates use mean lengths. `r2med answer --estimate` counts the real prompts and the cached
answers instead, but needs stored results of the systems.
"""

from __future__ import annotations

from collections.abc import Sequence

from r2med.answer.asking import ANSWER_TOKENS
from r2med.answer.prompt import AnswerPrompt
from r2med.evaluation.estimate import StageEstimate, TaskSize, WorkType
from r2med.remote.budget import CHARACTERS_PER_TOKEN
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatRequest, estimate_prompt_tokens


def estimate_answering(
    chat: Chat,
    size: TaskSize,
    systems: Sequence[str],
    prompt: AnswerPrompt,
    *,
    k: int,
    samples: int,
) -> list[StageEstimate]:
    """Estimate closed-book and oracle answers once, retrieved and distracted ones per system.

    Every oracle prompt is assumed to have `k` passages.
    """
    closed = _prompt_length(prompt, size, None)
    with_passages = _prompt_length(prompt, size, k)
    rows = [("closed-book and oracle", closed + with_passages)]
    rows += [(f"retrieved and distracted, {system}", 2 * with_passages) for system in systems]
    return [_row(chat, size, name, tokens, samples) for name, tokens in rows]


def _prompt_length(prompt: AnswerPrompt, size: TaskSize, passages: int | None) -> float:
    """Return the number of tokens of a prompt whose query and passages have the mean lengths."""
    template = prompt.messages("", None if passages is None else [""] * passages)
    longest = prompt.longest_passage / CHARACTERS_PER_TOKEN
    texts = size.query_tokens + (passages or 0) * min(size.document_tokens, longest)
    return estimate_prompt_tokens(ChatRequest(template)) + texts


def _row(chat: Chat, size: TaskSize, name: str, tokens: float, samples: int) -> StageEstimate:
    """Return the estimate for two answer conditions; `tokens` is the length of both prompts."""
    return estimate_requests(
        chat,
        size,
        name,
        "answer",
        requests=2 * size.queries * samples,
        prompt_tokens=tokens * size.queries * samples,
        answer_tokens=ANSWER_TOKENS,
    )


def estimate_requests(
    chat: Chat,
    size: TaskSize,
    name: str,
    work: WorkType,
    *,
    requests: int,
    prompt_tokens: float,
    answer_tokens: int,
) -> StageEstimate:
    """Return the estimate for some requests; `prompt_tokens` is the sum over all requests.

    An answer is assumed to have `answer_tokens` tokens, or the expected tokens of the model if
    these are fewer; for a reasoning model, it always has the expected tokens of the model.
    """
    llm = chat.llm
    expected = llm.expected_tokens if llm.reasoning else min(llm.expected_tokens, answer_tokens)
    prompt_total, completion_total = round(prompt_tokens), expected * requests
    money = chat.price.of(prompt_total, completion_total) if chat.price else None
    return StageEstimate(
        size.task,
        f"{llm.name}, {name}",
        work,
        texts=requests,
        tokens=prompt_total + completion_total,
        money=money,
        basis=f"mean lengths; {CHARACTERS_PER_TOKEN} characters per token; {expected} new tokens "
        f"per answer, expected of {llm.name}",
    )
