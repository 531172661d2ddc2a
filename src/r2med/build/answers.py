"""Decide if a text names an answer: one rule for queries, closed-book answers and passages."""

from __future__ import annotations

import re
from functools import lru_cache

from r2med.audit.matching import WORDS
from r2med.audit.matching import words as split_words

_PARENTHESES = re.compile(r"\(([^()]*)\)")
_ARTICLES = {"a", "an", "the", "of", "with", "and", "or", "to", "in", "for", "by", "due", "from"}
#: Abbreviations shorter than this are compared with their capitals, since `as` is not AS.
_SHORTEST = 4


@lru_cache(maxsize=4096)
def answer_forms(answer: str) -> tuple[str, ...]:
    """Return the wordings of an answer: in full, without parentheses, and the text inside them."""
    inside = _PARENTHESES.findall(answer)
    outside = _PARENTHESES.sub(" ", answer)
    forms = [answer, outside, *inside]
    cleaned = (" ".join(form.strip(" .;,:").split()) for form in forms)
    return tuple(dict.fromkeys(form for form in cleaned if len(form) > 1))


def names_answer(text: str, answer: str) -> bool:
    """Whether a text contains an answer, ignoring case, punctuation, plurals and small words."""
    words = f" {' '.join(_comparable(text))} "
    for form in answer_forms(answer):
        is_abbreviation = len(form) < _SHORTEST and form.isupper()
        if is_abbreviation:
            if form in WORDS.findall(text):
                return True
            continue
        phrase = " ".join(_comparable(form))
        if phrase and f" {phrase} " in words:
            return True
    return False


def _comparable(text: str) -> list[str]:
    return [_singular(word) for word in split_words(text) if word not in _ARTICLES]


def _singular(word: str) -> str:
    is_plural = len(word) > 4 and word.endswith("s") and not word.endswith(("ss", "is", "us"))
    return word[:-1] if is_plural else word
