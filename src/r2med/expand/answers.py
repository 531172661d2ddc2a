"""Generated texts, and how they are combined with queries for the search.

An answer is extracted from the text of a model and classified as usable, truncated, empty or
refused. The rule of a method then combines it with the query.
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
#: Characters of a text that are searched for a refusal.
_MOST_CHARACTERS = 20_000


@dataclass(frozen=True)
class Sample:
    """One generation: the text of the model, the answer in it, and how it is classified."""

    raw: str
    answer: str
    outcome: Outcome = "ok"

    @property
    def useful(self) -> bool:
        """Whether the generation is used for the search. If not, the plain query is used."""
        return self.outcome not in ("empty", "refused")


def classify_answer(raw: str, answer: str, finish: str) -> Sample:
    """Classify a new generation; `finish` is how it ended according to the server.

    A refusal is recognised by its text. A text that was cut by the server's content filter is used,
    like one that was cut at the token limit.
    """
    if not answer.strip():
        return Sample(raw, answer, "refused" if finish == "refusal" else "empty")
    if is_refusal(answer):
        return Sample(raw, answer, "refused")
    return Sample(raw, answer, "truncated" if finish in ("length", "refusal") else "ok")


def extract_answer(text: str, stripping: Stripping) -> str:
    """Return the answer in a text; the whole text if it has no marker.

    As in the published runs, the first marker counts, and <answer> needs its closing tag.
    """
    match stripping:
        case "think" | "final-response":
            marker = "</think>" if stripping == "think" else "Final Response"
            _, found_marker, answer = text.partition(marker)
            return answer.strip() if found_marker else text
        case "answer":
            _, _, after_tag = text.partition(_ANSWER_TAG)
            answer, end_tag, _ = after_tag.partition(_ANSWER_END)
            return answer.strip() if end_tag else text
        case "none":
            return text


@dataclass(frozen=True)
class Rule:
    """How queries and generations are combined: templates with {query} and {generated}."""

    lexical: str
    """The template for lexical retrievers."""
    dense: tuple[str, ...]
    """The templates for dense retrievers; the vectors of all texts are averaged."""

    def __post_init__(self) -> None:
        for template in (self.lexical, *self.dense):
            if _QUERY not in template and _GENERATED not in template:
                raise UsageError(
                    f"the template {template!r} contains neither {_QUERY} nor {_GENERATED}."
                )

    def form(self, query_id: str, query: str, answers: Sequence[str]) -> QueryForm:
        """Combine a query with its answers; without answers, the plain query is used.

        A lexical retriever searches for all answers joined by spaces. For a dense retriever each
        answer has its own vector, and the query is part of the mean once.
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


#: The rule for reasoning models with every method, since only the extracted answer is used.
ANSWER_ALONE = Rule(lexical=_GENERATED, dense=(_QUERY, _GENERATED))


@dataclass(frozen=True)
class ExpandedQuery:
    """One query with its generations."""

    query_id: str
    query: str
    samples: tuple[Sample, ...]
    traces: tuple[Trace, ...] = ()
    """For agents, one trace per sample; otherwise empty."""


@dataclass(frozen=True)
class Expansion:
    """All queries of a task, expanded by one method and model."""

    queries: tuple[ExpandedQuery, ...]
    rule: Rule
    fuse: bool = False
    """Whether each sample is searched for separately and the runs are fused."""
    work: Mapping[str, object] = field(default_factory=dict)
    """The source of the generations and their cost: calls, tokens, seconds, money."""

    @property
    def source(self) -> str:
        """The file of the generations, or `live` if a model was called."""
        return str(self.work.get("generations_from", ""))

    @property
    def variants(self) -> tuple[tuple[QueryForm, ...], ...]:
        """The query forms of every search: one search, or one per sample if runs are fused."""
        if not self.fuse:
            return (self._forms(slice(None)),)
        count = max((len(query.samples) for query in self.queries), default=1)
        return tuple(self._forms(slice(index, index + 1)) for index in range(count))

    @property
    def fallen_back(self) -> int:
        """Number of queries without a usable generation, for which the plain query is used."""
        return sum(not any(sample.useful for sample in query.samples) for query in self.queries)

    def facts(self) -> Mapping[str, object]:
        """Return counts for the record, and the first query in its combined form."""
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

    def _forms(self, sample_slice: slice) -> tuple[QueryForm, ...]:
        """Combine every query with a slice of its samples."""
        forms = []
        for query in self.queries:
            answers = [sample.answer for sample in query.samples[sample_slice] if sample.useful]
            forms.append(self.rule.form(query.query_id, query.query, answers))
        return tuple(forms)


def is_refusal(text: str) -> bool:
    """Whether a text declines to answer and has no other content.

    "I cannot help with that" declines; "I cannot exclude pulmonary embolism" does not, nor does an
    apology followed by an answer.
    """
    beginning = text.strip()[:_MOST_CHARACTERS].replace("’", "'")
    clauses = [clause for clause in _CLAUSE_END.split(beginning) if clause]
    if not any(_DECLINES.search(clause) for clause in clauses[:_FIRST_CLAUSES]):
        return False
    content = [clause for clause in clauses if not _COURTESY.search(clause)]
    return sum(len(clause.split()) for clause in content) < _LEAST_CONTENT_WORDS


#: A refusal declines in one of the first clauses of a text.
_FIRST_CLAUSES = 4
#: A text with this many words besides courtesies is an answer.
_LEAST_CONTENT_WORDS = 5
#: In these patterns repetitions are bounded, or can start at one position only, so that the time
#: for matching is linear in the length of the text.
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
#: Clauses around a refusal: they decline, apologise, name the speaker, refer to others, or offer.
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
