"""What the embedding store holds, by model: for `r2med cache`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from r2med.home import shelf
from r2med.retrieve.dense.store.shard import SUFFIX, read_blocks
from r2med.retrieve.dense.store.shelf import MODEL_FILE


@dataclass(frozen=True)
class StoredModel:
    """One model's part of the store."""

    name: str
    identity: Mapping[str, object]
    storage: str
    folder: Path
    bytes: int
    shards: int

    def texts(self) -> int:
        """Vectors held, damaged blocks left out; reads the shards' headers."""
        files = self.folder.glob(f"*{SUFFIX}")
        return sum(len(block.addresses) for file in files for block, _ in read_blocks(file, 0))


def stored_models(root: Path | None = None) -> Iterator[StoredModel]:
    """Every model with embeddings under `root`, the home's own shelf unless told otherwise."""
    for file in sorted((root or shelf("embeddings")).glob(f"*/{MODEL_FILE}")):
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            identity, storage, label = told["model"], told["storage"], str(told["label"])
        except (OSError, ValueError, KeyError, TypeError):
            identity, storage, label = {}, "unreadable", file.parent.name
        files = [path for path in file.parent.rglob("*") if path.is_file()]
        yield StoredModel(
            name=label,
            identity=identity,
            storage=storage,
            folder=file.parent,
            bytes=sum(path.stat().st_size for path in files),
            shards=sum(path.suffix == SUFFIX for path in files),
        )
