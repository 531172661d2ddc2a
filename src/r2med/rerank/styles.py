"""The styles of LLM rerankers: listwise, pointwise, reasoned verdicts, setwise and groupwise.

In every style, passages that an answer does not mention keep the order of the first stage.
"""

from __future__ import annotations

import random
import re
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from r2med.errors import UsageError
from r2med.execution.resources import Resources
from r2med.expand.prompts import Prompt
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from r2med.rerank.llm import LlmReranker, Log, Questions, Style, scores_by_value
from r2med.rerank.llm_answers import read_grade, read_order, read_scores
from r2med.rerank.scores import scores_from_order
from r2med.settings import setting

_END_OF_THOUGHT = "</think>"
#: Alternatives to the next token that are requested: the most that common servers return.
_ALTERNATIVES = 20
#: A sentence that was cut at the token limit.
_UNFINISHED = re.compile(r"(?<=[.!?])[^.!?]*\Z")


def build(name: str, style: Style, resources: Resources) -> LlmReranker:
    """Build the reranker of a registry entry."""
    if isinstance(style, Listwise) and style.step > style.window:
        raise UsageError(
            f"{name}: step={style.step} is larger than window={style.window}, so passages between "
            "two windows would be skipped. Give a smaller step."
        )
    return LlmReranker(name, style, resources)


@dataclass(frozen=True, kw_only=True)
class Listwise(Style):
    """A model orders a window of passages, which slides from the end of the list to its top."""

    name = "listwise"
    window: int = setting(least=2)
    step: int = setting(least=1)

    @property
    def answer_tokens(self) -> int:
        """Expected tokens: five for every passage of a window."""
        return 5 * self.window

    def rank(self, prompt: Prompt, log: Log) -> Questions:
        """Ask about one window after another; in each, omitted passages come last."""
        order = list(range(len(log.candidates.documents)))
        if len(order) < 2:
            return scores_from_order(order)
        last_start = len(order) - self.window
        for start in [*range(last_start, 0, -self.step), 0]:
            indexes = order[start : start + self.window]
            [answer] = yield [self.request_about(prompt, log, indexes)]
            conclusion = log.split(answer)
            ranked = read_order(conclusion.text, len(indexes))
            mentioned = ranked.indexes if ranked else []
            log.add(conclusion, indexes, mentioned or None, ranked)
            unmentioned = [row for row in range(len(indexes)) if row not in set(mentioned)]
            order[start : start + self.window] = [
                indexes[row] for row in [*mentioned, *unmentioned]
            ]
        return scores_from_order(order)


@dataclass(frozen=True, kw_only=True)
class Pointwise(Style):
    """A model grades each passage separately; equal grades keep the order of the first stage."""

    name = "pointwise"
    answer_tokens = 5

    def rank(self, prompt: Prompt, log: Log) -> Questions:
        """Ask about all passages at once; a passage without a grade keeps its rank."""
        answers = yield [
            self.request(prompt, log, passage=self.passage(text))
            for text in log.candidates.documents
        ]
        grades = []
        for index, answer in enumerate(answers):
            conclusion = log.split(answer)
            grades.append(read_grade(conclusion.text))
            log.add(conclusion, [index], grades[-1])
        graded = [index for index, grade in enumerate(grades) if grade is not None]
        best_first = iter(sorted(graded, key=lambda index: -cast("float", grades[index])))
        return scores_from_order(
            [index if grade is None else next(best_first) for index, grade in enumerate(grades)]
        )


@dataclass(frozen=True, kw_only=True)
class ReasonedVerdict(Style):
    """A model reasons about each passage; the score is the probability that `true` follows.

    There are two requests per passage, both bare texts like those the models were trained on: one
    for the reasoning, one for the single token after it with its alternatives. Reasoning that was
    cut at the token limit is closed after its last complete sentence. Scores are log-odds, which
    have the same order as probabilities.
    """

    name = "verdict"
    fallback = "true and false count as equally likely for them"
    answer_tokens = 200
    assumed_answer = "x" * 4 * answer_tokens

    def rank(self, prompt: Prompt, log: Log) -> Questions:
        """Ask for all reasoning at once, then for all verdicts; a missing verdict scores 0."""
        prompts = [
            self.request(prompt, log, passage=self.passage(text)).messages[-1].content
            for text in log.candidates.documents
        ]
        thoughts = yield [_bare_request(text, log, stop=(_END_OF_THOUGHT,)) for text in prompts]
        prompts_with_thoughts = [
            _close_thought(text, answer) for text, answer in zip(prompts, thoughts, strict=True)
        ]
        verdicts = yield [
            replace(_bare_request(text, log), max_tokens=1, alternatives=_ALTERNATIVES)
            for text in prompts_with_thoughts
        ]
        scores = []
        for index, (thought, verdict) in enumerate(zip(thoughts, verdicts, strict=True)):
            text, end_tag, _ = thought.text.partition(_END_OF_THOUGHT)
            finish = "stop" if end_tag else thought.finish
            closed = replace(thought, text=f"{text}{_END_OF_THOUGHT}", finish=finish)
            conclusion = replace(
                log.split(closed), text=verdict.text.strip(), finish=thought.finish
            )
            log_odds = _log_odds(verdict.alternatives or {})
            log.add(conclusion, [index], log_odds)
            scores.append(log_odds or 0.0)
        return scores_by_value(scores)


