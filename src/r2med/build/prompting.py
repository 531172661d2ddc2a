"""Ask a language model with a prompt of the build, and read the JSON object in its answer.

Prompts are TOML files in `prompts/`; a file of the same name in FOLDER/prompts replaces the
packaged prompt. Every answer is cached as it arrives, so a stage that was killed continues where it
stopped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Generic, TypeVar

from r2med.errors import DataError, UsageError, plural
from r2med.execution.resources import Progress, Resources
from r2med.expand.prompts import Prompt, load_prompt
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.remote.registry import find_llm
from r2med.rerank.llm_answers import split_thought
from r2med.systems.spec import Unit, parse

T = TypeVar("T")
#: A function from the JSON object of an answer to a value; ValueError if the object is wrong.
Read = Callable[[Mapping[str, Any]], T]

PROMPTS = ("classify", "rewrite", "reasoning", "solve", "match")
#: Answers below which a share of unreadable ones says too little to stop.
_ENOUGH = 10
_TRAILING_COMMA = re.compile(r",\s*}")


@dataclass(frozen=True)
class Question(Generic[T]):
    """A prompt of the build, and the function that reads its answers."""

    name: str
    prompt: Prompt
    read: Read[T]

    def messages(self, **texts: str) -> tuple[Message, ...]:
        """Return the conversation with the texts filled in."""
        system = Message("system", self.prompt.texts["system"])
        return (system, Message("user", self.prompt.fill("user", **texts)))

    def read_answer(self, text: str) -> T | None:
        """Return the value in an answer; None if it cannot be read."""
        values = read_object(text)
        if values is None:
            return None
        try:
            return self.read(values)
        except (ValueError, KeyError, TypeError):
            return None


def load_question(name: str, read: Read[T], prompts_folder: Path) -> Question[T]:
    """Load a prompt of the package, or the file of that name in `prompts_folder` if it exists."""
    shipped = files("r2med.build") / "prompts" / f"{name}.toml"
    return Question(name, load_prompt(name, shipped, prompts_folder / f"{name}.toml"), read)


def open_chat(name: str, resources: Resources, option: str) -> Chat:
    """Return a language model by name, with options in brackets, as in `gpt4[temperature=0.7]`."""
    entry_name, options = _split_options(name, option)
    return resources.remote.chat(entry_name, options)


def find_model(name: str) -> str:
    """Return a language model's name on its server, such as `Qwen/Qwen2.5-7B-Instruct`."""
    entry_name, _ = _split_options(name, "model")
    return find_llm(entry_name, allow_unknown=True).model


def _split_options(name: str, option: str) -> tuple[str, dict[str, str]]:
    unit = parse(name).fused[0]
    if not isinstance(unit, Unit) or str(parse(name)) != str(unit):
        raise UsageError(f"{option}: {name!r} is not a language model; see docs/llms.md.")
    entry_name = unit.name if unit.argument is None else f"{unit.name}:{unit.argument}"
    return entry_name, dict(unit.options)


def ask_all(
    chat: Chat,
    question: Question[T],
    conversations: Sequence[tuple[Message, ...]],
    *,
    samples: int = 1,
    most_unreadable: float = 1.0,
    show: Progress = lambda *_: None,
) -> list[T | None]:
    """Send every conversation `samples` times; if an answer is unreadable, ask once more.

    Returns:
        One value per conversation and sample, in this order; None for an unreadable answer.

    Raises:
        DataError: More than the share `most_unreadable` of the answers cannot be read.
    """
    requests = [
        ChatRequest(messages, sample=sample)
        for messages in conversations
        for sample in range(samples)
    ]
    answers = chat.complete(requests, show=show)
    values = [question.read_answer(answer.text) for answer in answers]
    missing = [index for index, value in enumerate(values) if value is None]
    retries = [_retry(requests[i], answers[i], question.prompt.texts["retry"]) for i in missing]
    if retries:
        for index, answer in zip(missing, chat.complete(retries, show=show), strict=True):
            values[index] = question.read_answer(answer.text)
    unreadable = sum(value is None for value in values)
    if len(values) >= _ENOUGH and unreadable > most_unreadable * len(values):
        raise DataError(
            f"{chat.llm.name}, prompt {question.name}: {plural(unreadable, 'answer')} of "
            f"{len(values):,} cannot be read, after asking once more; at most "
            f"{100 * most_unreadable:.0f} % may be unreadable.\nNothing was written, and answers "
            f"are cached. Use a stronger model, put a clearer prompts/{question.name}.toml into "
            "the folder, or raise most_unreadable."
        )
    return values


def read_object(text: str) -> dict[str, Any] | None:
    """Return the last JSON object in a text; None if there is none.

    Models restate the format before they answer, so the last object counts.
    """
    _, conclusion = split_thought(text)
    decoder = json.JSONDecoder(strict=False)
    last: dict[str, Any] | None = None
    repaired = _TRAILING_COMMA.sub("}", conclusion)
    start = repaired.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(repaired, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            if isinstance(value, dict):
                last = value
        start = repaired.find("{", end)
    return last


def _retry(request: ChatRequest, answer: ChatAnswer, reminder: str) -> ChatRequest:
    if answer.text.strip():
        spoken = (Message("assistant", answer.text), Message("user", reminder))
        return replace(request, messages=(*request.messages, *spoken))
    last = Message("user", f"{request.messages[-1].content}\n\n{reminder}")
    return replace(request, messages=(*request.messages[:-1], last))
