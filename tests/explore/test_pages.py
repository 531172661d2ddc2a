"""What pages say, without a browser: sentences, orders, addresses, stages of a typed query."""

from __future__ import annotations

import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

import r2med
from r2med.engine.trial import is_plain, try_query
from r2med.errors import LimitError, UsageError
from r2med.explore.library import Kept, Library
from r2med.explore.pages.compare import answer as verdict
from r2med.explore.pages.compare import compare_data
from r2med.explore.pages.leaderboard import View, leaderboard_page
from r2med.explore.pages.query import query_data
from r2med.explore.pages.task import task_page
from r2med.explore.render import Axis, server_link
from r2med.results.diagnosis.lexicon import matched
from r2med.results.movement import QueryScores, in_order
from r2med.results.overlap import declared_training, write_audit
from tests.explore.conftest import PROGRAM

TASK = "demo/medqa-diag"


@pytest.fixture
def library() -> Library:
    r2med.evaluate(["bm25", "bm25-lucene"], TASK)
    return Library("r2med-results")


def test_a_new_result_is_seen_and_an_old_one_is_not_read_again(library: Library) -> None:
    first = library.shelf()
    r2med.evaluate("bm25-nano", TASK)
    second = library.shelf()

    assert len(second.results) == len(first.results) + 1
    assert set(first.results) < set(second.results)
    assert library.shelf() is second


def test_a_stored_audit_flags_rows_of_the_leaderboard_as_soon_as_it_is_there(
    library: Library,
) -> None:
    shelf = library.shelf()
    [training, *_] = declared_training("diver")
    before = [row.flags for row in shelf.board("full").rows]

    outcome = {"task": "Biology", "hash": "0", "training": training.collection, "rows": 9}
    outcome |= {"verdict": "contaminated", "reason": "it holds 3 queries", "created": "2026"}
    write_audit(library.folder, outcome)
    page = leaderboard_page(library.shelf(), View("full", rows="all"), server_link)

    assert not any("it holds 3 queries" in str(flag) for flags in before for flag in flags)
    assert "Biology is contaminated by it: it holds 3 queries" in page


def test_a_verdict_names_the_winner_and_whether_it_is_real(library: Library) -> None:
    shelf = library.shelf()
    data = compare_data(
        shelf,
        suite=None,
        task=TASK,
        systems=["bm25-lucene", "bm25"],
        metric="ndcg@10",
    )

    means = {name: result.metrics["ndcg@10"] for name, result in shelf.of_task(TASK).items()}
    better = max(means, key=lambda name: means[name])
    points = f"{100 * abs(means['bm25'] - means['bm25-lucene']):.1f}"
    assert verdict(data).startswith(f"{better} beats ")
    assert f"by {points} points (p < .001)" in verdict(data)
    assert [bar.side for bar in data.panels[0].bars] == sorted(
        (bar.side for bar in data.panels[0].bars), key=["lost", "even", "won"].index
    )


def test_an_arrow_says_how_far_a_document_stands_from_its_place_in_the_other_system(
    library: Library,
) -> None:
    shelf = library.shelf()
    data = query_data(shelf, TASK, "8", systems=["bm25", "bm25-lucene"])
    other = library.ranked(shelf.of_task(TASK)["bm25-lucene"]).listed("8")

    for entry in data.columns[0].entries:
        assert entry.move is not None
        assert other.index(entry.document_id) + 1 == entry.rank + entry.move


def test_words_are_marked_by_their_stem_and_nothing_is_lost() -> None:
    text = "Attacks of pain, attacking nobody; Pains."

    [pieces] = matched("an attack of pains", [text])

    assert "".join(piece.text for piece in pieces) == text
    assert [p.text for p in pieces if p.hit] == ["Attacks", "pain", "attacking", "Pains"]


def test_orders_of_queries() -> None:
    queries = [QueryScores("a", (0.2, 0.9)), QueryScores("b", (0.5, 0.5)), QueryScores("c", (1, 0))]

    ids = {
        order: [query.query_id for query in in_order(queries, order)]
        for order in ("difficulty", "division", "gain", "loss", "task")
    }

    assert ids == {
        "difficulty": ["b", "c", "a"],
        "division": ["c", "a", "b"],
        "gain": ["c", "b", "a"],
        "loss": ["a", "b", "c"],
        "task": ["a", "b", "c"],
    }


def test_addresses_keep_names_apart() -> None:
    assert server_link("query", task="demo/a", query="x/../y", system=["a + b", "c"]) == (
        "/task/demo/a/query/x%2F..%2Fy?system=a+%2B+b&system=c"
    )
    assert server_link("leaderboard") == "/"


def test_every_stage_of_a_typed_query_is_shown() -> None:
    task = r2med.load_task(TASK)
    system = r2med.System.from_spec("bm25 + bm25-lucene")

    tried = try_query(system, task, "porphyria attack", paid=False)

    assert [stage.part for stage in tried.stages] == ["bm25", "bm25-lucene", "bm25 + bm25-lucene"]
    assert all(len(stage.documents) == 10 for stage in tried.stages)
    assert {cost.stage for cost in tried.costs} == {"index", "search", "fuse"}
    assert not Path("r2med-results").exists()


def test_models_that_cost_money_are_asked_only_where_that_is_allowed() -> None:
    task = r2med.load_task(TASK)
    system = r2med.System.from_spec("hyde:gpt4 | bm25")

    with pytest.raises(LimitError, match="--max-cost"):
        try_query(system, task, "fever", paid=False)
    with pytest.raises(UsageError, match="empty"):
        try_query(system, task, " ", paid=True)


@pytest.mark.parametrize(
    ("system", "plain"),
    [
        ("bm25", True),
        ("bm25[k1=1.2] + minilm", True),
        ("hyde:gpt4 | bm25", True),
        ("run:results.trec", False),
        ("model:package.module:Class", False),
        ("bge[checkpoint=/tmp/x]", False),
        ('bm25[k1="../x"]', False),
        ("nothing |", False),
    ],
)
def test_only_registered_stages_can_be_tried(system: str, plain: bool) -> None:
    assert is_plain(system) is plain


def test_kept_values_are_made_once_and_the_oldest_goes() -> None:
    made: list[str] = []
    kept: Kept[str] = Kept(2)

    def make(key: str) -> str:
        made.append(key)
        return key

    for key in ("a", "b", "a", "c", "a", "b"):
        kept.get(key, partial(make, key))

    assert made == ["a", "b", "c", "b"]


def test_the_next_query_is_the_next_of_the_list_of_hardest_queries(library: Library) -> None:
    r2med.evaluate("bm25[k1=0.1,b=0]", TASK)
    shelf = library.shelf()
    page = task_page(shelf, server_link, TASK, metric="ndcg@10")
    listed = re.findall(r'/query/(\d+)"', page)[:8]

    places = [query_data(shelf, TASK, name) for name in listed]

    assert [each.place for each in places] == list(range(1, len(listed) + 1))
    assert [each.next for each in places[:-1]] == listed[1:]


def test_numbers_of_an_axis_stand_inside_it() -> None:
    axis = Axis(0.0, 1.0, 220)

    assert all(12 <= x <= 220 - 12 for x, _ in axis.ticks)


def test_an_explorer_that_is_ended_speaks_of_itself(tmp_path: Path) -> None:
    words = [*PROGRAM, "explore", "--results", str(tmp_path), "--no-open", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=30)

    assert process.returncode == 143
    assert b"terminated: the explorer has ended" in said and b"finished so far" not in said