@dataclass(frozen=True, kw_only=True)
class Setwise(Style):
    """A model chooses the best passage of a set; heapsort by such choices finds the `top` best."""

    name = "setwise"
    answer_tokens = 10
    assumed_answer = "[2]"
    window: int = setting(least=2)
    top: int = setting(least=1)

    def rank(self, prompt: Prompt, log: Log) -> Questions:
        """Run heapsort with window - 1 children per node.

        Documents below `top` keep the order of the first stage. If an answer names no document of
        the set, the parent node stays at the top of its subtree.
        """
        count, children = len(log.candidates.documents), self.window - 1
        heap = list(range(count))

        def sift_down(node: int, size: int) -> Generator[list[ChatRequest], list[ChatAnswer]]:
            while (first_child := children * node + 1) < size:
                nodes = [node, *range(first_child, min(first_child + children, size))]
                indexes = [heap[node] for node in nodes]
                [answer] = yield [self.request_about(prompt, log, indexes)]
                conclusion = log.split(answer)
                ranked = read_order(conclusion.text, len(indexes))
                log.add(conclusion, indexes, ranked.indexes[0] if ranked else None)
                best = nodes[ranked.indexes[0]] if ranked else node
                if best == node:
                    return
                heap[node], heap[best] = heap[best], heap[node]
                node = best

        for node in range(count // children, -1, -1):
            yield from sift_down(node, count)
        for size in range(count - 1, max(0, count - self.top), -1):
            heap[0], heap[size] = heap[size], heap[0]
            yield from sift_down(0, size)
        if count > self.top:
            heap[0], heap[count - self.top] = heap[count - self.top], heap[0]
        best = heap[::-1][: self.top]
        return scores_from_order([*best, *sorted(set(range(count)) - set(best))])


@dataclass(frozen=True, kw_only=True)
class Groupwise(Style):
    """A model scores the documents of shuffled groups from 0 to 10, in several rounds.

    The score of a document is the mean over the rounds whose answers mention it. If an answer
    cannot be read, all documents of its group score 0 in that round.
    """

    name = "groupwise"
    fallback = "their passages score 0 in that round"
    group: int = setting(least=1)
    rounds: int = setting(least=1)
    seed: int

    @property
    def answer_tokens(self) -> int:
        """Expected tokens: eight for every passage of a group."""
        return 8 * self.group

    def rank(self, prompt: Prompt, log: Log) -> Questions:
        """Ask about all groups of all rounds at once."""
        first_sample = self.rounds * log.sample
        round_logs = [replace(log, sample=first_sample + number) for number in range(self.rounds)]
        groups = [
            (round_log, group) for round_log in round_logs for group in self._make_groups(round_log)
        ]
        answers = yield [
            self.request_about(prompt, round_log, group) for round_log, group in groups
        ]
        scores: list[list[float]] = [[] for _ in log.candidates.documents]
        for (round_log, group), answer in zip(groups, answers, strict=True):
            conclusion = round_log.split(answer)
            parsed = read_scores(conclusion.text, len(group))
            if parsed is None:
                group_scores = dict.fromkeys(range(len(group)), 0.0)
                round_log.add(conclusion, group, None)
            else:
                group_scores, order = parsed
                round_log.add(conclusion, group, list(group_scores.items()), order)
            for index, score in group_scores.items():
                scores[group[index]].append(score)
        return scores_by_value([sum(values) / len(values) if values else 0.0 for values in scores])

    def _make_groups(self, log: Log) -> list[list[int]]:
        """Shuffle a list into groups; the same seed, sample and query give the same groups."""
        order = list(range(len(log.candidates.documents)))
        random.Random(f"{self.seed} {log.sample} {log.candidates.query}").shuffle(order)
        return [order[start : start + self.group] for start in range(0, len(order), self.group)]


def _bare_request(text: str, log: Log, stop: tuple[str, ...] = ()) -> ChatRequest:
    return ChatRequest((Message("bare", text),), sample=log.sample, stop=stop)


def _close_thought(prompt: str, answer: ChatAnswer) -> str:
    """Return the prompt with the model's reasoning, closed after its last complete sentence."""
    thought = answer.text.partition(_END_OF_THOUGHT)[0]
    if answer.finish != "length" or _END_OF_THOUGHT in answer.text:
        return f"{prompt}{thought}{_END_OF_THOUGHT}"
    complete_sentences = _UNFINISHED.sub("", thought.rstrip()).strip()
    return f"{prompt}\n{complete_sentences}\n{_END_OF_THOUGHT}"


def _log_odds(alternatives: Mapping[str, float]) -> float | None:
    """Return the log-odds of true against false; None if neither is among the alternatives.

    If one of them is missing, it is assumed to be as likely as the least likely alternative.
    """

    def log_probabilities(word: str) -> list[float]:
        return [value for token, value in alternatives.items() if token.strip().lower() == word]

    true, false = log_probabilities("true"), log_probabilities("false")
    if not true and not false:
        return None
    least = [min(alternatives.values())]
    log_true = float(np.logaddexp.reduce(true or least))
    log_false = float(np.logaddexp.reduce(false or least))
    return log_true - log_false
