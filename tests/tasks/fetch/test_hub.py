from __future__ import annotations

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r2med.errors import DataError, MissingError
from r2med.tasks.fetch.hub import fetch
from r2med.tasks.fetch.provenance import data_folder, is_present
from r2med.tasks.registry import HubSource, TaskEntry, find_task
from tests.cli.running import ended, start
from tests.hub_server import Hub, running_hub, sha256

COMMIT = "a" * 40
FILES = {
    "corpus.jsonl": b"".join(b'{"id": "%d", "text": "passage"}\n' % i for i in range(1000)),
    "query.jsonl": b'{"id": "1", "text": "question"}\n',
    "qrels.jsonl": b'{"q_id": "1", "p_id": "7", "score": 1}\n',
    "README.md": b"not wanted",
    "hyde/gpt4/query_with_hydoc.jsonl": b"not wanted either",
}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    with running_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        hub.add("R2MED/Biology", COMMIT, FILES)
        yield hub


@pytest.fixture
def entry() -> TaskEntry:
    return replace(find_task("Biology"), hub=HubSource("R2MED/Biology", COMMIT))


def fact(content: bytes) -> dict[str, object]:
    return {"sha256": sha256(content), "bytes": len(content)}


def test_a_task_is_fetched_through_a_redirect_and_only_its_files(
    hub: Hub, entry: TaskEntry
) -> None:
    checked = replace(entry, files={"corpus.jsonl": fact(FILES["corpus.jsonl"])})

    [found] = fetch([checked])

    folder = data_folder(entry)
    assert found.folder == folder and found.files == 3 and found.commit == COMMIT
    assert is_present(entry)
    assert (folder / "corpus.jsonl").read_bytes() == FILES["corpus.jsonl"]
    assert sorted(file.name for file in folder.iterdir()) == [
        "corpus.jsonl",
        "provenance.json",
        "qrels.jsonl",
        "query.jsonl",
    ]
    assert any(seen.path.startswith("/signed/") for seen in hub.seen)


def test_the_provenance_names_repository_commit_and_checksum(hub: Hub, entry: TaskEntry) -> None:
    fetch([entry])

    record = json.loads((data_folder(entry) / "provenance.json").read_text())
    assert record["files"]["qrels.jsonl"] == {
        "source": "hub:R2MED/Biology",
        "sha256": sha256(FILES["qrels.jsonl"]),
        "bytes": len(FILES["qrels.jsonl"]),
        "commit": COMMIT,
    }


def test_the_token_goes_to_the_hub_but_not_to_the_signed_host(hub: Hub, entry: TaskEntry) -> None:
    fetch([entry])

    signed = [seen for seen in hub.seen if seen.path.startswith("/signed/")]
    others = [seen for seen in hub.seen if not seen.path.startswith("/signed/")]
    assert {seen.authorization for seen in signed} == {None}
    assert {seen.authorization for seen in others} == {"Bearer hf_secret"}


def test_a_token_from_anywhere_but_the_environment_is_not_sent(
    hub: Hub, entry: TaskEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "token"
    stored.write_text("hf_stored")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(stored))
    monkeypatch.delenv("HF_TOKEN")

    fetch([entry])

    assert {seen.authorization for seen in hub.seen} == {None}


def test_what_is_here_and_sound_is_not_fetched_again(hub: Hub, entry: TaskEntry) -> None:
    fetch([entry])
    hub.seen.clear()

    [found] = fetch([entry])

    assert found.files == 0 and found.commit == COMMIT
    assert hub.seen == []


def test_fetches_at_the_same_time_download_each_file_once(hub: Hub, entry: TaskEntry) -> None:
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: fetch([entry])[0], range(4)))

    downloads = [seen.path for seen in hub.seen if seen.path.startswith("/signed/")]
    assert sorted(each.files for each in found) == [0, 0, 0, 3]
    assert len(downloads) == len(set(downloads))
    assert is_present(entry)


def test_a_file_damaged_since_is_fetched_again(hub: Hub, entry: TaskEntry) -> None:
    fetch([entry])
    corpus = data_folder(entry) / "corpus.jsonl"
    corpus.write_bytes(corpus.read_bytes()[:-5])

    [found] = fetch([entry])

    assert found.files == 1
    assert corpus.read_bytes() == FILES["corpus.jsonl"]


