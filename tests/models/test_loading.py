"""Checkpoints that cannot be loaded, and devices that are not there, are told in one message."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.execution.options import RunOptions
from r2med.models.checkpoint import LocalModel, choose_device, locate
from tests.retrieve.checkpoints import save_model

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("bert"), "bert")


@pytest.fixture
def bert(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "bert"))


def local(folder: Path) -> LocalModel:
    return LocalModel(locate(str(folder)), "float32", RunOptions())


def test_a_tokenizer_is_loaded_from_its_files(bert: Path) -> None:
    assert len(local(bert).tokenizer) > 30


def test_a_checkpoint_without_tokenizer_files_is_refused(bert: Path) -> None:
    for file in bert.glob("tokenizer*"):
        file.unlink()

    with pytest.raises(
        MissingError, match=r"bert: contains no tokenizer; expected tokenizer\.json or"
    ):
        len(local(bert).tokenizer)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json"])
def test_a_file_that_is_no_json_is_told_with_its_folder(bert: Path, file: str) -> None:
    (bert / file).write_text("{")

    with pytest.raises(R2MedError, match=str(bert)):
        len(local(bert).tokenizer)


def test_weights_that_were_cut_off_are_told_with_their_folder(bert: Path) -> None:
    weights = bert / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])

    with pytest.raises(DataError, match=r"bert: cannot be loaded \(SafetensorError"):
        local(bert).load()


@pytest.mark.parametrize("device", ["gpu", "cuda:77", "meta"])
def test_a_device_that_is_not_there_is_told(device: str) -> None:
    with pytest.raises(UsageError, match=f"--device {device}: not a device of this machine"):
        choose_device(device)


def test_a_device_that_is_there_is_taken() -> None:
    assert choose_device("cpu") == "cpu"
