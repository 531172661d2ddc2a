from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from r2med.errors import DamagedError, MissingError, UsageError
from r2med.nano import Recipe, build
from r2med.nano.push import push
from r2med.tasks.load import load_task
from tests.cli.running import run
from tests.hub_server import Hub, running_hub
from tests.nano.making import contents

#: The client's own way of sending a file is deprecated in the HTTP library it uses.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that one token may write to; large files go the way of plain HTTP."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with running_hub() as hub:
        hub.writers.add("hf_writer")
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        yield hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=40))
    return tmp_path / "nano"


def test_the_hub_holds_exactly_the_files_of_the_folder(hub: Hub, folder: Path) -> None:
    outcome = run("nano", "push", str(folder), "me/nano")

    assert outcome.err == ""
    assert outcome.code == 0
    assert hub.repositories["me/nano"].files == contents(folder)
    assert hub.repositories["me/nano"].commit in outcome.out
    assert hub.private["me/nano"] is True


def test_files_that_the_record_does_not_name_stay_at_home(hub: Hub, folder: Path) -> None:
    (folder / "notes.txt").write_text("not for everybody")

    push(folder, "me/nano", private=False)

    assert "notes.txt" not in hub.repositories["me/nano"].files
    assert hub.private["me/nano"] is False


def test_what_was_uploaded_loads_as_the_same_task(hub: Hub, folder: Path, tmp_path: Path) -> None:
    push(folder, "me/nano")

    for path, content in hub.repositories["me/nano"].files.items():
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(content)

    copied = load_task(f"{tmp_path / 'copy'}#NanoDemoBiology")
    assert copied.hash == load_task(f"{folder}#NanoDemoBiology").hash


def test_a_token_without_the_right_to_write_is_told_so_without_showing_it(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_reader")

    with pytest.raises(MissingError, match=r"HTTP 403.*\n.*right to write") as error:
        push(folder, "me/nano")

    assert "hf_reader" not in str(error.value)
    assert not hub.repositories


def test_without_a_token_nothing_is_asked_of_the_hub(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")

    with pytest.raises(MissingError, match="HF_TOKEN is not set"):
        push(folder, "me/nano")

    assert not hub.seen


def test_a_folder_changed_since_it_was_built_is_not_uploaded(hub: Hub, folder: Path) -> None:
    (folder / "README.md").write_text("something else")

    with pytest.raises(DamagedError, match=r"README\.md: changed since"):
        push(folder, "me/nano")

    assert not hub.seen


@pytest.mark.parametrize("repo", ["nano", "a/b/c", "/x"])
def test_a_name_that_is_no_repository_is_refused(hub: Hub, folder: Path, repo: str) -> None:
    with pytest.raises(UsageError, match="owner/name"):
        push(folder, repo)


def test_a_hub_that_does_not_answer_is_named(
    hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    with pytest.raises(MissingError, match=r"127\.0\.0\.1:9 failed while uploading"):
        push(folder, "me/nano")
