"""Training texts that mean the same in other words, for an encoder: the weakest evidence.

Both sides are encoded as documents without instructions, so that equal texts have a cosine of 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from r2med.audit.evaluation import Evaluation
from r2med.audit.exclusions import words
from r2med.audit.files import TrainingFile, pieces
from r2med.audit.matching import SHORTEST
from r2med.audit.reading import Reading, Text, rows
from r2med.audit.scanning import Hit, Scan, head
from r2med.errors import DataError, UsageError
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import unit
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.systems.build import System
from r2med.systems.stages import Retrieval
from r2med.tasks.task import Task

#: Cosine from which two texts are neighbours, unless chosen otherwise.
THRESHOLD = 0.9
_BATCH = 4096


def add_neighbours(
    found: Scan,
    files: Sequence[TrainingFile],
    wanted: Evaluation,
    task: Task,
    encoder: str,
    *,
    threshold: float = THRESHOLD,
    fields: Sequence[str] = (),
    conditions: Conditions,
) -> None:
    """Add to a scan the training texts near an evaluation text that no word match explains.

    Vectors are kept, so an interrupted run encodes nothing twice. `task` only says how texts are
    put to the encoder.
    """
    retriever = _retriever(encoder, conditions)
    entries = [n for n, text in enumerate(wanted.texts) if len(words(text)) >= SHORTEST]
    if not entries:
        return

    def vectors(texts: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
        encoded = retriever.encode(task, "document", texts, instructed=False)
        return unit(encoded.matrix())

    own = vectors([wanted.texts[entry] for entry in entries])
    known = {(hit.file, hit.row, hit.entry) for hit in found.hits}
    for file, batch in _batches(files, fields):
        cosines = vectors([text.text for _, text in batch]) @ own.T
        for place, column in zip(*np.nonzero(cosines >= threshold), strict=True):
            number, text = batch[place]
            entry = entries[column]
            if (file.name, number, entry) not in known:
                cosine = {"cosine": round(float(cosines[place, column]), 4)}
                found.hits.append(
                    Hit(
                        file.name,
                        number,
                        text.field,
                        text.role,
                        entry,
                        "neighbour",
                        head(text.text),
                        cosine,
                    )
                )


def _retriever(encoder: str, conditions: Conditions) -> DenseRetriever:
    stage = System.from_spec(encoder, conditions).stage
    if not isinstance(stage, Retrieval) or not isinstance(stage.retriever, DenseRetriever):
        raise UsageError(f"--neighbours {encoder!r} is not an encoder; try minilm or wordllama.")
    return stage.retriever


def _batches(
    files: Sequence[TrainingFile], fields: Sequence[str]
) -> Iterator[tuple[TrainingFile, list[tuple[int, Text]]]]:
    """Texts of at least eight words, with the numbers of their rows."""
    for file in files:
        batch: list[tuple[int, Text]] = []
        try:
            for piece in pieces(file):
                for row in rows(piece, Reading(), fields):
                    for text in row.texts:
                        if len(words(text.text)) >= SHORTEST:
                            batch.append((row.number, text))
                    if len(batch) >= _BATCH:
                        yield file, batch
                        batch = []
        except DataError:
            pass  # the scan has named the file
        if batch:
            yield file, batch
