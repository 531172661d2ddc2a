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
from r2med.models.vectors import Computed, Shelf, open_shelf, stored_models
from r2med.retrieve.dense.embed import Form

IDENTITY = {"library": "test", "checkpoint": "abc"}


def shelf_at(root: Path, told: list[str] | None = None, storage: str = "float32") -> Shelf:
    return open_shelf(
        "embeddings",
        IDENTITY,
        root=root,
        label="test model",
        storage="float16" if storage == "float16" else "float32",
        tell=(told if told is not None else []).append,
    )


def keep(shelf: Shelf, texts: list[str], width: int = 4, start: float = 0.0) -> np.ndarray:
    vectors = (start + np.arange(len(texts) * width, dtype=np.float32)).reshape(-1, width)
    counts = np.arange(len(texts)) + 3
    rows = np.arange(len(texts))
    shelf.add(Form().addresses(texts), Computed(rows, vectors, counts, counts > 3))
    return vectors


def read(shelf: Shelf, texts: list[str]) -> np.ndarray:
    return shelf.gather(shelf.find(Form().addresses(texts)))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.text(max_size=8), min_size=1, max_size=5), max_size=5), st.randoms())
def test_what_is_kept_is_read_back_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], chance: object
) -> None:
    root = tmp_path_factory.mktemp("store")
    writer = shelf_at(root)
    expected: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        for text, row in zip(batch, keep(writer, batch, start=number * 100.0), strict=True):
            expected.setdefault(text, row)
    wanted = sorted(expected, key=lambda text: chance.random())  # type: ignore[attr-defined]

    found = read(shelf_at(root), wanted)

    assert [row.tolist() for row in found] == [expected[text].tolist() for text in wanted]


def test_an_unknown_text_has_no_place(tmp_path: Path) -> None:
    shelf = shelf_at(tmp_path)
    keep(shelf, ["known"])
    shelf.refresh()

    assert shelf.find(Form().addresses(["known", "unknown"])).tolist() == [0, -1]


def test_token_counts_and_truncation_come_back(tmp_path: Path) -> None:
    shelf = shelf_at(tmp_path)
    keep(shelf, ["a", "b"])
    shelf.refresh()

    tokens, truncated = shelf.tokens(shelf.find(Form().addresses(["b", "a"])))

    assert tokens.tolist() == [4, 3]
    assert truncated.tolist() == [True, False]


def test_half_precision_is_rounded_the_same_for_all(tmp_path: Path) -> None:
    shelf = shelf_at(tmp_path, storage="float16")
    one = np.array([1])
    computed = Computed(one - 1, np.array([[0.1]], np.float32), one, one > 1)
    shelf.add(Form().addresses(["a"]), computed)
    shelf.refresh()

    assert read(shelf, ["a"])[0, 0] == np.float32(np.float16(0.1))


def test_vectors_of_two_widths_are_told(tmp_path: Path) -> None:
    shelf = shelf_at(tmp_path)
    keep(shelf, ["a"], width=4)
    keep(shelf, ["b"], width=5)
    shelf.refresh()

    with pytest.raises(DataError, match="vectors of 4 and of 5 numbers by one model"):
        read(shelf, ["a", "b"])


def test_a_form_is_part_of_the_address() -> None:
    plain, told = Form().addresses(["text"]), Form(instruction="Query: ").addresses(["text"])

    assert not (plain == told).all()
    assert (Form(pair=True).addresses(["text"]) != plain).any()
    assert (Form(max_length=5).addresses(["text"]) != plain).any()


@pytest.mark.parametrize("cut", [1, 30, 64, 70, 100, 120])
def test_a_batch_cut_short_is_the_only_one_lost(tmp_path: Path, cut: int) -> None:
    shelf = shelf_at(tmp_path)
    keep(shelf, ["first"])
    whole = next(tmp_path.glob("*/*.vectors")).stat().st_size
    keep(shelf, ["second"])
    file = next(tmp_path.glob("*/*.vectors"))
    os.truncate(file, whole + cut)

    found = shelf_at(tmp_path).find(Form().addresses(["first", "second"]))

    assert (found >= 0).tolist() == [True, False]


