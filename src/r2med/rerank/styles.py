"""How a language model is asked about a list: in windows, one by one, by groups, for the best.

What an answer leaves unsaid keeps the order of the first stage, in every style.
"""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from r2med.errors import UsageError
from r2med.execution.resources import Resources
from r2med.expand.prompts import Prompt
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.rerank.llm import LlmReranker, Log, Questioning, Style, by_value
from r2med.rerank.llm_answers import read_grade, read_order, read_scores
from r2med.rerank.scores import in_order
from r2med.settings import setting

_CLOSED = "</think>"
#: Alternatives to the next token that are asked for, the most that common servers give.
_ALTERNATIVES = 20
#: A sentence that the token limit left unfinished.
_UNFINISHED = re.compile(r"(?<=[.!?])[^.!?]*\Z")


def build(name: str, style: Style, resources: Resources) -> LlmReranker:
    """A reranker as an entry describes it."""
    if isinstance(style, Listwise) and style.step > style.window:
        raise UsageError(
            f"{name}: step={style.step} is larger than window={style.window}, so passages between "
            "two windows would never be seen."
        )
    return LlmReranker(name, style, resources)


@dataclass(frozen=True, kw_only=True)
class Listwise(Style):
    """A model orders a window of passages, which slides from the end of the list to its top."""

    window: int = setting(least=2)
    step: int = setting(least=1)

    @property
    def answer_tokens(self) -> int:
        """Some tokens for every passage of a window."""
        return 5 * self.window

    def rank(self, prompt: Prompt, log: Log) -> Questioning:
        """Ask about one window after another; what an answer leaves out keeps its order below."""
        order = list(range(len(log.one.documents)))
        last = len(order) - self.window
        for start in [*range(last, 0, -self.step), 0] if len(order) > 1 else []:
            indexes = order[start : start + self.window]
            [answer] = yield [self.about(prompt, log, indexes)]
            conclusion = log.take(answer)
            ranked = read_order(conclusion.text, len(indexes))
            named = ranked.places if ranked else []
            log.judge(conclusion, indexes, named or None, ranked)
            remaining = [index for index in range(len(indexes)) if index not in set(named)]
            order[start : start + self.window] = [indexes[n] for n in [*named, *remaining]]
        return in_order(order)


@dataclass(frozen=True, kw_only=True)
class Pointwise(Style):
    """A model grades each passage by itself; equal grades keep the order of the first stage."""

    answer_tokens = 5

    def rank(self, prompt: Prompt, log: Log) -> Questioning:
        """Ask about all passages at once; one without a grade keeps its place in the list."""
        answers = yield [
            self.request(prompt, log, passage=self.passage(text)) for text in log.one.documents
        ]
        grades = []
        for index, answer in enumerate(answers):
            conclusion = log.take(answer)
            grades.append(read_grade(conclusion.text))
            log.judge(conclusion, [index], grades[-1])
        graded = [(index, grade) for index, grade in enumerate(grades) if grade is not None]
        best = iter(sorted(graded, key=lambda pair: -pair[1]))
        return in_order(
            [index if grade is None else next(best)[0] for index, grade in enumerate(grades)]
        )


@dataclass(frozen=True, kw_only=True)
class Verdict(Style):
    """A model thinks about each passage; the score is the probability that `true` follows.

    Two requests per passage, both bare text as such models were trained on: the thought up to its
    end, then the one token after it with its alternatives. A thought that the token limit cut is
    closed after its last whole sentence. Scores are log-odds, which order as probabilities do.
    """

    otherwise = "the odds are even there"
    answer_tokens = 200
    supposed = "x" * 4 * answer_tokens

    def rank(self, prompt: Prompt, log: Log) -> Questioning:
        """Ask for all thoughts at once, then for all verdicts; without one, odds are even."""
        prompts = [
            self.request(prompt, log, passage=self.passage(text)).messages[-1].content
            for text in log.one.documents
        ]
        thoughts = yield [_bare(text, log, stop=(_CLOSED,)) for text in prompts]
        closed = [
            _close_thought(text, answer) for text, answer in zip(prompts, thoughts, strict=True)
        ]
        verdicts = yield [
            replace(_bare(text, log), max_tokens=1, alternatives=_ALTERNATIVES) for text in closed
        ]
        scores = []
        for index, (thought, verdict) in enumerate(zip(thoughts, verdicts, strict=True)):
            words, ended, _ = thought.text.partition(_CLOSED)
            finish = "stop" if ended else thought.finish
            conclusion = log.take(replace(thought, text=f"{words}{_CLOSED}", finish=finish))
            odds = _log_odds(verdict.alternatives or {})
            conclusion = replace(conclusion, text=verdict.text.strip(), finish=thought.finish)
            log.judge(conclusion, [index], odds)
            scores.append(odds or 0.0)
        return by_value(scores)


