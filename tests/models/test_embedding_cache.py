"""The embedding store: nothing whole is lost, nothing broken is believed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import DataError
from r2med.models import embedding_cache
from r2med.models.embedding_cache import (
    EmbeddingCache,
    EncodedTexts,
    cached_models,
    open_cache,
)
from r2med.models.encoding import Form

IDENTITY = {"library": "test", "checkpoint": "abc"}


def cache_at(root: Path, told: list[str] | None = None, storage: str = "float32") -> EmbeddingCache:
    return open_cache(
        "embeddings",
        IDENTITY,
        root=root,
        label="test model",
        storage="float16" if storage == "float16" else "float32",
        warn=(told if told is not None else []).append,
    )


def keep(cache: EmbeddingCache, texts: list[str], width: int = 4, start: float = 0.0) -> np.ndarray:
    vectors = (start + np.arange(len(texts) * width, dtype=np.float32)).reshape(-1, width)
    counts = np.arange(len(texts)) + 3
    cache.add(EncodedTexts(Form().addresses(texts), [vectors], counts, counts > 3))
    return vectors


def read(cache: EmbeddingCache, texts: list[str]) -> np.ndarray:
    return cache.vectors(cache.find(Form().addresses(texts)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.text(max_size=8), min_size=1, max_size=5), max_size=5), st.randoms())
def test_what_is_kept_is_read_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], chance: object
) -> None:
    root = tmp_path_factory.mktemp("store")
    writer = cache_at(root)
    expected: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        rows = keep(writer, batch, start=number * 100.0)
        # The newest file wins, and in it the first of equal texts.
        expected |= dict(reversed(list(zip(batch, rows, strict=True))))
    wanted = sorted(expected, key=lambda text: chance.random())  # type: ignore[attr-defined]

    found = read(cache_at(root), wanted)

    assert [row.tolist() for row in found] == [expected[text].tolist() for text in wanted]


def test_an_unknown_text_has_no_place(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    keep(cache, ["known"])
    cache.refresh()

    assert cache.find(Form().addresses(["known", "unknown"])).tolist() == [0, -1]


def test_token_counts_and_truncation_come_back(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    keep(cache, ["a", "b"])
    cache.refresh()

    tokens, truncated = cache.token_counts(cache.find(Form().addresses(["b", "a"])))

    assert tokens.tolist() == [4, 3]
    assert truncated.tolist() == [True, False]


def test_half_precision_is_rounded_the_same_for_all(tmp_path: Path) -> None:
    cache = cache_at(tmp_path, storage="float16")
    one = np.array([1])
    vectors = [np.array([[0.1]], np.float32)]
    cache.add(EncodedTexts(Form().addresses(["a"]), vectors, one, one > 1))
    cache.refresh()

    assert read(cache, ["a"])[0, 0] == np.float32(np.float16(0.1))


def test_vectors_of_two_widths_are_told(tmp_path: Path) -> None:
    cache = cache_at(tmp_path)
    keep(cache, ["a"], width=4)
    keep(cache, ["b"], width=5)
    cache.refresh()

    with pytest.raises(DataError, match="vectors of 4 and of 5 numbers by one model"):
        read(cache, ["a", "b"])


def test_another_schema_of_the_files_is_another_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def folder_of_cache() -> Path | None:
        return open_cache("embeddings", {"model": 1}, "m", pytest.fail, root=tmp_path).folder

    before = folder_of_cache()
    assert folder_of_cache() == before

    monkeypatch.setattr(embedding_cache, "_SCHEMA", embedding_cache._SCHEMA + 1)

    assert folder_of_cache() != before


def test_a_form_is_part_of_the_address() -> None:
    plain, told = Form().addresses(["text"]), Form(instruction="Query: ").addresses(["text"])

    assert not (plain == told).all()
    assert (Form(pair=True).addresses(["text"]) != plain).any()
    assert (Form(max_length=5).addresses(["text"]) != plain).any()


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.99])
def test_a_file_cut_short_is_the_only_one_lost(tmp_path: Path, share: float) -> None:
    keep(cache_at(tmp_path), ["first"])
    before = set(tmp_path.glob("*/*.arrow"))
    keep(cache_at(tmp_path), ["second"])
    (file,) = set(tmp_path.glob("*/*.arrow")) - before
    os.truncate(file, int(file.stat().st_size * share))

    found = cache_at(tmp_path).find(Form().addresses(["first", "second"]))

    assert (found >= 0).tolist() == [True, False]


def flip(file: Path, byte: int) -> None:
    content = bytearray(file.read_bytes())
    content[byte] ^= 4
    file.write_bytes(content)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_a_flipped_bit_is_found_and_its_texts_are_done_again(
    tmp_path_factory: pytest.TempPathFactory, share: float
) -> None:
    root = tmp_path_factory.mktemp("cache")
    kept = keep(cache_at(root), ["a", "b"])
    (file,) = root.glob("*/*.arrow")
    flip(file, int(file.stat().st_size * share))

    damaged = cache_at(root)
    found = damaged.find(Form().addresses(["a", "b"]))

    if (found < 0).any():
        assert (found < 0).all() or not file.exists()
        kept = keep(damaged, ["a", "b"], start=7)
    assert read(cache_at(root), ["a", "b"]).tolist() == kept.tolist()


def test_a_damaged_file_is_deleted_by_its_finder_and_told_once(tmp_path: Path) -> None:
    texts = ["first", "second", "third"]
    files: list[Path] = []
    kept = []
    for number, text in enumerate(texts):
        before = set(tmp_path.glob("*/*.arrow"))
        kept.append(keep(cache_at(tmp_path), [text], start=number)[0])
        files += set(tmp_path.glob("*/*.arrow")) - before
    flip(files[1], files[1].stat().st_size - 40)
    told: list[str] = []

    damaged = cache_at(tmp_path, told)
    indexes = damaged.find(Form().addresses(texts))

    assert (indexes >= 0).tolist() == [True, False, True]
    assert damaged.vectors(indexes[[0, 2]]).tolist() == [kept[0].tolist(), kept[2].tolist()]
    assert told == [f"{files[1]}: the checksum of these embeddings is wrong; recomputing them."]
    assert [file.exists() for file in files] == [True, False, True]
    cache_at(tmp_path, told).find(Form().addresses(texts))
    assert len(told) == 1


def test_a_reader_keeps_what_it_mapped_when_another_process_deletes_the_file(
    tmp_path: Path,
) -> None:
    kept = keep(cache_at(tmp_path), ["a"])
    reader = cache_at(tmp_path)
    indexes = reader.find(Form().addresses(["a"]))
    next(tmp_path.glob("*/*.arrow")).unlink()

    assert reader.vectors(indexes).tolist() == kept.tolist()


def test_vectors_of_several_widths_come_back_one_by_one(tmp_path: Path) -> None:
    texts, counts = ["a", "b", "c"], np.array([1, 2, 3])
    matrices = [np.ones((2, 3), np.float32), np.full((1, 5), 2, np.float32)]
    cache = cache_at(tmp_path)
    cache.add(EncodedTexts(Form().addresses(texts), matrices, counts, counts > 1))
    cache.refresh()

    rows = list(cache.rows(cache.find(Form().addresses(["c", "a"]))))

    assert [row.tolist() for row in rows] == [[2.0] * 5, [1.0] * 3]


def test_two_caches_share_what_each_adds(tmp_path: Path) -> None:
    one, other = cache_at(tmp_path), cache_at(tmp_path)
    keep(one, ["a"])
    kept = keep(other, ["b"], start=50)
    one.refresh()
    other.refresh()

    assert read(one, ["b"]).tolist() == kept.tolist()
    assert (other.find(Form().addresses(["a", "b"])) >= 0).all()


def test_a_killed_writer_loses_nothing_it_finished(tmp_path: Path) -> None:
    code = """
