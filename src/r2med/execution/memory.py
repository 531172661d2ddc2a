"""Recognise errors that mean that memory ran out."""

from __future__ import annotations

from r2med.errors import R2MedError


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
