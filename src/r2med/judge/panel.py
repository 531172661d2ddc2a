"""Ask one or several judge models about items, and combine their votes.

This module knows texts and rubrics only: an item can be a passage for a query or anything else that
a rubric describes, such as a generated answer.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from r2med.errors import UsageError
from r2med.judge.grades import Reading, read_grades
from r2med.judge.rubric import Rubric
from r2med.judge.store import Judgement, Purpose, Vote
from r2med.remote.budget import RequestEstimate
from r2med.remote.chat import Chat, Remote
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.remote.registry import find_llm
from r2med.systems.spec import Unit, parse

Combine = Literal["majority", "mean"]
Show = Callable[[str, int, int, float], None]

#: Tokens of an answer with a rationale, for estimates.
JUDGEMENT_TOKENS = 150


@dataclass(frozen=True)
class Item:
    """A judged item: its ids, which no judge sees, and the texts that fill the rubric's prompt."""

    query_id: str
    item_id: str
    texts: Mapping[str, str]
    purpose: Purpose = "pool"
    systems: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Collected:
    """The texts that judges wrote about items, before scores are read from them."""

    items: tuple[Item, ...]
    conversations: Sequence[tuple[Message, ...]]
    requests: Sequence[ChatRequest]
    """One request per conversation and sample, in this order."""
    answers: Sequence[Sequence[ChatAnswer]]
    """Answers by judge, in the order of the requests."""


@dataclass(frozen=True, eq=False)
class Panel:
    """Judge models that are asked together, each `samples` times."""

    rubric: Rubric
    judges: tuple[Chat, ...]
    samples: int = 1
    combine: Combine = "majority"

    @property
    def identities(self) -> tuple[Mapping[str, object], ...]:
        """The settings that decide the answers of each judge, as JSON values."""
        return tuple(_plain(chat.identity) for chat in self.judges)

    def ask(self, items: Sequence[Item], *, show: Show = lambda *_: None) -> list[Judgement]:
        """Judge items, in order; an unreadable answer is asked for once more.

        Cached answers are reused. A judgement whose answers are all unreadable has no grade and
        names the problem.
        """
        return self.judge(self.collect(items, show=show), show=show)

    def collect(self, items: Sequence[Item], *, show: Show = lambda *_: None) -> Collected:
        """Ask every judge about every item, and return the answers."""
        conversations = [self.rubric.messages(item.texts) for item in items]
        samples = range(self.samples)
        requests = [ChatRequest(m, sample=sample) for m in conversations for sample in samples]
        answers = [chat.complete(requests, show=show) for chat in self.judges]
        return Collected(tuple(items), conversations, requests, answers)

    def judge(
        self,
        collected: Collected,
        *,
        show: Show = lambda *_: None,
        wait: Callable[[], object] = lambda: None,
    ) -> list[Judgement]:
        """Read collected answers, ask again for unreadable ones, and combine the votes.

        `wait` is called before asking again, because a chat takes one batch of requests at a time.
        """
        votes: list[list[tuple[Vote, str]]] = [[] for _ in collected.items]
        for chat, answers in zip(self.judges, collected.answers, strict=True):
            readings = self._read_all(chat, collected.requests, answers, show, wait)
            for index, reading in enumerate(readings):
                position, sample = divmod(index, self.samples)
                vote = Vote(chat.llm.name, sample, reading.scores, reading.problem)
                votes[position].append((vote, reading.rationale))
        rows = zip(collected.items, collected.conversations, votes, strict=True)
        return [self._judgement(item, messages, cast) for item, messages, cast in rows]

    def estimate(self, items: Sequence[Item]) -> list[tuple[str, RequestEstimate]]:
        """Return the expected calls, tokens and cost by judge model; cached answers are free."""
        requests = [
            ChatRequest(self.rubric.messages(item.texts), sample=sample)
            for item in items
            for sample in range(self.samples)
        ]
        return [
            (chat.llm.name, chat.estimate(requests, length=JUDGEMENT_TOKENS))
            for chat in self.judges
        ]

    def _read_all(
        self,
        chat: Chat,
        requests: Sequence[ChatRequest],
        answers: Sequence[ChatAnswer],
        show: Show,
        wait: Callable[[], object],
    ) -> list[Reading]:
        """Read the answers of one judge, and ask once more where an answer is unreadable."""
        readings = [_read(answer, self.rubric) for answer in answers]
        again = [position for position, reading in enumerate(readings) if not reading.is_readable]
        if not again:
            return readings
        retries = [_retry(requests[p], answers[p], self.rubric) for p in again]
        wait()
        for position, answer in zip(again, chat.complete(retries, show=show), strict=True):
            reading = _read(answer, self.rubric)
            if reading.is_readable:
                readings[position] = reading
        return readings

    def _judgement(
        self,
        item: Item,
        messages: tuple[Message, ...],
        cast: Sequence[tuple[Vote, str]],
    ) -> Judgement:
        readable = [(vote, rationale) for vote, rationale in cast if not vote.problem]
        scores = combine_votes([vote.scores for vote, _ in readable], self.rubric, self.combine)
        grade = self.rubric.grade_of(scores) if scores else None
        return Judgement(
            query_id=item.query_id,
            item_id=item.item_id,
            grade=grade,
            scores=scores,
            rationale=_rationale(readable, grade, self.rubric),
            votes=tuple(vote for vote, _ in cast),
            prompt_hash=hash_messages(messages),
            purpose=item.purpose,
            systems=item.systems,
            problem="" if readable else cast[0][0].problem,
        )