@dataclass(frozen=True, kw_only=True)
class Setwise(Style):
    """A model names the best of a set; a heap of such choices sorts the first `top` places."""

    answer_tokens = 10
    supposed = "[2]"
    window: int = setting(least=2)
    top: int = setting(least=1)

    def rank(self, prompt: Prompt, log: Log) -> Questioning:
        """Heapsort with window - 1 children per node; below `top` the first stage's order stays.

        Where an answer names no document of the set, the parent stays in its place.
        """
        count, children = len(log.one.documents), self.window - 1
        heap = list(range(count))

        def sift(root: int, size: int) -> Generator[list[ChatRequest], list[ChatAnswer]]:
            while (first := children * root + 1) < size:
                nodes = [root, *range(first, min(first + children, size))]
                indexes = [heap[node] for node in nodes]
                [answer] = yield [self.about(prompt, log, indexes)]
                conclusion = log.take(answer)
                ranked = read_order(conclusion.text, len(indexes))
                log.judge(conclusion, indexes, ranked.places[0] if ranked else None)
                chosen = nodes[ranked.places[0]] if ranked else root
                if chosen == root:
                    return
                heap[root], heap[chosen] = heap[chosen], heap[root]
                root = chosen

        for root in range(count // children, -1, -1):
            yield from sift(root, count)
        for size in range(count - 1, max(0, count - self.top), -1):
            heap[0], heap[size] = heap[size], heap[0]
            yield from sift(0, size)
        if count > self.top:
            heap[0], heap[count - self.top] = heap[count - self.top], heap[0]
        best = heap[::-1][: self.top]
        return in_order([*best, *sorted(set(range(count)) - set(best))])


@dataclass(frozen=True, kw_only=True)
class Groupwise(Style):
    """A model scores shuffled groups from 0 to 10; a document's scores of all rounds are averaged.

    A document that a round leaves out is averaged over the others; all documents of a group whose
    answer cannot be read score 0 in that round.
    """

    otherwise = "their passages score 0 in that round"
    group: int = setting(least=1)
    rounds: int = setting(least=1)
    seed: int

    @property
    def answer_tokens(self) -> int:
        """Some tokens for every passage of a group."""
        return 8 * self.group

    def rank(self, prompt: Prompt, log: Log) -> Questioning:
        """Ask about all groups of all rounds at once."""
        rounds = [replace(log, sample=self.rounds * log.sample + n) for n in range(self.rounds)]
        groups = [(each, group) for each in rounds for group in self._groups(each)]
        answers = yield [self.about(prompt, each, group) for each, group in groups]
        scores: list[list[float]] = [[] for _ in log.one.documents]
        for (log, group), answer in zip(groups, answers, strict=True):
            conclusion = log.take(answer)
            read = read_scores(conclusion.text, len(group))
            by_place, order = read or (dict.fromkeys(range(len(group)), 0.0), None)
            log.judge(conclusion, group, list(by_place.items()) if read else None, order)
            for index, score in by_place.items():
                scores[group[index]].append(score)
        return by_value(
            [
                sum(scores_of_document) / len(scores_of_document) if scores_of_document else 0.0
                for scores_of_document in scores
            ]
        )

    def _groups(self, log: Log) -> list[list[int]]:
        """One shuffle of a list, the same whenever the same list is ranked with the same seed."""
        order = list(range(len(log.one.documents)))
        random.Random(f"{self.seed} {log.sample} {log.one.query}").shuffle(order)
        return [order[start : start + self.group] for start in range(0, len(order), self.group)]


def _bare(text: str, log: Log, stop: tuple[str, ...] = ()) -> ChatRequest:
    return ChatRequest((Message("bare", text),), sample=log.sample, stop=stop)


def _close_thought(prompts: str, answer: ChatAnswer) -> str:
    """The prompt with its thought, which ends where the model ended it or where it was cut."""
    thought = answer.text.partition(_CLOSED)[0]
    if answer.finish != "length" or _CLOSED in answer.text:
        return f"{prompts}{thought}{_CLOSED}"
    return f"{prompts}\n{_UNFINISHED.sub('', thought.rstrip()).strip()}\n{_CLOSED}"


def _log_odds(alternatives: Mapping[str, float]) -> float | None:
    """The log-odds of true against false; None where neither is among the alternatives.

    One that is missing counts as likely as the least likely alternative.
    """
    found = {
        word: [value for token, value in alternatives.items() if token.strip().lower() == word]
        for word in ("true", "false")
    }
    if not any(found.values()):
        return None
    least = [min(alternatives.values())]
    true, false = (float(np.logaddexp.reduce(found[word] or least)) for word in ("true", "false"))
    return true - false
