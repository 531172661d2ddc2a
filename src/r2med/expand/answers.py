"""What a model wrote for queries, and what is searched for with it.

An answer is stripped of its reasoning and judged usable, cut, empty or refused; queries and their
answers become what is searched for by the rule of a method.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from r2med.errors import UsageError
from r2med.expand.prompts import fill_template
from r2med.remote.registry import Stripping
from r2med.retrieve.interface import Part, QueryForm

if TYPE_CHECKING:
    from r2med.expand.agents import Trace

Outcome = Literal["ok", "truncated", "empty", "refused"]

_QUERY, _GENERATED = "{query}", "{generated}"
_ANSWER_TAG, _ANSWER_END = "<answer>", "</answer>"
#: Characters of a text by which it is judged to decline.
_JUDGED = 20_000


@dataclass(frozen=True)
class Sample:
    """One generation: as the model wrote it, the answer in it, and what became of it."""

    raw: str
    answer: str
    outcome: Outcome = "ok"

    @property
    def useful(self) -> bool:
        """Whether it is searched with; otherwise the query stands for itself."""
        return self.outcome not in ("empty", "refused")


def judge(raw: str, answer: str, finish: str) -> Sample:
    """A live generation with its outcome; `finish` is what the server said of it.

    Where there is a text, the text decides whether it is a refusal. One that a server's filter cut
    short is used as far as it goes, as one that was cut at the token limit is.
    """
    if not answer.strip():
        return Sample(raw, answer, "refused" if finish == "refusal" else "empty")
    if is_refusal(answer):
        return Sample(raw, answer, "refused")
    return Sample(raw, answer, "truncated" if finish in ("length", "refusal") else "ok")


def strip(text: str, how: Stripping) -> str:
    """The answer in a text; a text without its marker is taken whole.

    As in the published runs the first marker counts, and an answer needs both of its tags.
    """
    match how:
        case "think" | "final-response":
            _, marked, rest = text.partition("</think>" if how == "think" else "Final Response")
            return rest.strip() if marked else text
        case "answer":
            answer, end_tag, _ = text.partition(_ANSWER_TAG)[2].partition(_ANSWER_END)
            return answer.strip() if end_tag else text
        case "none":
            return text


@dataclass(frozen=True)
class Rule:
    """Templates with {query} and {generated}: one for words, one or more for vectors to average."""

    lexical: str
    dense: tuple[str, ...]

    def __post_init__(self) -> None:
        for template in (self.lexical, *self.dense):
            if _QUERY not in template and _GENERATED not in template:
                raise UsageError(
                    f"combination rule {template!r}: expected {_QUERY} or {_GENERATED} in it."
                )

    def form(self, query_id: str, query: str, answers: Sequence[str]) -> QueryForm:
        """One query as it is searched for; without any answer it stands for itself.

        Several answers are joined by a space for words; for vectors each gives a part of its own,
        and the query enters the mean once.
        """
        if not answers:
            return QueryForm(query_id, query, (Part(query),))
        lexical = fill_template(self.lexical, query=query, generated=" ".join(answers))
        dense = tuple(
            Part(fill_template(template, query=query, generated=answer), _QUERY not in template)
            for template in self.dense
            for answer in (answers if _GENERATED in template else answers[:1])
        )
        return QueryForm(query_id, lexical, dense)


#: Every method combines so when the model reasons, since only its stripped answer is used.
ANSWER_ALONE = Rule(lexical=_GENERATED, dense=(_QUERY, _GENERATED))


@dataclass(frozen=True)
class Expanded:
    """One query and what was generated for it; agents leave a trace for every sample."""

    query_id: str
    query: str
    samples: tuple[Sample, ...]
    traces: tuple[Trace, ...] = ()


@dataclass(frozen=True)
class Expansion:
    """All queries of a task, expanded by one method and model."""

    queries: tuple[Expanded, ...]
    rule: Rule
    fuse: bool = False
    """Whether each sample is searched by itself and the runs are fused."""
    work: Mapping[str, object] = field(default_factory=dict)
    """Where the generations come from and what they took: calls, tokens, seconds, money."""

    @property
    def source(self) -> str:
        """The file that the generations are from, or the model."""
        return str(self.work.get("generations_from", ""))

    @property
    def variants(self) -> tuple[tuple[QueryForm, ...], ...]:
        """The forms to search with: one set, or one per sample where their runs are fused."""
        if not self.fuse:
            return (self._forms(slice(None)),)
        count = max((len(query.samples) for query in self.queries), default=1)
        return tuple(self._forms(slice(index, index + 1)) for index in range(count))

    @property
    def fallen_back(self) -> int:
        """How many queries have no useful generation and stand for themselves."""
        return sum(not any(sample.useful for sample in query.samples) for query in self.queries)

    def facts(self) -> Mapping[str, object]:
        """Counts for the record, and the first query as it is searched for."""
        samples = [sample for query in self.queries for sample in query.samples]
        outcomes = Counter(sample.outcome for sample in samples)
        facts: dict[str, object] = {
            "queries": len(self.queries),
            "generations": len(samples),
            "truncated": outcomes["truncated"],
            "empty": sum(s.outcome != "refused" and not s.answer.strip() for s in samples),
            "refused": outcomes["refused"],
            "fallen_back": self.fallen_back,
            "answer_counts": {
                "total": len(samples),
                "unread": outcomes["empty"],
                "refused": outcomes["refused"],
                "truncated": outcomes["truncated"],
                "fallen_back": sum(not sample.useful for sample in samples),
            },
            **self.work,
        }
        if self.queries:
            first = self.variants[0][0]
            facts["first_lexical"] = first.lexical
            facts["first_dense"] = [part.text for part in first.dense]
        return facts

    def _forms(self, chosen: slice) -> tuple[QueryForm, ...]:
        """Every query as it is searched for with some of its samples."""
        return tuple(
            self.rule.form(
                query.query_id, query.query, [s.answer for s in query.samples[chosen] if s.useful]
            )
            for query in self.queries
        )


def is_refusal(text: str) -> bool:
    """Whether a text declines to answer, and says nothing else of substance.

    "I cannot help with that" declines; "I cannot exclude pulmonary embolism" does not, nor does an
    apology that an answer follows.
    """
    judged = text.strip()[:_JUDGED].replace("’", "'")
    clauses = [clause for clause in _CLAUSE_END.split(judged) if clause]
    if not any(_DECLINES.search(clause) for clause in clauses[:_OPENING]):
        return False
    rest = [clause for clause in clauses if not _COURTESY.search(clause)]
    return sum(len(clause.split()) for clause in rest) < _SUBSTANCE


#: Clauses in which a refusal declines, and words beside courtesies from which a text is an answer.
_OPENING, _SUBSTANCE = 4, 5
#: Repetitions are bounded or entered at one place only, so that judging takes time in proportion
#: to the text.
_CLAUSE_END = re.compile(
    r"(?<=[.!?;:])\s+|\n+|(?<!help)(?:,\s{0,20}|(?<!\s)\s{1,20})(?=(?:but|although)\b)", re.I
)
_SELF = (
    r"(?:as an? (?:ai|artificial|assistant|language|large|medical ai)\b[^,.]{0,80}"
    r"|i(?: am|'m) (?:just |only )?(?:an? )?(?:ai|language model)\b[^,.]{0,80})"
)
_UNABLE = (
    r"(?:can(?:'?t|not| not)|could(?:n't| not)|am (?:unable|not able|not allowed|not permitted) to"
    r"|'?m (?:unable|not able|not allowed|not permitted) to|won'?t(?: be able to)?"
    r"|will not(?: be able to)?|must (?:respectfully )?decline(?: to)?|have to decline(?: to)?"
    r"|(?:do not|don't) feel comfortable|(?:am|'m) not comfortable|refuse to)"
)
_SERVE = (
    r"(?:assist|help(?!\s{1,20}(?:but\b|\w+ing\b))|comply|fulfil|continue|proceed|engage|participate"
    r"|provid|giv|offer|writ|answer|respond|generat|creat|produc|discuss|shar|complet"
    r"|do (?:that|this|so)|diagnos|advis|rank|grad|rat(?:e|ing)\b|scor|order (?:the|these)"
    r"|accommodat|support|make (?:a|any|medical|clinical|definitive))"
)
_DECLINES = re.compile(
    rf"\bi\s?{_UNABLE}\s{{1,20}}(?:\w{{1,20}}ly\s{{1,20}})?{_SERVE}"
    rf"|\bi (?:must|have to) (?:respectfully )?decline\b"
    rf"|{_SELF},? i (?:do not|don't|am not|'m not|cannot|can't)\b"
    r"|^\W{0,40}"
    r"(?:i(?: a|')m (?:very |so |really |truly )?sorry|sorry|i apologi[sz]e|(?:my )?apologies)"
    r"(?=[,.!;:]|\s+(?:but|i)\b|$)"
    r"|\b(?:this|your|that|the) request (?:cannot|can't) be (?:fulfil|complet|process|answer)"
    r"|\bunable to (?:assist|help|comply|fulfil)",
    re.I,
)
#: What surrounds a refusal: it declines, apologises, names the speaker, refers, or offers.
_COURTESY = re.compile(
    rf"{_DECLINES.pattern}|^\W{{0,40}}but\W{{0,40}}$|{_SELF}|\bsorry\b|\bapologi|\bunfortunately\b"
    r"|\b(?:consult|see|seek|contact|speak (?:to|with)|talk (?:to|with|things)|reach out)\b.{0,120}"
    r"\b(?:doctor|physician|professional|provider|specialist|pharmacist|help|advice|attention)\b"
    r"|\b(?:feel free|let me know|happy to|glad to|if that helps)\b"
    r"|\bif you (?:have|need|would|want|'d|are)\b"
    r"|\bi (?:can|could|would|may),? (?:however,? |try to |only |still |also |instead ){0,4}"
    r"(?:help|offer|provide|share|suggest|give|assist|discuss)\b"
    r"|\b(?:my|our) (?:guidelines|polic\w+|programming|capabilit\w+|purpose)\b"
    r"|\bmedical advice\b|\bis there (?:anything|something)\b",
    re.I,
)
