"""What a model's answer is: stripped of its reasoning, and judged usable, cut, empty or refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from r2med.remote.registry import Stripping

Outcome = Literal["ok", "truncated", "empty", "refused"]

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


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
            tagged = _ANSWER.search(text)
            return tagged[1].strip() if tagged else text
        case "none":
            return text


def is_refusal(text: str) -> bool:
    """Whether a text declines to answer, and says nothing else of substance.

    "I cannot help with that" declines; "I cannot exclude pulmonary embolism" does not, nor does an
    apology that an answer follows.
    """
    clauses = [clause for clause in _CLAUSE_END.split(text.replace("’", "'").strip()) if clause]
    if not any(_DECLINES.search(clause) for clause in clauses[:_OPENING]):
        return False
    rest = [clause for clause in clauses if not _COURTESY.search(clause)]
    return sum(len(clause.split()) for clause in rest) < _SUBSTANCE


#: Clauses in which a refusal declines, and words beside courtesies from which a text is an answer.
_OPENING, _SUBSTANCE = 4, 5
_CLAUSE_END = re.compile(r"(?<=[.!?;:])\s+|\n+|(?<!help)(?:,\s*|\s+)(?=(?:but|although)\b)", re.I)
_SELF = (
    r"(?:as an? (?:ai|artificial|assistant|language|large|medical ai)\b[^,.]*"
    r"|i(?: am|'m) (?:just |only )?(?:an? )?(?:ai|language model)\b[^,.]*)"
)
_UNABLE = (
    r"(?:can(?:'?t|not| not)|could(?:n't| not)|am (?:unable|not able|not allowed|not permitted) to"
    r"|'?m (?:unable|not able|not allowed|not permitted) to|won'?t(?: be able to)?"
    r"|will not(?: be able to)?|must (?:respectfully )?decline(?: to)?|have to decline(?: to)?"
    r"|(?:do not|don't) feel comfortable|(?:am|'m) not comfortable|refuse to)"
)
_SERVE = (
    r"(?:assist|help(?!\s+(?:but\b|\w+ing\b))|comply|fulfil|continue|proceed|engage|participate"
    r"|provid|giv|offer|writ|answer|respond|generat|creat|produc|discuss|shar|complet"
    r"|do (?:that|this|so)|diagnos|advis|rank|grad|rat(?:e|ing)\b|scor|order (?:the|these)"
    r"|accommodat|support|make (?:a|any|medical|clinical|definitive))"
)
_DECLINES = re.compile(
    rf"\bi\s?{_UNABLE}\s+(?:\w+ly\s+)?{_SERVE}"
    rf"|\bi (?:must|have to) (?:respectfully )?decline\b"
    rf"|{_SELF},? i (?:do not|don't|am not|'m not|cannot|can't)\b"
    r"|^\W*(?:i(?: a|')m (?:very |so |really |truly )?sorry|sorry|i apologi[sz]e|(?:my )?apologies)"
    r"(?=[,.!;:]|\s+(?:but|i)\b|$)"
    r"|\b(?:this|your|that|the) request (?:cannot|can't) be (?:fulfil|complet|process|answer)"
    r"|\bunable to (?:assist|help|comply|fulfil)",
    re.I,
)
#: What surrounds a refusal: it declines, apologises, names the speaker, refers, or offers.
_COURTESY = re.compile(
    rf"{_DECLINES.pattern}|^\W*but\W*$|{_SELF}|\bsorry\b|\bapologi|\bunfortunately\b"
    r"|\b(?:consult|see|seek|contact|speak (?:to|with)|talk (?:to|with|things)|reach out)\b.*"
    r"\b(?:doctor|physician|professional|provider|specialist|pharmacist|help|advice|attention)\b"
    r"|\b(?:feel free|let me know|happy to|glad to|if that helps)\b"
    r"|\bif you (?:have|need|would|want|'d|are)\b"
    r"|\bi (?:can|could|would|may),? (?:however,? |try to |only |still |also |instead )*"
    r"(?:help|offer|provide|share|suggest|give|assist|discuss)\b"
    r"|\b(?:my|our) (?:guidelines|polic\w+|programming|capabilit\w+|purpose)\b"
    r"|\bmedical advice\b|\bis there (?:anything|something)\b",
    re.I,
)
