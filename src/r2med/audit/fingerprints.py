"""Recognise a text without keeping it: a hash of the whole, and hashes of chosen word runs.

Winnowing (Schleimer, Wilkerson, Aiken 2003) keeps of every `WINDOW` neighbouring n-grams the one
with the smallest hash, so any two texts that share `GUARANTEE` words in a row share a fingerprint.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Sequence

#: Words in an n-gram, and neighbouring n-grams of which one is kept.
GRAM = 8
WINDOW = 4
#: A run of so many equal words is always found.
GUARANTEE = GRAM + WINDOW - 1
_WORDS = re.compile(r"[^\W_]+")
_HASH_BYTES = 8


def words(text: str) -> list[str]:
    """The words a fingerprint sees: NFKC, case folded, letters and digits only."""
    return _WORDS.findall(unicodedata.normalize("NFKC", text).casefold())


def text_hash(text: str) -> str:
    """sha256 of the words joined by single spaces: equal for texts that differ in form alone."""
    return hashlib.sha256(" ".join(words(text)).encode()).hexdigest()


def fingerprints(text: str) -> list[str]:
    """Chosen n-gram hashes as hexadecimal, sorted; a shorter text counts as one n-gram."""
    hashes = [_hash(gram) for gram in _grams(words(text))]
    return sorted(set(_winnowed(hashes)))


def _grams(found: Sequence[str]) -> Iterator[str]:
    if 0 < len(found) < GRAM:
        yield " ".join(found)
    for start in range(len(found) - GRAM + 1):
        yield " ".join(found[start : start + GRAM])


def _hash(gram: str) -> str:
    return hashlib.blake2b(gram.encode(), digest_size=_HASH_BYTES).hexdigest()


def _winnowed(hashes: Sequence[str]) -> Iterator[str]:
    """The smallest hash of every window; the rightmost of equals, as in the paper."""
    if hashes and len(hashes) < WINDOW:
        yield min(hashes)
    window: deque[str] = deque(maxlen=WINDOW)
    for value in hashes:
        window.append(value)
        if len(window) == WINDOW:
            yield min(window)
