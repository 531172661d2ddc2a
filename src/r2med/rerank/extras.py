"""Libraries that only some rerankers need: an error that says how to get them."""

from __future__ import annotations

from importlib.util import find_spec

from r2med.errors import MissingError

_EXTRAS = {"torch": "rerank", "transformers": "rerank", "peft": "rankllama"}


def needed(*libraries: str) -> None:
    """Fail with what to install where a library is missing."""
    for library in libraries:
        if find_spec(library) is None:
            raise MissingError(
                f"This reranker needs {library}, which is not installed: "
                f"pip install 'r2med[{_EXTRAS[library]}]'."
            )