def flip(file: Path, byte: int) -> None:
    content = bytearray(file.read_bytes())
    content[byte] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize("byte", [3, 20, 70, 80, 140, 150])
def test_a_flipped_bit_is_found_and_its_texts_are_done_again(tmp_path: Path, byte: int) -> None:
    keep(shelf_at(tmp_path), ["a", "b"])
    flip(next(tmp_path.glob("*/*.vectors")), byte)

    damaged = shelf_at(tmp_path)
    assert damaged.find(Form().addresses(["a", "b"])).tolist() == [-1, -1]

    redone = keep(damaged, ["a", "b"], start=7)
    assert read(shelf_at(tmp_path), ["a", "b"]).tolist() == redone.tolist()


@pytest.mark.parametrize("part", ["header", "addresses", "vectors"])
def test_damage_loses_only_its_block_and_is_told_once_with_its_place(
    tmp_path: Path, part: str
) -> None:
    shelf, texts = shelf_at(tmp_path), ["first", "second", "third"]
    kept = [keep(shelf, [text], start=place)[0] for place, text in enumerate(texts)]
    (file,) = tmp_path.glob("*/*.vectors")
    size = file.stat().st_size // 3
    flip(file, size + {"header": 9, "addresses": 64, "vectors": 128}[part])
    told: list[str] = []

    damaged = shelf_at(tmp_path, told)
    places = damaged.find(Form().addresses(texts))

    assert (places >= 0).tolist() == [True, False, True]
    assert damaged.gather(places[[0, 2]]).tolist() == [kept[0].tolist(), kept[2].tolist()]
    assert len(told) == 1
    assert told[0].startswith(f"{file}, byte {size}: ")
    assert told[0].endswith("embeddings fail their checksum; they are computed again.")
    shelf_at(tmp_path, told).find(Form().addresses(texts))
    assert len(told) == 1


def test_damage_in_a_shard_that_cannot_be_written_is_told_every_time(tmp_path: Path) -> None:
    keep(shelf_at(tmp_path), ["a"])
    (file,) = tmp_path.glob("*/*.vectors")
    flip(file, 9)
    damaged = file.read_bytes()
    told: list[str] = []

    for _ in range(2):
        shelf_at(tmp_path, told).find(Form().addresses(["a"]))
        file.write_bytes(damaged)

    assert len(told) == 2


def test_two_shelves_share_what_each_adds(tmp_path: Path) -> None:
    one, other = shelf_at(tmp_path), shelf_at(tmp_path)
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
from tests.models.test_vectors import keep, shelf_at
shelf = shelf_at(Path(sys.argv[1]))
for number in range(5):
    keep(shelf, [f"text {number}"])
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

    found = shelf_at(tmp_path).find(Form().addresses([f"text {number}" for number in range(5)]))

    assert (found >= 0).all()


def test_a_model_without_identity_leaves_nothing_behind(tmp_path: Path) -> None:
    shelf = open_shelf("embeddings", None, root=tmp_path, label="x", tell=print)
    kept = keep(shelf, ["a", "b"])

    assert read(shelf, ["b", "a"]).tolist() == kept[::-1].tolist()
    assert list(tmp_path.iterdir()) == []


def test_the_catalogue_lists_models_with_their_size(tmp_path: Path) -> None:
    keep(shelf_at(tmp_path), ["a", "b"])

    (model,) = stored_models(tmp_path)

    assert (model.name, model.texts, model.storage) == ("test model", 2, "float32")
    assert model.bytes > 0


def test_a_shelf_whose_record_is_damaged_is_still_found(tmp_path: Path) -> None:
    kept = keep(shelf_at(tmp_path), ["a"])
    (record,) = tmp_path.glob("*/model.json")
    flip(record, 20)

    assert read(shelf_at(tmp_path), ["a"]).tolist() == kept.tolist()
    assert [model.name for model in stored_models(tmp_path)] == ["test model"]