@pytest.mark.skipif(
    huggingface_hub.__version__.startswith("0."),
    reason="huggingface_hub resumes a cut download from 1.0 on",
)
def test_a_cut_connection_is_resumed_where_it_broke(
    hub: Hub, entry: TaskEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut_after = 20_000

    fetch([entry])

    ranges = [seen.range for seen in hub.seen if seen.path.startswith("/signed/")]
    assert ranges == [None, "bytes=20000-"]
    assert (data_folder(entry) / "corpus.jsonl").read_bytes() == FILES["corpus.jsonl"]


def test_a_wrong_checksum_is_an_error_that_names_file_expected_and_found(
    hub: Hub, entry: TaskEntry
) -> None:
    expected = replace(entry, files={"corpus.jsonl": {"sha256": "0" * 64, "bytes": 1}})

    with pytest.raises(DataError) as error:
        fetch([expected])

    assert "R2MED/Biology, corpus.jsonl" in str(error.value)
    assert sha256(FILES["corpus.jsonl"]) in str(error.value)
    assert "0" * 64 in str(error.value)
    assert not data_folder(entry).exists()


def test_without_a_checksum_in_the_manifest_the_listing_of_the_hub_decides(
    hub: Hub, entry: TaskEntry
) -> None:
    corpus = FILES["corpus.jsonl"]
    hub.altered[sha256(corpus)] = corpus[:-10] + b"tampered!\n"

    with pytest.raises(DataError, match="as in the hub's listing"):
        fetch([entry])

    assert not is_present(entry)


def test_a_failed_fetch_leaves_the_data_that_was_there(hub: Hub, entry: TaskEntry) -> None:
    fetch([entry])
    altered = FILES["corpus.jsonl"].replace(b"passage", b"changed")
    hub.add("R2MED/Biology", COMMIT, {**FILES, "corpus.jsonl": altered})
    pinned = replace(entry, files={"corpus.jsonl": fact(FILES["corpus.jsonl"])})

    with pytest.raises(DataError):
        fetch([pinned], force=True)

    assert (data_folder(entry) / "corpus.jsonl").read_bytes() == FILES["corpus.jsonl"]
    assert fetch([pinned])[0].files == 0


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        ((404, "RepoNotFound"), "HTTP 404, the dataset does not exist or is private."),
        ((401, "RepoNotFound"), "HTTP 401, the dataset does not exist or is private."),
        ((403, "GatedRepo"), "HTTP 403, it is gated"),
        ((401, "GatedRepo"), "HTTP 401, it is gated"),
        ((401, ""), "HTTP 401."),
        ((403, ""), "HTTP 403."),
        ((404, "RevisionNotFound"), f"at {COMMIT}: HTTP 404, the revision does not exist."),
        ((404, ""), "HTTP 404."),
        ((503, ""), "HTTP 503.\nTry again later."),
    ],
)
def test_a_refusal_says_why_and_what_to_do_and_keeps_the_token_to_itself(
    hub: Hub, entry: TaskEntry, refusal: tuple[int, str], told: str
) -> None:
    hub.repositories["R2MED/Biology"].refusal = refusal

    with pytest.raises(MissingError) as error:
        fetch([entry])

    assert told in str(error.value)
    assert "R2MED/Biology" in str(error.value)
    assert ("HF_TOKEN must hold" in str(error.value)) == (refusal[0] != 503)
    assert "hf_secret" not in str(error.value)


def test_a_repository_without_the_expected_files_is_named_with_what_it_holds(
    hub: Hub, entry: TaskEntry
) -> None:
    hub.add("R2MED/Biology", COMMIT, {"README.md": b"", "data.csv": b""})

    with pytest.raises(DataError, match=r"holds no corpus for Biology.*found README.md, data.csv"):
        fetch([entry])


def test_no_network_is_told_with_what_to_do_instead(
    hub: Hub, entry: TaskEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(MissingError) as error:
        fetch([entry])

    assert "The connection to http://127.0.0.1:9 failed" in str(error.value)
    assert "r2med fetch --from" in str(error.value)
    assert "--data-root" in str(error.value)


def test_offline_mode_is_respected(
    hub: Hub, entry: TaskEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    with pytest.raises(MissingError, match="Offline mode is on, so the files of Biology cannot"):
        fetch([entry])

    assert hub.seen == []


def test_offline_is_fine_when_all_is_here(
    hub: Hub, entry: TaskEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch([entry])
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    assert fetch([entry])[0].files == 0


def test_an_unpinned_nano_task_brings_its_split_and_records_the_commit(hub: Hub) -> None:
    configs = ("corpus", "queries", "qrels", "bm25")
    shards = {
        f"{config}/{split}-00000-of-00001.parquet": parquet({"name": [f"{config} {split}"]})
        for config in configs
        for split in ("NanoR2MEDBiology", "NanoR2MEDMedQADiag")
    }
    hub.add("hakari-bench/NanoR2MED", "c" * 40, {**shards, "README.md": b"card"})
    nano = find_task("NanoR2MEDBiology")

    [found] = fetch([nano])

    assert found.commit == "c" * 40 and found.files == 4
    assert is_present(nano)
    assert not is_present(find_task("NanoR2MEDMedQADiag"))

    fetch([find_task("NanoR2MEDMedQADiag")])

    record = json.loads((data_folder(nano) / "provenance.json").read_text())
    assert sorted(record["files"]) == sorted(shards)
    assert {origin["commit"] for origin in record["files"].values()} == {"c" * 40}


def parquet(columns: dict[str, list[str]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


def test_a_full_disk_is_named_as_the_cause_of_a_failed_download(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    source = find_task("Biology").hub
    assert source is not None and source.revision is not None
    hub.add("R2MED/Biology", source.revision, FILES)

    failed = ended(start("fetch", "Biology", largest_file=10_000))

    assert failed.code != 0
    assert "The connection" not in failed.err
    assert str(tmp_path / "home") in failed.err
    assert "Free some space there, or set R2MED_HOME to a folder on another disk." in failed.err
    assert not is_present(find_task("Biology"))
