"""Features of a text's style that are independent of its content.

The features are rates per word or per sentence, so that they do not depend on the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from r2med.settings import read_packaged_toml

Feature = Callable[[str], float]

_WORD = re.compile(r"[a-z0-9]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
#: Words of the first part of a text, over which the type-token ratio does not depend on its length.
_RATIO_WORDS = 60

_LISTS = read_packaged_toml("build/words.toml")
FUNCTION_WORDS = frozenset(_LISTS["function"])
OCCUPATIONS = frozenset(_LISTS["occupations"])
_SPELLED_NUMBERS = frozenset(_LISTS["spelled_numbers"])
_HEDGES = frozenset(_LISTS["hedges"])
_DENIALS = re.compile(
    r"\b(?:not (?:meant|intended|suited|useful|helpful|needed|indicated|enough|explained?)|no role"
    r"|cannot (?:explain|account|tell)|does not|do not|is not|are not|was not|were not|rather than"
    r"|instead of|never|neither|nor|without|unlike|calls? for)\b",
    re.IGNORECASE,
)


def find_words(text: str) -> list[str]:
    """Return words and numbers in lower case."""
    return _WORD.findall(text.lower())


def find_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [sentence for sentence in _SENTENCE_END.split(text) if sentence.strip()]


def count_style_tokens(text: str) -> dict[str, int]:
    """Count function words, punctuation marks and numbers; all other words are left out."""
    counts: dict[str, int] = {}
    for token in re.findall(r"[a-z]+|\d+|[^\w\s]", text.lower()):
        name = "0" if token.isdigit() else token
        if not name.isalpha() or name in FUNCTION_WORDS:
            counts[name] = counts.get(name, 0) + 1
    return counts


def opening_form(text: str) -> str:
    """Return the first three words; numbers are replaced by N, and words for a sex by S."""
    start = re.sub(r"\d+", "N", " ".join(find_words(text)[:3]))
    return re.sub(r"\b(?:male|female|man|woman|boy|girl|he|she)\b", "S", start)


def _per_word(count: int, text: str) -> float:
    return count / max(len(text.split()), 1)


def _pattern_rate(pattern: re.Pattern[str], text: str) -> float:
    return _per_word(len(pattern.findall(text)), text)


def _word_rate(words: frozenset[str], text: str) -> float:
    return _per_word(sum(word in words for word in find_words(text)), text)


def _mean_word_length(text: str) -> float:
    words = find_words(text)
    return sum(map(len, words)) / max(len(words), 1)


def _type_token_ratio(text: str) -> float:
    words = find_words(text)[:_RATIO_WORDS]
    return len(set(words)) / max(len(words), 1)


def _capital_rate(text: str) -> float:
    return _per_word(sum(word[:1].isupper() for word in text.split()), text)


def _rate_of(pattern: str) -> Feature:
    return partial(_pattern_rate, re.compile(pattern, re.IGNORECASE))


#: Ways to measure how long a text is.
LENGTHS: Mapping[str, Feature] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "first sentence": lambda text: len((find_sentences(text) or [""])[0].split()),
}

#: How numbers, units and marks are written.
TYPOGRAPHY: Mapping[str, Feature] = {
    "digits": _rate_of(r"\d+"),
    "spelled numbers": partial(_word_rate, _SPELLED_NUMBERS),
    "percent signs": _rate_of(r"%"),
    "the word percent": _rate_of(r"\bper ?cent\b"),
    "ranges with a mark": _rate_of(r"\d\s?[-–—]\s?\d"),
    "ranges in words": _rate_of(r"\d\s+to\s+\d"),
    "units with a slash": _rate_of(r"[a-zµμ]\s?/\s?[a-z]{1,5}\b"),
    "commas": _rate_of(r","),
    "colons": _rate_of(r":"),
    "semicolons": _rate_of(r";"),
    "parentheses": _rate_of(r"\("),
    "dashes": _rate_of(r"\s[-–—]\s|—"),
    "quotation marks": _rate_of(r"[\"“”]"),
    "line breaks": _rate_of(r"\n"),
    "capitals": _capital_rate,
}

#: How sentences are worded.
WORDING: Mapping[str, Feature] = {
    "word length": _mean_word_length,
    "sentence length": lambda text: len(text.split()) / max(len(find_sentences(text)), 1),
    "type-token ratio": _type_token_ratio,
    "function words": partial(_word_rate, FUNCTION_WORDS),
    "hedges": partial(_word_rate, _HEDGES),
    "denials": partial(_pattern_rate, _DENIALS),
}
