"""Bits flipped in every kind of file that models leave behind: named and mended, or no matter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from r2med.models.checkpoint import locate
from r2med.models.embedding_cache import EmbeddingCache, EncodedTexts, open_cache
from r2med.models.encoding import Form
from tests.trials.flipping import flipped_files

TEXTS = [f"text {number}" for number in range(12)]
ADDRESSES = Form().addresses(TEXTS)
VECTORS = np.random.default_rng(0).standard_normal((12, 3)).astype(np.float32)


def opened(root: Path, told: list[str]) -> EmbeddingCache:
    shelf = open_cache("embeddings", {"a": 1}, root=root, label="m", warn=told.append)
    assert shelf.folder is not None
    return shelf


def filled(shelf: EmbeddingCache) -> int:
    """Add what the shelf lacks, three texts at a time, and return how many these were."""
    missing = np.flatnonzero(shelf.find(ADDRESSES) < 0)
    for rows in np.array_split(missing, -(-len(missing) // 3)) if len(missing) else ():
        places = np.arange(len(rows))
        shelf.add(EncodedTexts(ADDRESSES[rows], [VECTORS[rows]], places, places > 1))
    shelf.refresh()
    return len(missing)


def test_a_bit_flipped_in_a_file_is_named_and_its_texts_are_done_again(
    tmp_path: Path, trials: int
) -> None:
    filled(opened(tmp_path, []))
    files = set(tmp_path.glob("*/*.arrow"))
    chosen = min(files)
    content, lost = chosen.read_bytes(), 0

    for _ in flipped_files(chosen, 20 * trials):
        told: list[str] = []
        cache = opened(tmp_path, told)
        again = filled(cache)

        assert (cache.vectors(cache.find(ADDRESSES)) == VECTORS).all()
        assert again in (0, 3)
        assert len(told) <= 1 and all(str(chosen) in line for line in told)
        lost += again > 0
        for redone in set(tmp_path.glob("*/*.arrow")) - files:
            redone.unlink()
        chosen.write_bytes(content)

    assert lost > 5 * trials


def test_a_bit_flipped_beside_the_shards_changes_nothing(tmp_path: Path, trials: int) -> None:
    shelf = opened(tmp_path, [])
    filled(shelf)
    first = ADDRESSES[0].tobytes()
    shelf.remember_input(first, "[CLS] text 0 [SEP]")

    for name in ("model.json", f"seen/{first.hex()}.json"):
        for _ in flipped_files(next(tmp_path.glob(f"*/{name}")), 20 * trials):
            told: list[str] = []
            again = opened(tmp_path, told)

            assert (again.vectors(again.find(ADDRESSES)) == VECTORS).all()
            assert again.model_input(first) in (None, "[CLS] text 0 [SEP]")


def test_a_bit_flipped_in_a_remembered_fingerprint_changes_nothing(
    tmp_path: Path, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r2med.models.checkpoint._SETTLED_NS", 0)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    fingerprint = locate(str(tmp_path)).fingerprint()
    from r2med.paths import cache_folder

    (memory,) = cache_folder("embeddings").glob("fingerprints/*.json")
    for _ in flipped_files(memory, 20 * trials):
        assert locate(str(tmp_path)).fingerprint() == fingerprint
