"""From an entry's fields to a dense retriever."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import cast

from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.checkpoint import locate
from r2med.retrieve.dense.encoder import Encoder
from r2med.retrieve.dense.form import Form, Side
from r2med.retrieve.dense.index import Search
from r2med.retrieve.dense.retriever import DenseRetriever
from r2med.retrieve.dense.settings import Settings
from r2med.retrieve.dense.wording import wording_of
from r2med.tasks.task import Task

Maker = Callable[[str, Settings, Conditions], Encoder]

#: Which module makes the encoders of a library; each has `build(checkpoint, settings, conditions)`.
_LIBRARIES: Mapping[str, str] = {
    "static": "r2med.retrieve.dense.static",
    "transformers": "r2med.retrieve.dense.transformer",
    "sentence-transformers": "r2med.retrieve.dense.transformer",
    "auto": "r2med.retrieve.dense.transformer",
    "method": "r2med.retrieve.dense.method",
}

#: Settings that show in a result's identity because they word what the model sees.
_TOLD = (
    "query_instruction",
    "document_instruction",
    "query_prompt",
    "document_prompt",
    "kind",
    "purpose",
    "max_length",
    "query_max_length",
    "document_max_length",
    "document_pair",
)


def build(fields: Mapping[str, object], conditions: Conditions) -> DenseRetriever:
    """A retriever as its entry describes it; nothing is located or loaded yet."""
    settings = Settings.read(fields)
    query, document = settings.checkpoints()
    told = asdict(settings)
    return DenseRetriever(
        name=query if query == document else f"{query} and {document}",
        make=lambda: _encoders(settings, conditions),
        form=lambda task, side: form_of(settings, task, side),
        told={key: told[key] for key in _TOLD},
        search=Search(settings.similarity, settings.dimensions),
        storage=settings.storage,
        instruct_generated=settings.generated == "query",
        conditions=conditions,
    )


def _encoders(settings: Settings, conditions: Conditions) -> tuple[Encoder, Encoder]:
    module = importlib.import_module(_LIBRARIES[settings.library])
    make = cast("Maker", module.build)
    query, document = settings.checkpoints()
    encoder = make(document, settings, conditions)
    return (encoder if query == document else make(query, settings, conditions)), encoder


def form_of(settings: Settings, task: Task, side: Side) -> Form:
    """How the texts of one side of a task are put to the model."""
    wording = wording_of(task, kind=settings.kind, purpose=settings.purpose)
    query = side == "query"
    template = settings.query_instruction if query else settings.document_instruction
    prompt = settings.query_prompt if query else settings.document_prompt
    if prompt:
        checkpoint = settings.checkpoints()[0 if query else 1]
        template = _prompt(checkpoint, settings.revision, prompt)
    length = settings.query_max_length if query else settings.document_max_length
    return Form(
        instruction=wording.apply(template),
        max_length=length or settings.max_length,
        pair=settings.document_pair and not query,
    )


def _prompt(checkpoint: str, revision: str, name: str) -> str:
    from r2med.errors import UsageError, nearest

    found = locate(checkpoint, revision=revision)
    prompts = (found.json("config_sentence_transformers.json") or {}).get("prompts") or {}
    if name not in prompts:
        raise UsageError(
            f"{checkpoint} carries no prompt {name!r}. "
            + (nearest(name, prompts) if prompts else "It carries none at all.")
        )
    return str(prompts[name])
