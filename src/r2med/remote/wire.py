"""The chat format that OpenAI-compatible servers share: what is sent, and what an answer means."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from r2med.remote.exchange import ChatAnswer, ChatRequest
from r2med.remote.registry import LLM
from r2med.remote.session import Failure

PATH = "chat/completions"

#: Codes and types by which servers say that a prompt does not fit.
_TOO_LONG = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
)
_TOO_LONG_WORDS = re.compile(
    r"maximum context length|context (size|window|length)|too many tokens|prompt is too long",
    re.IGNORECASE,
)
_FILTERED = frozenset({"content_filter", "content_policy_violation"})
#: An answer that only declines: short, and opening with an apology or "I cannot".
_DECLINES = re.compile(
    r"^\W*(i['’]?m (really |very )?sorry|i am (really |very )?sorry|sorry|i apologi[sz]e|"
    r"i (can['’]?t|cannot|can not|am unable to|['’]?m unable to|won['’]?t|will not)|"
    r"as an ai\b).{0,400}$",
    re.IGNORECASE | re.DOTALL,
)
_UNABLE = re.compile(
    r"\b(can['’]?t|cannot|can not|unable|not able|won['’]?t|will not)\b", re.IGNORECASE
)


def body(llm: LLM, request: ChatRequest) -> dict[str, object]:
    """The JSON of a request; each sample has a seed of its own where the model takes one."""
    sent: dict[str, object] = {
        "model": llm.model,
        "messages": [{"role": m.role, "content": m.content} for m in request.messages],
        **llm.parameters(),
    }
    if llm.seed is not None:
        sent["seed"] = llm.seed + request.sample
    if request.max_tokens is not None:
        sent[llm.max_tokens_as] = request.max_tokens
    if request.stop:
        sent["stop"] = list(request.stop)
    return sent


def problem(value: Mapping[str, Any]) -> str | None:
    """What makes an answer unreadable, if anything does."""
    choices = value.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        told = value.get("error")
        return f"it holds no choices{f' but says {told!r}' if told else ''}"
    message = choices[0].get("message")
    if not isinstance(message, dict):
        return "its first choice holds no message"
    if not isinstance(message.get("content"), str | None):
        return "its message's content is not a text"
    return None


def answer(llm: LLM, value: Mapping[str, Any], seconds: float, *, prompt_tokens: int) -> ChatAnswer:
    """What a readable answer says; token counts that the server leaves out are estimated."""
    choice = value["choices"][0]
    message = choice["message"]
    text = _text(llm, message)
    usage = value.get("usage") if isinstance(value.get("usage"), dict) else {}
    return ChatAnswer(
        text=text,
        finish=_finish(choice, message, text),
        prompt_tokens=_count(usage, "prompt_tokens", prompt_tokens),
        completion_tokens=_count(usage, "completion_tokens", len(text) // 4),
        seconds=round(seconds, 4),
        cached=False,
    )


def declined(failure: Failure) -> ChatAnswer | None:
    """The answer that a refused request amounts to, where only this request was at fault."""
    if failure.code in _FILTERED:
        return ChatAnswer("", "refusal", 0, 0, 0.0, cached=False)
    unfit = failure.code in _TOO_LONG or _TOO_LONG_WORDS.search(failure.why)
    if failure.status in (400, 413, 422) and unfit:
        return ChatAnswer("", "too-long", 0, 0, 0.0, cached=False)
    return None


def _text(llm: LLM, message: Mapping[str, Any]) -> str:
    """The content; where the server has cut the reasoning out of it, as the model wrote it."""
    content = message.get("content") or ""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if llm.stripping != "think" or not isinstance(reasoning, str) or "</think>" in content:
        return str(content)
    if not content.strip():
        return f"<think>\n{reasoning.strip()}"
    return f"<think>\n{reasoning.strip()}\n</think>\n\n{content}"


def _finish(choice: Mapping[str, Any], message: Mapping[str, Any], text: str) -> str:
    reason = choice.get("finish_reason")
    if message.get("refusal") or reason == "content_filter":
        return "refusal"
    spoken = text.rpartition("</think>")[2].strip()
    if not spoken:
        return "empty"
    if reason == "length":
        return "length"
    return "refusal" if _DECLINES.match(spoken) and _UNABLE.search(spoken) else "stop"


def _count(usage: Any, name: str, otherwise: int) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and value >= 0 else otherwise
