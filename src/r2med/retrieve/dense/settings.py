"""A dense encoder's entry as typed values, and how it puts a task's texts to the model."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from r2med.errors import UsageError, nearest
from r2med.models.checkpoint import locate
from r2med.retrieve.dense.embed import Form, Side
from r2med.settings import setting
from r2med.tasks.task import Task

Similarity = Literal["cosine", "dot"]
Storage = Literal["float32", "float16"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class Settings:
    """All that an entry of the dense engine may say; encoders.toml documents each field."""

    library: Literal["auto", "transformers", "sentence-transformers", "method", "static"]
    pooling: Literal["model", "cls", "mean", "last"]
    pool_instruction: bool
    attention: Literal["model", "bidirectional"]
    normalize: bool
    append_eos: bool
    document_pair: bool
    query_instruction: str
    document_instruction: str
    query_prompt: str
    document_prompt: str
    generated: Literal["plain", "query"]
    kind: str
    purpose: str
    dtype: Precision
    autocast: bool
    similarity: Similarity
    storage: Storage
    checkpoint: str = setting(identity="content")
    query_checkpoint: str = setting(identity="content")
    document_checkpoint: str = setting(identity="content")
    revision: str = setting(identity="content")
    max_length: int = setting(least=0)
    query_max_length: int = setting(least=0)
    document_max_length: int = setting(least=0)
    dimensions: int = setting(least=0)
    index: str = setting(identity="content")
    index_kind: Literal["flat", "hnsw", "ivf_flat"] = setting(identity="content")
    m: int = setting(least=0, identity="content")
    ef_construction: int = setting(least=0, identity="content")
    ef: int = setting(least=0, identity="content")
    nlist: int = setting(least=0, identity="content")
    nprobe: int = setting(least=0, identity="content")

    def checkpoints(self) -> tuple[str, str]:
        """Of the query and the document side."""
        query = self.query_checkpoint or self.checkpoint
        document = self.document_checkpoint or self.checkpoint
        if not query or not document:
            raise UsageError(
                "no checkpoint is given. Name one as in dense:PATH_OR_HUB_NAME, or with "
                "[checkpoint=...]."
            )
        return query, document

    def refuse_without_effect(self, encoder: str, fixed: Mapping[str, tuple[object, ...]]) -> None:
        """A UsageError for a setting that an encoder cannot follow; `fixed` says what it has."""
        for name, possible in fixed.items():
            value = getattr(self, name)
            if value not in possible:
                had = " or ".join(f"{name}={_written(one)}" for one in possible)
                raise UsageError(
                    f"{name}={_written(value)} has no effect on {encoder}, which has {had}."
                )

    def form(self, task: Task, side: Side) -> Form:
        """How the texts of one side of a task are put to the model."""
        query = side == "query"
        template = self.query_instruction if query else self.document_instruction
        if prompt := self.query_prompt if query else self.document_prompt:
            template = _prompt(self.checkpoints()[0 if query else 1], self.revision, prompt)
        length = self.query_max_length if query else self.document_max_length
        return Form(
            instruction=worded(template, task, kind=self.kind, purpose=self.purpose),
            max_length=length or self.max_length,
            pair=self.document_pair and not query,
        )


def worded(template: str, task: Task, *, kind: str = "", purpose: str = "") -> str:
    """An instruction in a task's own words; braces that are no placeholder stay as they are.

    `{kind}` and `{purpose}` are the task's registered words unless others are given, `{goal}` and
    `{passage}` those that belong to them; data of the user's own has the first row of wording.toml.
    """
    rows = _wordings()
    kind = kind or (task.entry.kind if task.entry else rows[0]["kind"])
    purpose = purpose or (task.entry.purpose if task.entry else rows[0]["purpose"])
    alike = [row for row in rows if row["purpose"] == purpose]
    best = next((row for row in alike if row["kind"] == kind), (alike or rows)[0])
    words = {"kind": kind, "purpose": purpose, "goal": best["goal"], "passage": best["passage"]}
    for name, word in words.items():
        template = template.replace("{" + name + "}", word)
    return template


@cache
def _wordings() -> tuple[Mapping[str, str], ...]:
    text = (files("r2med.retrieve.dense") / "wording.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["wording"])


def _prompt(checkpoint: str, revision: str, name: str) -> str:
    """The text of a prompt that a sentence-transformers checkpoint carries."""
    config = locate(checkpoint, revision=revision).json("config_sentence_transformers.json") or {}
    prompts = config.get("prompts") or {}
    if name not in prompts:
        raise UsageError(
            f"{checkpoint} carries no prompt {name!r}. "
            + (nearest(name, prompts) if prompts else "It carries none at all.")
        )
    return str(prompts[name])


def _written(value: object) -> str:
    """As an option has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
