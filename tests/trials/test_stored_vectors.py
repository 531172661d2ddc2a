"""Bits flipped in every kind of file that models leave behind: named and mended, or no matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from r2med.models.checkpoint import locate
from r2med.models.vectors import Computed, Shelf, open_shelf
from r2med.retrieve.dense.embed import Form
from tests.trials.flipping import flipped_files

TEXTS = [f"text {number}" for number in range(12)]
ADDRESSES = Form().addresses(TEXTS)
VECTORS = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)


def opened(root: Path, told: list[str]) -> Shelf:
    shelf = open_shelf("embeddings", {"a": 1}, root=root, label="m", tell=told.append)
    assert shelf.folder is not None
    return shelf


def filled(shelf: Shelf) -> int:
    """Add what the shelf lacks, three texts at a time, and return how many these were."""
    missing = np.flatnonzero(shelf.find(ADDRESSES) < 0)
    for rows in np.array_split(missing, -(-len(missing) // 3)) if len(missing) else ():
        places = np.arange(len(rows))
        shelf.add(ADDRESSES[rows], Computed(places, VECTORS[rows], places, places > 1))
    shelf.close()
    shelf.refresh()
    return len(missing)


def test_a_bit_flipped_in_a_shard_is_named_and_mended(tmp_path: Path, trials: int) -> None:
    filled(opened(tmp_path, []))
    (shard,) = tmp_path.glob("*/*.vectors")
    lost = 0

    for _ in flipped_files(shard, 20 * trials):
        told: list[str] = []
        shelf = opened(tmp_path, told)
        again = filled(shelf)

        assert (shelf.gather(shelf.find(ADDRESSES)) == VECTORS).all()
        assert again in (0, 3)
        assert len(told) == (again > 0)
        assert all(str(shard) in line for line in told)
        lost += again > 0
        for redone in set(tmp_path.glob("*/*.vectors")) - {shard}:
            redone.unlink()

    assert lost > 5 * trials


def test_a_bit_flipped_beside_the_shards_changes_nothing(tmp_path: Path, trials: int) -> None:
    shelf = opened(tmp_path, [])
    filled(shelf)
    first = ADDRESSES[0].tobytes()
    shelf.remember(first, "[CLS] text 0 [SEP]")

    for name in ("model.json", f"seen/{first.hex()}.json"):
        for _ in flipped_files(next(tmp_path.glob(f"*/{name}")), 20 * trials):
            told: list[str] = []
            again = opened(tmp_path, told)

            assert (again.gather(again.find(ADDRESSES)) == VECTORS).all()
            assert again.seen(first) in (None, "[CLS] text 0 [SEP]")


def test_a_bit_flipped_in_a_remembered_fingerprint_changes_nothing(
    tmp_path: Path, trials: int
) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    fingerprint = locate(str(tmp_path)).fingerprint()
    from r2med.home import shelf

    (memory,) = shelf("embeddings").glob("fingerprints/*.json")
    for _ in flipped_files(memory, 20 * trials):
        assert locate(str(tmp_path)).fingerprint() == fingerprint
