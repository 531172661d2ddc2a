"""Versions of the algorithms that decide rankings, and the task-specific part of an identity.

Every key of a stored result, embedding, score or index contains the versions of the algorithms that
produced it. Raise a version whenever equal inputs can give another output, even in the last digits
that matter to a ranking. `tests/systems/test_algorithm_versions.py` holds an output of every
algorithm and fails if it changes under the same version.
"""

from __future__ import annotations

from collections.abc import Mapping

ALGORITHM_VERSIONS: Mapping[str, int] = {
    # Lexical retrieval.
    "lucene-analysis": 1,
    "nano-analysis": 1,
    "bm25": 1,
    # From texts to vectors: tokens, pooling, projection, normalisation.
    "transformer-encoding": 1,
    "library-encoding": 2,
    "static-encoding": 1,
    "api-encoding": 1,
    # From vectors to rankings.
    "vector-search": 2,
    "sparse-search": 2,
    "late-interaction": 2,
    # Expansion of queries, fusion and reordering of rankings.
    "run-fitting": 1,
    "fusion": 2,
    "expansion": 2,
    "pair-scoring": 1,
    "llm-reranking": 1,
    "reranking": 1,
}

#: The key in an identity for everything that depends on the task: its instructions, and its files
#: of generations and candidates.
TASK_SPECIFIC = "task_specific"


def versions(*names: str) -> dict[str, int]:
    """Return the versions of the named algorithms, to be included in an identity."""
    return {name: ALGORITHM_VERSIONS[name] for name in names}


def without_task_specifics(identity: object) -> object:
    """Return an identity without its task-specific parts, so that it is equal on all tasks."""
    if isinstance(identity, Mapping):
        return {
            key: without_task_specifics(value)
            for key, value in identity.items()
            if key != TASK_SPECIFIC
        }
    if isinstance(identity, list | tuple):
        return [without_task_specifics(value) for value in identity]
    return identity
