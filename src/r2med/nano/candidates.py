"""The three candidate subsets of a Nano task, exactly as published, and adding them to a folder."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.errors import MissingError, UsageError
from r2med.measure.ordering import ordered
from r2med.nano.building import finish_folder
from r2med.nano.folder import configs_of, write_candidates
from r2med.nano.retrieval import retrieved, retriever_stage
from r2med.nano.safeguard import safeguards, with_safeguards
from r2med.nano.staging import read_record, staged
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.fusion import NANO_K, reciprocal_rank_fusion
from r2med.runs import Run
from r2med.tasks.load import load_task
from r2med.tasks.task import Judgements, Task

FIRST_DEPTH = 500
HYBRID_DEPTH = 100
BM25 = "bm25-nano"
DEFAULT_DENSE = "harrier"
#: Looked at beyond the depth, so that equal scores at its edge are cut by id as published.
_EDGE = 100


@dataclass(frozen=True, eq=False)
class Candidates:
    """The lists of one task; the hybrid's stop at 100, the safeguards stand apart."""

    dense_config: str
    dense_system: str
    bm25: Run
    dense: Run
    hybrid: Run
    safeguards: Mapping[str, str]

    @property
    def guarded(self) -> Run:
        """The hybrid lists as published, with the safeguards at rank 101."""
        return with_safeguards(self.hybrid, self.safeguards)


def dense_config(spec: str) -> str:
    """The subset's name: that of the checkpoint, so harrier gives `harrier_oss_v1_270m`."""
    stage = retriever_stage(spec)
    if stage.entry.engine == "bm25":
        raise UsageError(
            f"--dense {spec}: that is no encoder but BM25, which is the other member already. "
            "Give an encoder such as harrier, minilm or wordllama."
        )
    checkpoint = str(stage.entry.fields.get("checkpoint") or spec)
    name = checkpoint.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "dense"


def make_candidates(
    task: Task, dense: str = DEFAULT_DENSE, *, split: str, conditions: Conditions | None = None
) -> Candidates:
    """Rank the pool by BM25 and an encoder, fuse, and choose the safeguards."""
    config = dense_config(dense)
    lexical = retrieved(BM25, task, depth=FIRST_DEPTH, conditions=conditions)
    vector = retrieved(dense, task, depth=FIRST_DEPTH + _EDGE, conditions=conditions)
    return combined(lexical, vector, task.judgements, split=split, dense=(config, dense))


def combined(
    lexical: Run, vector: Run, judgements: Judgements, *, split: str, dense: tuple[str, str]
) -> Candidates:
    """The subsets of two rankings; equal scores of the vector one are ordered by id.

    `dense` is the name of the subset and the system that ranked it.
    """
    first = lexical.truncated(FIRST_DEPTH)
    second = ordered(vector, "id-ascending").truncated(FIRST_DEPTH)
    hybrid = reciprocal_rank_fusion([first, second], k=NANO_K, depth=HYBRID_DEPTH)
    chosen = safeguards(hybrid, judgements, split=split)
    return Candidates(*dense, first, second, hybrid, chosen)


def add_candidates(
    folder: str | Path,
    dense: str = DEFAULT_DENSE,
    *,
    force: bool = False,
    conditions: Conditions | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> dict[str, Candidates]:
    """Give every task of a Nano folder its three subsets; all of them appear, or none."""
    target = Path(folder)
    record = read_record(target)
    splits = _splits(target, record)
    config = dense_config(dense)
    if record["candidates"] and not force:
        raise UsageError(
            f"{target} has candidates already, and nothing was touched.\n--force replaces them."
        )
    made = {}
    for split in splits:
        task = load_task(f"{target.resolve()}#{split}")
        tell(f"{split}: ranking {len(task.corpus):,} documents by {BM25} and {dense}")
        made[split] = make_candidates(task, dense, split=split, conditions=conditions)
    with staged(target) as draft:
        _copy(target, draft, record)
        for split, found in made.items():
            write_candidates(found.bm25, draft, "bm25", split)
            write_candidates(found.dense, draft, config, split)
            write_candidates(found.guarded, draft, "reranking_hybrid", split)
        told = {split: _told(found) for split, found in made.items()}
        finish_folder(draft, record["tasks"], told)
    return made


def _splits(target: Path, record: Mapping[str, Any]) -> list[str]:
    if not record["tasks"]:
        raise MissingError(
            f"{target} is not a folder that `r2med nano build` made: it has no nano.json.\n"
            "Build one first: r2med nano build TASK --out DIR."
        )
    splits = configs_of(record["files"]).get("corpus", [])
    if not splits:
        raise MissingError(
            f"{target} holds the R2MED layout only, which has no place for candidates.\n"
            "Build it with --layout both or --layout hub."
        )
    return splits


def _copy(target: Path, draft: Path, record: Mapping[str, Any]) -> None:
    """What the folder holds apart from candidates, so that the new record covers all of it."""
    kept = ("corpus/", "queries/", "qrels/", "r2med/")
    for path in record["files"]:
        if path.startswith(kept):
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target / path, draft / path)


def _told(found: Candidates) -> dict[str, object]:
    return {
        "bm25": {"system": BM25, "depth": FIRST_DEPTH},
        "dense": {"config": found.dense_config, "system": found.dense_system, "depth": FIRST_DEPTH},
        "reranking_hybrid": {
            "k": NANO_K,
            "depth": HYBRID_DEPTH,
            "safeguards": len(found.safeguards),
        },
    }
