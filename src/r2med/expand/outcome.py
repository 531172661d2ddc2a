"""What became of a generation: usable, cut short, empty, or a refusal."""

from __future__ import annotations

import re

from r2med.expand.expanded import Outcome, Sample

#: A refusal is short and says so at its beginning; medical prose may say "cannot" anywhere else.
_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:very )?sorry|sorry,|i am sorry|i apologi[sz]e|"
    r"i(?: can(?:['’]?t|not)|(?: a|['’]?)m (?:not able|unable)| won['’]?t) (?:to )?"
    r"(?:assist|help|provide|answer|give|offer|write|comply|fulfil|continue)|"
    r"as an ai\b)",
    re.IGNORECASE,
)
_LONGEST_REFUSAL = 600


def judged(raw: str, answer: str, finish: str) -> Sample:
    """A live generation with its outcome, from the text and from what the server said of it."""
    if finish in ("content_filter", "refusal") or is_refusal(answer):
        return Sample(raw, answer, "refused")
    if not answer.strip():
        return Sample(raw, answer, "empty")
    return Sample(raw, answer, "truncated" if finish == "length" else "ok")


def restored(raw: str, answer: str, outcome: Outcome = "ok") -> Sample:
    """A generation from a file: taken as it is, as published ones are, unless it is empty."""
    told = outcome == "refused" or answer.strip()
    return Sample(raw, answer, outcome if told else "empty")


def is_refusal(answer: str) -> bool:
    """Whether a text declines to answer."""
    return len(answer) <= _LONGEST_REFUSAL and _REFUSAL.match(answer) is not None
