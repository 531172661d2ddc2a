"""An archive of results is verified by checksums and by measuring its runs again."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

import r2med
from r2med import RunOptions
from r2med.errors import DamagedError, DataError
from r2med.results.pack import MANIFEST, pack_results, verify_archive
from tests.cli.running import run
from tests.llm_server import running_llm_server

TASK = "demo/biology"
SYSTEMS = ("hyde:some-model | bm25", "bm25 | pointwise:some-model@2")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    r2med.evaluate("bm25", TASK, results=tmp_path / "results")
    path = tmp_path / "bm25.zip"
    done = run("results", "pack", "--results", str(tmp_path / "results"), "--out", str(path))
    assert done.code == 0, done.err
    return path


def rewrite(path: Path, changes: dict[str, bytes], *, rename: dict[str, str] | None = None) -> Path:
    """A copy of an archive with other contents or names, and a manifest that fits the names."""
    copy = path.with_name("changed.zip")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(copy, "w") as new:
        for name in old.namelist():
            content = changes.get(name, old.read(name))
            if rename and name == MANIFEST:
                for before, after in rename.items():
                    content = content.replace(before.encode(), after.encode())
            new.writestr((rename or {}).get(name, name), content)
    return copy


def test_a_packed_result_is_confirmed_from_its_run(archive: Path) -> None:
    verification = verify_archive(archive)

    [result] = verification.results
    assert (result.system, result.task, result.outcome) == ("bm25", TASK, "confirmed")
    assert run("results", "verify", str(archive)).code == 0


def test_packing_twice_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    results = r2med.list_results(tmp_path / "results").results
    again = tmp_path / "again.zip"

    pack_results(results, again)

    assert again.read_bytes() == archive.read_bytes()


def test_a_changed_file_is_damaged(archive: Path) -> None:
    name = next(n for n in zipfile.ZipFile(archive).namelist() if n.endswith("result.json"))

    with pytest.raises(DamagedError, match="checksum"):
        verify_archive(rewrite(archive, {name: b"{}"}))


def test_a_changed_score_is_found_though_all_checksums_fit(archive: Path) -> None:
    import hashlib

    with zipfile.ZipFile(archive) as file:
        name = next(n for n in file.namelist() if n.endswith("result.json"))
        record = json.loads(file.read(name))
        manifest = json.loads(file.read(MANIFEST))
    record["metrics"]["ndcg@10"] += 0.01
    content = json.dumps(record).encode()
    manifest["files"][name] = hashlib.sha256(content).hexdigest()

    changed = rewrite(archive, {name: content, MANIFEST: json.dumps(manifest).encode()})

    verification = verify_archive(changed)
    assert verification.results[0].outcome in ("different", "damaged")
    assert run("results", "verify", str(changed)).code == 1


def test_a_name_that_leaves_the_folder_is_refused(archive: Path) -> None:
    name = next(n for n in zipfile.ZipFile(archive).namelist() if n.endswith("result.json"))

    with pytest.raises(DataError, match="leaves the archive's folder"):
        verify_archive(rewrite(archive, {}, rename={name: "../escaped.json"}))


def test_any_other_file_is_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")

    for name in ("notes.txt", "absent.zip"):
        with pytest.raises(DataError, match="archive"):
            verify_archive(tmp_path / name)


def prompts_in(path: Path) -> dict[str, bytes]:
    """By hash and name the prompts of an archive."""
    with zipfile.ZipFile(path) as file:
        names = [name for name in file.namelist() if name.startswith("prompts/")]
        return {name.removeprefix("prompts/"): file.read(name) for name in names}


@pytest.mark.extra("llm")
def test_the_prompts_that_were_used_are_packed_and_no_others(tmp_path: Path) -> None:
    own = tmp_path / "own" / "hyde" / "post.toml"
    own.parent.mkdir(parents=True)
    own.write_text('user = "Write an abstract that answers {query}"\n')
    with running_llm_server() as server:
        server.reply = lambda body: "5"
        options = RunOptions(llm_url=server.url, prompts=own.parents[1])
        with r2med.Resources(options) as resources:
            results = r2med.evaluate_all(
                SYSTEMS, TASK, resources=resources, results=tmp_path / "results"
            )
    hyde, pointwise = results
    hashes = [
        hyde.record.system.identity["expander"]["task_specific"]["prompt"],
        pointwise.record.system.identity["reranker"]["prompt"],
    ]
    warnings: list[str] = []

    pack_results(results, tmp_path / "with.zip", prompts=own.parents[1], warn=pytest.fail)
    pack_results(results, tmp_path / "without.zip", warn=warnings.append)

    packed = prompts_in(tmp_path / "with.zip")
    assert set(packed) == {f"{hashes[0]}/hyde/post.toml", f"{hashes[1]}/pointwise.toml"}
    assert packed[f"{hashes[0]}/hyde/post.toml"] == own.read_bytes()
    assert set(prompts_in(tmp_path / "without.zip")) == {f"{hashes[1]}/pointwise.toml"}
    assert len(warnings) == 1 and f"lacks the prompt {hashes[0]}" in warnings[0]
