"""The three candidate subsets of a Nano task, exactly as published: made here, or read.

BM25 and an encoder give 500 documents each; their fusion is cut at 100. *Safeguard:* only where
those 100 hold no positive, one is appended at rank 101, so that a reranker has something to find.
It leaks an answer: a system is scored without it, too.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from r2med.errors import UsageError
from r2med.nano.pool import SEED
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.fusion import NANO_K, Fusion
from r2med.retrieve.given import find_subset, split_of, subset_names
from r2med.runs import Run
from r2med.runs.run import ordered
from r2med.systems.build import System
from r2med.systems.stages import Retrieval
from r2med.systems.work import Ledger, Work, run_member
from r2med.tasks.task import Judgements, Task, positives_of

Role = Literal["bm25", "dense", "reranking_hybrid"]
ROLES: tuple[Role, ...] = get_args(Role)
TITLES: dict[Role, str] = {"bm25": "BM25", "dense": "Dense", "reranking_hybrid": "Hybrid"}

FIRST_DEPTH = 500
HYBRID_DEPTH = 100
BM25 = "bm25-nano"
DEFAULT_DENSE = "harrier"
#: Looked at beyond the depth, so that equal scores at its edge are cut by id as published.
_EDGE = 100


@dataclass(frozen=True, eq=False)
class CandidateList:
    """The lists of one role, and where they come from."""

    role: Role
    run: Run
    """The hybrid's with its safeguards."""
    config: str
    """The subset's name."""
    system: str | None = None
    """What ranked them here, in words; None for lists that lie beside the data."""
    safeguards: Mapping[str, str] = field(default_factory=dict)
    """Of a hybrid made here: each query whose 100 hold no positive, and the one chosen for it."""


def make_candidates(
    task: Task, dense: str = DEFAULT_DENSE, *, conditions: Conditions | None = None
) -> list[CandidateList]:
    """Rank the pool by BM25 and an encoder, fuse, and choose the safeguards."""
    config = dense_config(dense)
    lexical = retrieved(BM25, task, depth=FIRST_DEPTH, conditions=conditions)
    vector = retrieved(dense, task, depth=FIRST_DEPTH + _EDGE, conditions=conditions)
    return combined(lexical, vector, task.judgements, split=split_of(task), dense=(config, dense))


def combined(
    lexical: Run, vector: Run, judgements: Judgements, *, split: str, dense: tuple[str, str]
) -> list[CandidateList]:
    """The three subsets of two rankings; equal scores of the vector one are ordered by id.

    `dense` is the name of the subset and the system that ranked it.
    """
    first = lexical.truncated(FIRST_DEPTH)
    second = ordered(vector, "id-ascending").truncated(FIRST_DEPTH)
    fused = Fusion(k=NANO_K).fuse([first, second], depth=HYBRID_DEPTH)
    positives = positives_of(judgements)
    hybrid, safeguards = {}, {}
    for query in fused.query_ids.to_pylist():
        hybrid[query] = fused.ranking(query)
        own = positives.get(query, [])
        if own and {name for name, _ in hybrid[query]}.isdisjoint(own):
            chance = random.Random(f"{SEED}\0{split}\0{query}\0positive_safeguard")
            safeguards[query] = chance.choice(own)
            hybrid[query] += [(safeguards[query], 0.0)]
    config, system = dense
    fusion = f"fusion of {BM25} and {system} by rank (k = {NANO_K})"
    return [
        CandidateList("bm25", first, "bm25", BM25),
        CandidateList("dense", second, config, system),
        CandidateList(
            "reranking_hybrid", Run.from_lists(hybrid), "reranking_hybrid", fusion, safeguards
        ),
    ]


def dense_config(spec: str) -> str:
    """The subset's name: that of the checkpoint, so harrier gives `harrier_oss_v1_270m`."""
    stage = _retriever(spec, Conditions())
    if stage.entry.engine == "bm25":
        raise UsageError(
            f"--dense {spec}: that is no encoder but BM25, which is the other member already. "
            "Give an encoder such as harrier, minilm or wordllama."
        )
    checkpoint = str(stage.entry.fields.get("checkpoint") or spec)
    name = checkpoint.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "dense"


def retrieved(spec: str, task: Task, *, depth: int, conditions: Conditions | None = None) -> Run:
    """The best `depth` documents of every query, by one registered retriever."""
    conditions = conditions or Conditions()
    stage = replace(_retriever(spec, conditions), depth=depth)
    return stage.run(Work(task, Ledger(), run_member, conditions))


def read_candidates(task: Task) -> Iterator[CandidateList]:
    """The candidate subsets that lie beside a task's data, in published order."""
    if not (task.source / "corpus").is_dir():
        return
    roles: dict[str, Role] = {
        config: next((role for role in ROLES if role == config), "dense")
        for config in subset_names(task)
    }
    for config in sorted(roles, key=lambda config: ROLES.index(roles[config])):
        run = find_subset(task, config).read(safeguard=True)
        yield CandidateList(roles[config], run, config)


def _retriever(spec: str, conditions: Conditions) -> Retrieval:
    """The retriever that a text names; anything longer than one first stage is refused."""
    stage = System.from_spec(spec, conditions).stage
    if not isinstance(stage, Retrieval):
        raise UsageError(
            f"{spec!r} is not a single retriever, expected one name such as bm25-nano, minilm or "
            "wordllama; `r2med info systems` lists them."
        )
    return stage
