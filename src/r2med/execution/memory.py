"""The peak memory of this process, and whether an error means that memory ran out."""

from __future__ import annotations

import resource
import sys

from r2med.errors import R2MedError


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def is_out_of_memory(problem: BaseException) -> bool:
    """Return whether an error, or the cause of an R2MedError, means that memory ran out."""
    if isinstance(problem, MemoryError) or type(problem).__name__ == "OutOfMemoryError":
        return True
    if isinstance(problem, R2MedError):
        return problem.__cause__ is not None and is_out_of_memory(problem.__cause__)
    text = str(problem).lower()
    return isinstance(problem, RuntimeError) and (
        "out of memory" in text or "can't allocate memory" in text
    )
