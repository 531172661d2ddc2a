"""Models for workers, named by text: sound ones, and ones that fail in every way a model can.

A fault strikes at a text that the model meets, as often as its name in R2MED_FAULTS says; where it
has struck is written there, so that it is known in every process.
"""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


def vectors_of(texts: Sequence[str]) -> Vectors:
    digests = [hashlib.sha256(text.encode()).digest()[:8] for text in texts]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(len(texts), 8).astype(np.float32)


def log(kind: str, texts: Sequence[str]) -> None:
    """Note which texts are through, where somebody wants to know: one line each, in one write."""
    if folder := os.environ.get("R2MED_FAULTS"):
        lines = "".join(f"{hashlib.sha256(text.encode()).hexdigest()[:16]}\n" for text in texts)
        with (Path(folder) / f"{kind}-{os.getpid()}.log").open("a") as file:
            file.write(lines)


class Sound:
    """Gives every text its vector, and says so."""

    identity = "sound"

    def encode(self, texts: list[str]) -> Vectors:
        time.sleep(float(os.environ.get("R2MED_PAUSE", "0")))
        vectors = vectors_of(texts)
        log("texts", texts)
        return vectors


class SoundPairs:
    """Scores every pair by its texts."""

    identity = "sound pairs"

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        time.sleep(float(os.environ.get("R2MED_PAUSE", "0")))
        joined = ["\n".join(pair) for pair in pairs]
        log("pairs", joined)
        return [float(row[0]) for row in vectors_of(joined)]


class Unlucky:
    """Fails once at each of some texts, and not when it is asked again."""

    identity = "unlucky"
    times = 1

    def encode(self, texts: list[str]) -> Vectors:
        for text in texts:
            for fault in ("dies", "hangs", "raises", "nan", "short", "hungry"):
                if f"<{fault}>" in text and self.strikes(fault):
                    struck: Vectors = getattr(self, fault)(texts)
                    return struck
        log("texts", texts)
        return vectors_of(texts)

    def strikes(self, fault: str) -> bool:
        """Whether the fault has not struck often enough."""
        for time_struck in range(self.times):
            mark = Path(os.environ["R2MED_FAULTS"]) / f"{fault}-{time_struck}.struck"
            try:
                mark.touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False

    def dies(self, texts: list[str]) -> Vectors:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError

    def hangs(self, texts: list[str]) -> Vectors:
        time.sleep(3600)
        raise AssertionError

    def raises(self, texts: list[str]) -> Vectors:
        raise RuntimeError("once in a hundred")

    def nan(self, texts: list[str]) -> Vectors:
        return vectors_of(texts) * np.float32("nan")

    def short(self, texts: list[str]) -> Vectors:
        return vectors_of(texts)[1:]

    def hungry(self, texts: list[str]) -> Vectors:
        """More than the process may have: the batch is halved, and then goes through."""
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY))
        return np.zeros((1 << 36,), np.float32)


class Cursed(Unlucky):
    """Fails at the same texts always."""

    identity = "cursed"
    times = 1000
