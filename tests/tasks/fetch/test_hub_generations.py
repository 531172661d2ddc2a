from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import pytest

from r2med.errors import DataError, MissingError, UsageError
from r2med.tasks.fetch.hub import fetch
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.registry import HubSource, TaskEntry, find_task
from tests.hub_server import Hub, running_hub

COMMIT = "b" * 40
GPT4 = "hyde/gpt4/query_with_hydoc.jsonl"
QWEN = "query2doc/qwen-72b/query_with_hydoc.jsonl"
FILES = {
    GPT4: b'{"id": "1", "text": "question", "hy_doc": "passage"}\n' * 40,
    QWEN: b'{"id": "1", "text": "question", "hy_doc": "other"}\n',
    "corpus.jsonl": b"not asked for",
    "notes/hyde/gpt4/query_with_hydoc.jsonl": b"too deep",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.add("R2MED/Biology", COMMIT, FILES)
        yield hub


@pytest.fixture
def entry() -> TaskEntry:
    return replace(find_task("Biology"), hub=HubSource("R2MED/Biology", COMMIT))


def test_generations_arrive_in_the_reference_layout_and_nothing_else_does(
    hub: Hub, entry: TaskEntry
) -> None:
    [found] = fetch([entry], generations=True)

    folder = data_folder(entry)
    assert found.files == 2
    assert (folder / GPT4).read_bytes() == FILES[GPT4]
    assert (folder / QWEN).read_bytes() == FILES[QWEN]
    assert not (folder / "corpus.jsonl").exists()


def test_what_is_here_and_sound_is_not_fetched_again(hub: Hub, entry: TaskEntry) -> None:
    fetch([entry], generations=True)
    (data_folder(entry) / QWEN).write_bytes(b"damaged")

    [again] = fetch([entry], generations=True)

    assert again.files == 1
    assert (data_folder(entry) / QWEN).read_bytes() == FILES[QWEN]


def test_a_repository_without_generations_says_what_it_holds(hub: Hub, entry: TaskEntry) -> None:
    hub.add("R2MED/Biology", COMMIT, {"corpus.jsonl": b"x"})

    with pytest.raises(DataError, match=r"no generations for Biology.*found corpus\.jsonl"):
        fetch([entry], generations=True)


def test_offline_nothing_is_asked(
    hub: Hub, entry: TaskEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(MissingError, match="Offline mode is on"):
        fetch([entry], generations=True)

    assert not hub.seen


def test_the_demo_suite_has_no_published_generations() -> None:
    with pytest.raises(UsageError, match="demo/biology has no published generations"):
        fetch([find_task("demo/biology")], generations=True)
