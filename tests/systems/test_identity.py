"""Every option of every registered name changes the identity of what it builds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from r2med.retrieve.dense.milvus import SETTINGS
from r2med.settings import settings_identity
from r2med.systems.build import System, read_settings
from r2med.systems.registry import Entry, entries
from r2med.tasks.load import load_task

#: Settings that never change a ranking, by backend.
WITHOUT_EFFECT: dict[str, set[str]] = {
    "api": {
        "key_env",
        "encoding_format",
        "most_texts",
        "most_tokens",
        "price",
    }
}
#: Settings that name files or a model; what is found there enters the identity instead.
BY_CONTENT = {
    "run": {"path"},
    "api": {"url"},
    "dense": {"checkpoint", "query_checkpoint", "document_checkpoint", "revision", *SETTINGS},
    "sparse": {"checkpoint", "revision"},
    "late": {"checkpoint", "revision"},
    "custom": {"target"},
    "cross-encoder": {"checkpoint", "base"},
    "yes-no": {"checkpoint", "base"},
    "own-code": {"checkpoint"},
    "own": {"target"},
    "expand": {"llm", "generations"},
    "listwise": {"llm"},
    "pointwise": {"llm"},
    "verdict": {"llm"},
    "setwise": {"llm"},
    "groupwise": {"llm"},
}
#: Where an entry says nothing because its argument must.
ARGUMENTS: dict[str, object] = {
    "path": "x.trec",
    "name": "bm25",
    "llm": "gpt4",
    "model": "m",
    "checkpoint": "org/model",
    "target": "module:Class",
}


def filled(entry: Entry) -> Entry:
    fields = dict(entry.fields)
    if entry.argument and not fields[entry.argument]:
        fields[entry.argument] = ARGUMENTS[entry.argument]
    return dataclasses.replace(entry, fields=fields)


def other(value: object, hint: Any, choices: tuple[str, ...]) -> object:
    """Another value that the setting could have."""
    words = choices or (get_args(hint) if get_origin(hint) is Literal else ())
    if words:
        return next(word for word in words if word != value)
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return value / 2 + 0.1
    if isinstance(value, int):
        return value + 1
    if isinstance(value, tuple):
        return (*value, value[-1] if value else 1.0)
    return 7 if int in get_args(hint) else f"{value}x"


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_every_option_changes_the_identity(entry: Entry) -> None:
    settings: Any = read_settings(filled(entry))
    hints = get_type_hints(type(settings))
    unchanged = set()
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        changed = other(value, hints[field.name], field.metadata.get("choices", ()))
        if settings_identity(
            dataclasses.replace(settings, **{field.name: changed})
        ) == settings_identity(settings):
            unchanged.add(field.name)

    backend = entry.backend
    assert unchanged == WITHOUT_EFFECT.get(backend, set()) | BY_CONTENT.get(backend, set())


@pytest.mark.parametrize("entry", entries().values(), ids=lambda entry: entry.name)
def test_every_field_of_an_entry_is_a_setting_of_its_engine(entry: Entry) -> None:
    settings: Any = read_settings(filled(entry))

    assert set(entry.fields) <= {field.name for field in dataclasses.fields(settings)}


class Reranker:
    identity = "same"

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [0.0 for _ in pairs]


@pytest.mark.extra("light")
@pytest.mark.parametrize(
    ("one", "other_text"),
    [
        ("bm25", "bm25[k1=1.2]"),
        ("bm25", "bm25[unmatched=drop]"),
        ("bm25", "bm25@50"),
        ("wordllama", "wordllama[similarity=dot]"),
        ("wordllama", "wordllama[generated=query]"),
        ("wordllama", "wordllama[index=milvus:x.db]"),
        ("wordllama[index=milvus:x.db]", "wordllama[index=milvus:x.db,index_kind=hnsw]"),
        (
            "wordllama[index=milvus:x.db,index_kind=hnsw,ef=1100]",
            "wordllama[index=milvus:x.db,index_kind=hnsw,ef=1200]",
        ),
        (
            "wordllama[index=milvus:x.db,index_kind=ivf_flat]",
            "wordllama[index=milvus:x.db,index_kind=ivf_flat,nlist=64]",
        ),
        ("wordllama[index=milvus:x.db]", "wordllama[index=milvus:http://x:19530]"),
        ("run:RUN", "run:RUN[repeats=first]"),
        ("run:RUN", "run:RUN@1"),
        ("bm25 + bm25-nano", "bm25 + bm25-nano | rrf[k=7]"),
        ("bm25 + bm25-nano", "bm25 + bm25-nano | minmax"),
        ("bm25 + bm25-nano", "bm25 + bm25-nano | rrf[weights=1:2]"),
        ("hyde:x[generations=FILE] | bm25", "hyde:x[generations=FILE,lexical='{query}'] | bm25"),
        ("hyde:x[generations=FILE] | bm25", "query2doc:x[generations=FILE] | bm25"),
        ("bm25 | mine@5", "bm25 | mine@6"),
        ("bm25 | mine@5", "bm25 | mine[tail=drop]@5"),
    ],
)
def test_systems_that_rank_differently_have_different_keys(
    one: str, other_text: str, tmp_path: Path
) -> None:
    task = load_task("demo/biology")
    (tmp_path / "run.trec").write_text("1 Q0 d1 1 1.0 x\n")
    (tmp_path / "g.jsonl").write_text('{"id": "1", "hy_doc": "a"}\n')
    identities = []
    for text in (one, other_text):
        spec = text.replace("RUN", str(tmp_path / "run.trec")).replace("'", '"')
        spec = spec.replace("FILE", str(tmp_path / "g.jsonl"))
        system = System.from_spec(spec, models={"mine": Reranker()})
        identities.append(system.stage.identity(task))

    assert identities[0] != identities[1]
