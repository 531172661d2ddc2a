"""Results one can trust at a glance: what was reused, what is stored, what changed under a name."""

from __future__ import annotations

import json
import linecache
import re
import sys
from pathlib import Path

import pytest

from tests.cli.running import run

MODEL = """
import numpy as np

class Encoder:
    identity = "{identity}"

    def encode(self, texts):
        return np.array([[len(text), text.count("{letter}")] for text in texts], np.float32)
"""


def write_model(letter: str = "e", identity: str = "first") -> None:
    """A module of the user's own, as a fresh process would import it."""
    linecache.clearcache()
    sys.modules.pop("letters_of_mine", None)
    Path("letters_of_mine.py").write_text(MODEL.format(letter=letter, identity=identity))


def evaluate(*systems: str, task: str = "demo/biology") -> tuple[str, str]:
    done = run("eval", *systems, "--task", task)
    assert done.code == 0, done.err
    return " ".join(done.out.split()), done.err


def test_eval_says_what_was_stored_before() -> None:
    _, fresh = evaluate("bm25")
    _, mixed = evaluate("bm25", "bm25-lucene")
    told = json.loads(run("eval", "bm25", "-t", "demo/biology", "--json").out)

    assert "stored before" not in fresh
    assert "stored before and not run now: 1 of 2 results (bm25), up to" in mixed
    assert told[0]["reused"] is True


def test_a_class_whose_source_changed_under_one_identity_is_run_again() -> None:
    write_model("e")
    first, _ = evaluate("model:letters_of_mine:Encoder")
    _, same = evaluate("model:letters_of_mine:Encoder")
    write_model("a")
    changed, told = evaluate("model:letters_of_mine:Encoder")

    assert "stored before" in same
    assert "stored before" not in told
    assert changed != first
    assert len(json.loads(run("results", "--json").out)) == 2


def test_results_tell_two_of_one_name_apart_by_key() -> None:
    for identity in ("first", "second"):
        write_model(identity=identity)
        evaluate("model:letters_of_mine:Encoder")

    rows = json.loads(run("results", "--json").out)
    shown = run("results").out

    keys = [row["key"] for row in rows]
    assert len(set(keys)) == 2 and all(key in shown for key in keys)
    assert all(row["bytes"] > 1000 for row in rows)
    assert re.search(r"kB +\d+ s\n", shown)
    told = " ".join(shown.split())
    assert '("second" and "first")' in told or '("first" and "second")' in told


def test_an_empty_folder_says_what_to_try() -> None:
    plain, chosen = run("results"), run("results", "--task", "demo/biology")

    assert plain.out.startswith("No stored result in r2med-results. Try: r2med eval bm25")
    assert chosen.out.startswith("No stored result of this choice in r2med-results.")
    assert json.loads(run("results", "--json").out) == []


def test_delete_asks_and_removes_only_what_was_named() -> None:
    evaluate("bm25", "bm25-lucene", task="demo/biology,demo/medqa-diag")
    rows = json.loads(run("results", "--json").out)
    kept, gone = rows[0], rows[1]

    unasked = run("results", "delete", "bm25")
    left = len(json.loads(run("results", "--json").out))
    done = run("results", "delete", gone["key"], "--yes")
    rest = json.loads(run("results", "--json").out)
    run("results", "delete", "bm25", "bm25-lucene", "--yes")

    assert (unasked.code, left) == (1, 4)
    assert "nothing was deleted" in unasked.out and "Delete 2 results?" in unasked.err
    assert done.out == "deleted 1 result\n"
    assert [row["result"] for row in rest] == [r["result"] for r in rows if r is not gone]
    assert kept in rest
    assert list(Path("r2med-results").glob("demo")) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), 2, "Say what to delete"),
        (("bm25-nano", "--yes"), 1, "no stored result of bm25-nano"),
        (("--task", "demo/biology", "--yes"), 1, "no stored result on demo/biology."),
    ],
)
def test_delete_refuses_what_names_nothing(
    arguments: tuple[str, ...], code: int, message: str
) -> None:
    refused = run("results", "delete", *arguments)

    assert (refused.code, refused.out) == (code, "")
    assert message in refused.err


@pytest.mark.extra("light")
def test_many_truncated_documents_are_a_note_without_verbose() -> None:
    whole = run("eval", "wordllama", "--task", "demo/biology")
    cut = run("eval", "tiny=wordllama[max_length=64]", "--task", "demo/biology")

    assert "reads only the beginning" not in whole.err
    assert "note: tiny reads only the beginning of 100 % of the documents" in cut.err
    assert "reads only the beginning" not in cut.out


def test_a_result_is_shown_with_what_is_recorded_of_it() -> None:
    evaluate("bm25")

    shown = " ".join(run("results", "show", "bm25").out.split())
    [record] = json.loads(run("results", "show", "bm25", "--json").out)

    system = record["system"]
    assert record["created"] in shown
    assert f"depth, tie order {system['depth']}, {system['ties']}" in shown
    assert record["task"]["name"] == "demo/biology"
