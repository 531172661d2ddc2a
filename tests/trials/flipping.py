"""Damage by single bits, as a failing disk does it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.trials.counting import counted


def flipped_files(path: Path, count: int, *, seed: int = 0) -> Iterator[int]:
    """Flip one bit of a file at a time, chosen at random, and yield its place in bits.

    The file is as it was before the next flip and after the last one, unless the reader under
    trial has replaced it: then the flip is made in the file that is there.
    """
    chance = random.Random(seed)
    for _ in range(count):
        sound = path.read_bytes()
        place = chance.randrange(len(sound) * 8)
        path.write_bytes(flipped(sound, place))
        yield place
        counted(f"bit flips, {path.suffix or path.name}")
        path.write_bytes(sound)


def flipped(data: bytes, place: int) -> bytes:
    """The data with one bit turned."""
    altered = bytearray(data)
    altered[place // 8] ^= 1 << place % 8
    return bytes(altered)
