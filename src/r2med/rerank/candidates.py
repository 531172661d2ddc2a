"""From a first stage's run to texts: each query with the documents to be put in order."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.rerank.interface import Candidates
from r2med.runs import Run
from r2med.tasks.task import Task


def candidate_lists(run: Run, task: Task) -> list[Candidates]:
    """The lists of a run with their texts: the original query, and an id's last row.

    A text is one Python string however many lists hold it.
    """
    used, inside = np.unique(run.documents, return_inverse=True)
    ids = run.document_ids.take(pa.array(used))
    places = pc.index_in(ids, value_set=task.corpus.document_ids)
    rows = task.corpus.last_rows[places.to_numpy(zero_copy_only=False)]
    names = ids.to_pylist()
    texts = task.corpus.texts.take(pa.array(rows)).to_pylist()
    queries = dict(zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True))
    lists = []
    for row, query_id in enumerate(run.query_ids.to_pylist()):
        listed = inside[run.offsets[row] : run.offsets[row + 1]].tolist()
        lists.append(
            Candidates(
                query_id=query_id,
                query=queries[query_id],
                document_ids=[names[place] for place in listed],
                documents=[texts[place] for place in listed],
            )
        )
    return lists