def open_panel(
    names: Sequence[str],
    rubric: Rubric,
    remote: Remote,
    *,
    samples: int = 1,
    combine: Combine = "majority",
) -> Panel:
    """Return a panel of language models.

    Args:
        names: Registered models or models of the server at `remote.url`, with options in brackets,
            as in `gpt4[temperature=0.7]`. The temperature is 0 unless given.
        rubric: The questions and the scale.
        remote: The budget and connections of the command.
        samples: Answers per model and item.
        combine: How votes become one judgement.

    Raises:
        UsageError: A name is not a model, or several samples are asked for at temperature 0.
    """
    chats = [open_model(name, remote, option="--judge") for name in names]
    if not chats:
        raise UsageError("which judge? Give a language model: --judge LLM; see docs/llms.md.")
    if samples > 1 and any(chat.llm.temperature == 0 for chat in chats):
        raise UsageError(
            f"{samples} samples at temperature 0 would be {samples} equal answers. Give the judge "
            f"a temperature, as in --judge '{chats[0].llm.name}[temperature=0.7]', or several "
            "judges."
        )
    return Panel(rubric, tuple(chats), samples, combine)


def combine_votes(
    votes: Sequence[Mapping[str, int]], rubric: Rubric, combine: Combine
) -> dict[str, float]:
    """Return the combined vote for each score of a rubric; without votes, an empty result.

    A tied majority and a mean half way between two scores take the lower one, since people are
    stricter than judges.
    """
    combined: dict[str, float] = {}
    for score in rubric.scores:
        values = sorted(vote[score.name] for vote in votes if score.name in vote)
        if not values:
            continue
        if combine == "majority":
            counts = Counter(values)
            combined[score.name] = min(v for v in counts if counts[v] == max(counts.values()))
        else:
            combined[score.name] = sum(values) / len(values)
    if combine == "mean":
        return {name: _round_down_half(value) for name, value in combined.items()}
    return combined


def open_model(name: str, remote: Remote, *, option: str) -> Chat:
    """Open the language model that an option names, at temperature 0 unless it sets another.

    Raises:
        UsageError: The name is not a model with options in brackets.
    """
    unit = parse(name).fused[0]
    if not isinstance(unit, Unit) or str(parse(name)) != str(unit):
        raise UsageError(f"{option} {name!r} is not a language model; see docs/llms.md.")
    model = unit.name if unit.argument is None else f"{unit.name}:{unit.argument}"
    options = dict(unit.options)
    if "temperature" not in options and find_llm(model, allow_unknown=True).temperature is not None:
        options["temperature"] = "0"
    return remote.chat(model, options)


def _read(answer: ChatAnswer, rubric: Rubric) -> Reading:
    if answer.finish in ("refusal", "too-long") and not answer.text.strip():
        return Reading({}, problem="refused" if answer.finish == "refusal" else "too long")
    return read_grades(answer.text, rubric)


def _retry(request: ChatRequest, answer: ChatAnswer, rubric: Rubric) -> ChatRequest:
    spoken = [Message("assistant", answer.text)] if answer.text.strip() else []
    messages = (*request.messages, *spoken, Message("user", rubric.retry))
    if not spoken:  # two user messages in a row are refused by some servers
        last = Message("user", f"{request.messages[-1].content}\n\n{rubric.retry}")
        messages = (*request.messages[:-1], last)
    return replace(request, messages=messages)


def _rationale(readable: Sequence[tuple[Vote, str]], grade: int | None, rubric: Rubric) -> str:
    """Return the rationale of a vote for the combined grade, else of any vote."""
    agreeing = [text for vote, text in readable if rubric.grade_of(vote.scores) == grade]
    return next(iter(agreeing or [text for _, text in readable]), "")


def hash_messages(messages: Sequence[Message]) -> str:
    """Return the hash that identifies a conversation."""
    text = json.dumps([(message.role, message.content) for message in messages])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _round_down_half(value: float) -> float:
    lower = int(value)
    return float(lower if value - lower <= 0.5 else lower + 1)


def _plain(values: Mapping[str, object]) -> Mapping[str, object]:
    plain: dict[str, object] = json.loads(json.dumps(values))
    return plain
