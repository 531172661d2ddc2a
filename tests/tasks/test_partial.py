"""A folder with some files of a task is verified as far as it goes."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

from r2med.tasks.partial import (
    check_partial_files,
    describe_partial_checks,
    find_partial_folder,
)
from r2med.tasks.registry import find_task
from tests.cli.running import run

CONTENT = b'{"id": "1", "text": "why"}\n'


def test_present_files_are_verified_and_missing_ones_named(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "query.jsonl.gz", "wb") as file:
        file.write(CONTENT)
    (tmp_path / "qrels.jsonl").write_text("other")
    hashes = {name: {"sha256": "0"} for name in ("corpus.jsonl", "qrels.jsonl")}
    hashes["query.jsonl"] = {"sha256": hashlib.sha256(CONTENT).hexdigest()}
    entry = replace(find_task("Medical-Sciences"), files=hashes)

    assert find_partial_folder(entry, tmp_path) == tmp_path
    checks = check_partial_files(entry, tmp_path)

    outcomes = {check.fact: check.passed for check in checks}
    assert outcomes == {"corpus.jsonl": None, "qrels.jsonl": False, "query.jsonl": True}
    text = describe_partial_checks(entry.name, checks)
    assert "verified: query.jsonl; different: qrels.jsonl" in text
    assert "not verified, because missing: corpus.jsonl" in text


def test_verify_fails_on_a_partial_folder_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "query.jsonl").write_bytes(CONTENT)

    done = run("tasks", "verify", "Medical-Sciences", "--data-root", str(tmp_path))

    assert done.code == 1
    assert "not verified, because missing: corpus.jsonl" in " ".join(done.err.split())
