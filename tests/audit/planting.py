"""Leaks as they happen: one evaluation text, changed in a way that training data shows."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Sequence

_BRITISH = {
    "haem": "hem",
    "anaem": "anem",
    "oedema": "edema",
    "tumour": "tumor",
    "paediatr": "pediatr",
    "oesoph": "esoph",
    "leukaem": "leukem",
    "diarrhoea": "diarrhea",
    "colour": "color",
    "behaviour": "behavior",
    "centre": "center",
    "fibre": "fiber",
    "isation": "ization",
    "ised": "ized",
    "ising": "izing",
    "labour": "labor",
    "foet": "fet",
}
_SENTENCE = re.compile(r"(?<=[.!?])\s+")


def case(text: str, chance: random.Random, others: Sequence[str]) -> str:
    return text.upper()


def punctuation(text: str, chance: random.Random, others: Sequence[str]) -> str:
    return re.sub(r"[.,;:()\"'%/-]+", lambda _: chance.choice([" ", " - ", "; "]), text)


def unicode_form(text: str, chance: random.Random, others: Sequence[str]) -> str:
    return unicodedata.normalize("NFD", text).replace("fi", "ﬁ").replace("fl", "ﬂ")


def whitespace(text: str, chance: random.Random, others: Sequence[str]) -> str:
    return "".join(chance.choice(["\n", "  ", "\t", " "]) if c == " " else c for c in text)


def truncation(text: str, chance: random.Random, others: Sequence[str]) -> str:
    """The first 60 % of the characters, often cut inside a word, but no less than nine words."""
    return text[: max(round(0.6 * len(text)), len(" ".join(text.split()[:9])))]


def embedded(text: str, chance: random.Random, others: Sequence[str]) -> str:
    return f"{chance.choice(others)} {text} {chance.choice(others)}"


def reordered(text: str, chance: random.Random, others: Sequence[str]) -> str:
    sentences = _SENTENCE.split(text)
    chance.shuffle(sentences)
    return " ".join(sentences)


def changed(text: str, chance: random.Random, others: Sequence[str]) -> str:
    """Every tenth word, at random places, replaced by a word of another text."""
    words = text.split()
    for place in chance.sample(range(len(words)), round(0.1 * len(words))):
        words[place] = chance.choice(chance.choice(others).split() or ["x"])
    return " ".join(words)


def spelling(text: str, chance: random.Random, others: Sequence[str]) -> str:
    for british, american in _BRITISH.items():
        text = (
            text.replace(british, american) if british in text else text.replace(american, british)
        )
    return text


def scanned(text: str, chance: random.Random, others: Sequence[str]) -> str:
    """As a scan reads it: ligatures missing, and some words broken at line ends."""
    text = re.sub("ffi|ff|fi|fl", "", text)
    return " ".join(
        f"{word[:4]}-\n{word[4:]}" if len(word) > 7 and chance.random() < 0.05 else word
        for word in text.split()
    )


Plant = Callable[[str, random.Random, Sequence[str]], str]
#: Changes of form alone: the words and their order stay.
SAME_WORDS: dict[str, Plant] = {
    "case": case,
    "punctuation": punctuation,
    "Unicode form": unicode_form,
    "whitespace": whitespace,
}
PARTS: dict[str, Plant] = {"truncation": truncation, "embedded": embedded}
NEAR: dict[str, Plant] = {
    "reordered": reordered,
    "10 % changed": changed,
    "spelling": spelling,
    "scanned": scanned,
}
PLANTS = {**SAME_WORDS, **PARTS, **NEAR}