import sys, time
from pathlib import Path
from tests.models.test_embedding_cache import cache_at, keep
cache = cache_at(Path(sys.argv[1]))
for number in range(5):
    keep(cache, [f"text {number}"])
print("written", flush=True)
time.sleep(60)
"""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "src")])
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert writer.stdout is not None
    assert writer.stdout.readline().strip() == b"written"
    writer.send_signal(signal.SIGKILL)
    writer.communicate()

    found = cache_at(tmp_path).find(Form().addresses([f"text {number}" for number in range(5)]))

    assert (found >= 0).all()


def test_a_model_without_identity_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = open_cache("embeddings", None, root=tmp_path, label="x", warn=print)
    kept = keep(cache, ["a", "b"])

    assert read(cache, ["b", "a"]).tolist() == kept[::-1].tolist()
    assert list(tmp_path.iterdir()) == []


def test_the_catalogue_lists_models_with_their_size(tmp_path: Path) -> None:
    keep(cache_at(tmp_path), ["a", "b"])

    (model,) = cached_models(tmp_path)

    assert (model.name, model.texts, model.storage) == ("test model", 2, "float32")
    assert model.bytes > 0


def test_a_cache_whose_record_is_damaged_is_still_found(tmp_path: Path) -> None:
    kept = keep(cache_at(tmp_path), ["a"])
    (record,) = tmp_path.glob("*/model.json")
    flip(record, 20)

    assert read(cache_at(tmp_path), ["a"]).tolist() == kept.tolist()
    assert [model.name for model in cached_models(tmp_path)] == ["test model"]
