"""Memory: how much this process has used, and whether an error means that it ran out."""

from __future__ import annotations

import resource
import sys

from r2med.errors import R2MedError


def peak_memory() -> int:
    """Return the largest amount of memory this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def out_of_memory(problem: BaseException) -> bool:
    """Return whether an error of any library, or the cause of one of ours, is lack of memory."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
        return True
    if isinstance(problem, R2MedError):
        return problem.__cause__ is not None and out_of_memory(problem.__cause__)
    text = str(problem).lower()
    return isinstance(problem, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )
