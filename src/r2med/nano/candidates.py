"""The three candidate lists of a Nano task, as published: computed or read from files.


BM25 and an encoder retrieve 500 documents each, and their fusion is cut at 100. *Safeguard:* if
these 100 contain no positive, one is appended at rank 101, so that a reranker can find one. This
leaks an answer, so systems are also scored without the safeguard.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from r2med.errors import UsageError
from r2med.execution.resources import Resources
from r2med.nano.pool import SEED
from r2med.retrieve.fusion import NANO_K, Fusion
from r2med.retrieve.run_files import find_subset, split_of, subset_names
from r2med.runs import Run
from r2med.runs.run import sort_lists
from r2med.systems.build import System
from r2med.systems.output import StageContext, run_member
from r2med.systems.stages import Retrieval
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
    """The candidate lists of one role, and their source."""

    role: Role
    run: Run
    """The candidate lists; those of the hybrid include the safeguards."""
    config: str
    """The name of the subset."""
    system: str | None = None
    """A description of the ranking that produced them; None for published lists."""
    safeguards: Mapping[str, str] = field(default_factory=dict)
    """For a hybrid made here: the positive appended for each query whose 100 candidates contain
    none."""


def make_candidates(
    task: Task, dense: str = DEFAULT_DENSE, *, resources: Resources | None = None
) -> list[CandidateList]:
    """Rank the pool with BM25 and an encoder, fuse the runs, and choose the safeguards."""
    config = dense_config(dense)
    lexical = run_retriever(BM25, task, depth=FIRST_DEPTH, resources=resources)
    vector = run_retriever(dense, task, depth=FIRST_DEPTH + _EDGE, resources=resources)
    return combine_candidates(
        lexical, vector, task.judgements, split=split_of(task), dense=(config, dense)
    )


def combine_candidates(
    lexical: Run, vector: Run, judgements: Judgements, *, split: str, dense: tuple[str, str]
) -> list[CandidateList]:
    """Return three candidate lists: the two rankings, cut off, and their fusion.

    Equal scores of `vector` are ordered by id. `dense` is the name of the dense subset and the
    system that ranked it.
    """
    first = lexical.truncate(FIRST_DEPTH)
    second = sort_lists(vector, "id-ascending").truncate(FIRST_DEPTH)
    fused = Fusion(k=NANO_K).fuse([first, second], depth=HYBRID_DEPTH)
    positives = positives_of(judgements)
    hybrid, safeguards = {}, {}
    for query in fused.query_ids.to_pylist():
        hybrid[query] = fused.ranking(query)
        query_positives = positives.get(query, [])
        if query_positives and {name for name, _ in hybrid[query]}.isdisjoint(query_positives):
            chance = random.Random(f"{SEED}\0{split}\0{query}\0positive_safeguard")
            safeguards[query] = chance.choice(query_positives)
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
    """Return the name of the dense subset: harrier's checkpoint gives `harrier_oss_v1_270m`."""
    stage = _retriever(spec, Resources())
    if stage.entry.backend == "bm25":
        raise UsageError(
            f"--dense {spec}: this is BM25, which is one of the two members already. "
            "Give an encoder such as harrier, minilm or wordllama."
        )
    checkpoint = str(stage.entry.fields.get("checkpoint") or spec)
    name = checkpoint.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "dense"


def run_retriever(spec: str, task: Task, *, depth: int, resources: Resources | None = None) -> Run:
    """Return the best `depth` documents of every query by one registered retriever."""
    resources = resources or Resources()
    stage = replace(_retriever(spec, resources), depth=depth)
    return stage.run(StageContext(task, run_member, resources.warn)).run


def read_candidates(task: Task) -> Iterator[CandidateList]:
    """Return the candidate subsets in a task's data folder, in published order."""
    if not (task.source / "corpus").is_dir():
        return
    roles: dict[str, Role] = {
        config: next((role for role in ROLES if role == config), "dense")
        for config in subset_names(task)
    }
    for config in sorted(roles, key=lambda config: ROLES.index(roles[config])):
        run = find_subset(task, config).read(safeguard=True)
        yield CandidateList(roles[config], run, config)


def _retriever(spec: str, resources: Resources) -> Retrieval:
    """Return the retriever of a spec; raise UsageError if the spec is not a single retriever."""
    stage = System.from_spec(spec, resources).stage
    if not isinstance(stage, Retrieval):
        raise UsageError(
            f"{spec!r} is not a single retriever, expected one name such as bm25-nano, minilm or "
            "wordllama; `r2med info systems` lists them."
        )
    return stage
