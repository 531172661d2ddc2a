"""What pages say, without a browser: sentences, orders, addresses, stages of a typed query."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

import r2med
from r2med.errors import LimitError, UsageError
from r2med.evaluation.explain import term_changes
from r2med.evaluation.status import CellStatus, End, Status
from r2med.evaluation.trial import Tried, try_query
from r2med.explore.library import Cache, Library, Snapshot
from r2med.explore.pages import compare as compare_module
from r2med.explore.pages.about import running_page
from r2med.explore.pages.compare import compare_page
from r2med.explore.pages.leaderboard import View, leaderboard_page
from r2med.explore.pages.query import ORDERS, QueryData, answer, query_page
from r2med.explore.pages.system import system_page
from r2med.explore.pages.task import task_page
from r2med.explore.pages.trial import Outcome, trial_page
from r2med.explore.pages.trial import Request as TrialRequest
from r2med.explore.render import Axis, server_link
from r2med.measure.verdicts import Verdict, all_pairs
from r2med.paths import cache_folder
from r2med.results.compare import QueryScores
from r2med.results.overlap import write_audit
from r2med.results.record import RerankRecord, Result
from r2med.results.store import Store
from r2med.retrieve.bm25.retriever import Bm25Retriever, Bm25Searcher
from r2med.systems.output import StageCost
from r2med.systems.registry import is_plain
from r2med.tasks.task import Task
from tests.explore.conftest import PROGRAM
from tests.llm_server import running_llm_server

TASK = "demo/medqa-diag"


@pytest.fixture
def library() -> Library:
    r2med.evaluate_all(["bm25", "bm25-lucene"], TASK)
    return Library("r2med-results")


def test_a_new_result_is_seen_and_an_old_one_is_not_read_again(library: Library) -> None:
    first = library.snapshot()
    r2med.evaluate("bm25-nano", TASK)
    second = library.snapshot()

    assert len(second.results) == len(first.results) + 1
    assert set(first.results) < set(second.results)
    assert library.snapshot() is second


def test_a_new_result_renews_what_shows_it_and_nothing_else(library: Library) -> None:
    def lists(snapshot: Snapshot, *systems: str) -> object:
        data = QueryData.read(snapshot, TASK, "8", systems=systems)
        query_page(data, server_link)
        return library.lists.get((server_link, data.origin), lambda: pytest.fail("not kept"))

    before = library.snapshot()
    demo, full = before.board("demo"), before.board("full")
    pair = lists(before, "bm25", "bm25-lucene")
    r2med.evaluate("bm25-nano", TASK)
    after = library.snapshot()

    assert after.state != before.state
    assert "bm25-nano" in task_page(after, server_link, TASK, metric="ndcg@10")
    assert after.board("demo") is not demo and after.board("full") is full
    assert lists(after, "bm25", "bm25-lucene") is pair


def test_the_lists_of_a_query_change_with_a_result_of_a_stage_or_a_label(library: Library) -> None:
    system, store = "bm25 + bm25-nano", Store(library.folder)

    def origin() -> object:
        return QueryData.read(library.snapshot(), TASK, "8", systems=[system]).origin

    r2med.evaluate_all([system, "bm25[k1=2]"], TASK)
    results = library.snapshot().of_task(TASK)
    whole = origin()
    store.delete(results["bm25[k1=2]"])
    without_another = origin()
    store.delete(results["bm25-nano"])
    without_a_stage = origin()
    store.update_names(results[system], label="both")

    assert without_another == whole
    assert len({whole, without_a_stage, origin()}) == 3


def test_an_index_is_prepared_once_for_all_documents_of_a_task(library: Library) -> None:
    snapshot = library.snapshot()
    task, result = library.task(TASK), snapshot.of_task(TASK)["bm25"]
    positives = [name for name, _ in QueryData.read(snapshot, TASK, "8").positives]
    prepared: list[object] = []

    def prepare(retriever: Bm25Retriever, task: Task) -> Bm25Searcher:
        prepared.append(searcher := library.prepare_searcher(retriever, task))
        return searcher

    part, terms = term_changes(result, task, "8", positives, prepare)
    term_changes(result, task, "9", positives, prepare)

    assert len(positives) > 1 and len(prepared) == 2
    assert prepared[0] is prepared[1]
    assert part == "bm25"
    ranked = dict(library.ranked_run(result).ranking("8"))
    for name in positives:
        if name in ranked:
            assert sum(each.after for each in terms[name]) == pytest.approx(ranked[name], rel=1e-5)


def test_terms_of_a_reranked_system_are_those_of_what_it_reranks(library: Library) -> None:
    snapshot = library.snapshot()
    first = snapshot.of_task(TASK)["bm25"].record
    identity = {"reranker": {}, "reranked": 20, "tail": "keep", "first": first.system.identity}
    system = replace(first.system, spec="bm25 | monobert@20", identity=identity)
    record = replace(first, system=system, reranking=RerankRecord("bm25", 20, "keep", {}))
    reranked = Result.from_record(snapshot.of_task(TASK)["bm25"].folder, record)

    part, terms = term_changes(reranked, library.task(TASK), "8", ["medqa-diag-001"])

    assert part == "bm25" and terms["medqa-diag-001"]


def test_the_first_page_waits_for_no_library_that_it_does_not_need(library: Library) -> None:
    words = (
        "import sys\n"
        "from r2med.explore.app import create_app\n"
        "from r2med.explore.library import Library\n"
        "from r2med.explore.pages.about import about_page\n"
        "from r2med.explore.pages.leaderboard import View, leaderboard_page\n"
        "from r2med.explore.render import server_link\n"
        "snapshot = Library('r2med-results').snapshot()\n"
        "assert snapshot.results\n"
        "about_page(snapshot, server_link)\n"
        "leaderboard_page(snapshot, View('demo'), server_link)\n"
        "heavy = {'pandas', 'altair', 'torch', 'ray'}\n"
        "print(sorted(heavy & sys.modules.keys()))\n"
    )
    said = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)

    assert said.stdout == "[]\n"


def test_a_stored_audit_flags_rows_of_the_leaderboard_as_soon_as_it_is_there(
    library: Library,
) -> None:
    snapshot = library.snapshot()
    before = [row.flags for row in snapshot.board("full").rows]

    outcome = {"task": "Biology", "hash": "0", "training": "BRIGHT", "rows": 9}
    outcome |= {"verdict": "contaminated", "reason": "it holds 3 queries", "created": "2026"}
    write_audit(library.folder, outcome)
    page = leaderboard_page(library.snapshot(), View("full", rows="all"), server_link)

    assert not any("it holds 3 queries" in str(flag) for flags in before for flag in flags)
    assert "Biology is contaminated by it: it holds 3 queries" in page


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "1 ms"), (0.0042, "4 ms"), (0.9, "900 ms"), (3.3, "3.3 s")]
)
def test_a_short_time_is_not_shown_as_zero(library: Library, seconds: float, words: str) -> None:
    request = TrialRequest("porphyria", TASK, ("bm25",))
    cost = StageCost(part="bm25", stage="search", seconds=seconds)
    tried = Tried(stages=[("bm25", [("medqa-diag-001", 1.0)])], costs=(cost,), searched="")

    page = trial_page(library.snapshot(), server_link, (), request, Outcome({"bm25": tried}))

    assert f"documents, in {words}." in page


def test_a_verdict_names_the_winner_and_whether_it_is_real(library: Library) -> None:
    snapshot = library.snapshot()
    page = compare_page(
        snapshot,
        server_link,
        scope=TASK,
        systems=["bm25-lucene", "bm25"],
        metric="ndcg@10",
    )

    means = {name: result.metrics["ndcg@10"] for name, result in snapshot.of_task(TASK).items()}
    better = max(means, key=lambda name: means[name])
    points = f"{100 * abs(means['bm25'] - means['bm25-lucene']):.1f}"
    [verdict] = re.findall('<p class="answer">(.*?)</p>', page)
    assert verdict.startswith(f"{better} beats ")
    comparison = r2med.compare("bm25-lucene", "bm25", task=TASK, results=snapshot.results)
    assert f"by {points} points on {TASK} (" in verdict
    assert verdict == comparison.verdicts[0].sentence
    assert comparison.verdicts[0].is_significant
    sides = re.findall('class="bar (lost|even|won)"', page)
    assert len(sides) == len(comparison.tasks[TASK])
    assert sides == sorted(sides, key=["lost", "even", "won"].index)


def test_a_verdict_is_corrected_over_all_stored_pairs_as_the_leaderboard_is(
    library: Library,
) -> None:
    r2med.evaluate("bm25-nano", TASK)
    snapshot = library.snapshot()
    rows = {row.system: row for row in snapshot.board("demo", task=TASK).rows if row.letters}

    for first, second in combinations(rows, 2):
        page = compare_page(
            snapshot, server_link, scope=TASK, systems=[first, second], metric="ndcg@10"
        )
        [verdict] = re.findall('<p class="answer">(.*?)</p>', page)

        [corrected] = re.findall(r"alone, (\S+) corrected over all 3 pairs stored here", verdict)
        is_significant = float(corrected.removeprefix("&lt;")) < 0.05
        shares_a_band = bool(set(rows[first].letters) & set(rows[second].letters))
        assert is_significant != shares_a_band


@pytest.mark.parametrize("p_corrected", [0.004, 0.6])
def test_rows_of_means_are_bold_only_where_the_sentence_says_significant(
    library: Library, monkeypatch: pytest.MonkeyPatch, p_corrected: float
) -> None:
    r2med.evaluate_all(["bm25", "bm25-lucene"], "demo/biology")

    def correct(verdict: Verdict) -> Verdict:
        return replace(verdict, p_corrected=p_corrected, family=all_pairs(4))

    monkeypatch.setattr(
        compare_module, "decide_pair", lambda _, found, *__: correct(*found.verdicts)
    )
    page = compare_page(
        library.snapshot(),
        server_link,
        scope="demo",
        systems=["bm25-lucene", "bm25"],
        metric="ndcg@10",
    )

    totals = re.findall(r'<tr class="measured total">.*?</tr>', page, re.DOTALL)
    assert len(totals) == 2
    assert all(("number strong" in row) == (p_corrected < 0.05) for row in totals)


def test_an_arrow_says_how_far_a_document_stands_from_its_place_in_the_other_system(
    library: Library,
) -> None:
    snapshot = library.snapshot()
    here, other = (
        library.ranked_run(snapshot.of_task(TASK)[system]).ranks_of("8")
        for system in ("bm25", "bm25-lucene")
    )

    data = QueryData.read(snapshot, TASK, "8", systems=["bm25", "bm25-lucene"])
    html = query_page(data, server_link)

    moves = {name: other[name] - rank for name, rank in list(here.items())[:10]}
    signs = [f"{'↑' if move > 0 else '↓'}{abs(move)}" if move else "=" for move in moves.values()]
    assert re.findall(r'class="move"[^>]*>([^<]*)<', html)[:10] == signs


def test_the_ranks_of_missed_positives_are_said_where_they_belong(library: Library) -> None:
    snapshot = library.snapshot()
    texts = []
    for query_id in r2med.load_task(TASK).queries.ids.to_pylist():
        data = QueryData.read(snapshot, TASK, query_id, systems=["bm25-lucene"])
        finding = data.columns[0].finding
        assert finding is not None
        ranks = [each.rank for each in finding.missed]
        texts.append(answer(data))
        if len(ranks) == 1 and ranks[0]:
            assert f"it missed 1 (rank {ranks[0]}): " in texts[-1]

    assert any("(rank" in text for text in texts)
    assert not any("not in its list (rank" in text for text in texts)


def test_orders_of_queries() -> None:
    queries = [QueryScores("a", (0.2, 0.9)), QueryScores("b", (0.5, 0.5)), QueryScores("c", (1, 0))]

    ids = {
        order: [query.query_id for query in sorted(queries, key=key)]
        for order, (_, key) in ORDERS.items()
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

    assert [part for part, _ in tried.stages] == ["bm25", "bm25-lucene", "bm25 + bm25-lucene"]
    assert all(len(documents) == 10 for _, documents in tried.stages)
    assert {cost.stage for cost in tried.costs} == {"index", "search", "fuse"}
    assert not Path("r2med-results").exists()


def test_what_a_member_of_a_fusion_generates_for_a_typed_query_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("aiohttp")
    with running_llm_server() as server:
        monkeypatch.setenv("R2MED_LLM_URL", server.url)
        server.reply = lambda body: "A passage about quartan fever."
        system = r2med.System.from_spec("(hyde:qwen-7b | bm25) + bm25-lucene")

        tried = try_query(system, r2med.load_task(TASK), "fever", paid=True)
        system.resources.close()

    assert "quartan" in tried.searched
    assert not list(cache_folder("expansions").rglob("*.jsonl"))


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
    kept: Cache[str] = Cache(2)

    def make(key: str) -> str:
        made.append(key)
        return key

    for key in ("a", "b", "a", "c", "a", "b"):
        kept.get(key, partial(make, key))

    assert made == ["a", "b", "c", "b"]


def test_the_next_query_is_the_next_of_the_list_of_hardest_queries(library: Library) -> None:
    r2med.evaluate("bm25[k1=0.1,b=0]", TASK)
    snapshot = library.snapshot()
    page = task_page(snapshot, server_link, TASK, metric="ndcg@10")
    listed = re.findall(r'/query/(\d+)"', page)[:8]

    places = [QueryData.read(snapshot, TASK, name) for name in listed]

    assert [each.position for each in places] == list(range(1, len(listed) + 1))
    assert [each.next for each in places[:-1]] == listed[1:]


def test_numbers_of_an_axis_stand_inside_it() -> None:
    axis = Axis.around([0.43, 0.78])

    assert (axis.low, axis.high) == (0.4, 0.8)
    assert all(4 <= x <= 96 for x, _ in axis.ticks)
    assert [number for _, number in axis.ticks] == [40, 50, 60, 70, 80]


def test_an_explorer_that_is_ended_speaks_of_itself(tmp_path: Path) -> None:
    words = [*PROGRAM, "explore", "--results", str(tmp_path), "--no-open", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, said = process.communicate(timeout=30)

    assert process.returncode == 143
    assert b"terminated: the explorer has ended" in said and b"finished so far" not in said


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (None, "An evaluation is in progress: 1 of 2 runs done, about 3 minutes left."),
        ("finished", "The last evaluation finished: 1 of 2 runs done, 0 failed."),
        ("stopped", "did not finish (stopped): 1 of 2 runs done; run the same command again"),
    ],
)
def test_a_page_says_how_far_an_evaluation_is(library: Library, end: End | None, said: str) -> None:
    cells = (CellStatus(TASK, "bm25", "done", 170.0), CellStatus(TASK, "bm25-lucene", "running"))
    status = Status(1, None, "2026-01-01T10:00:00", "2026-01-01T10:02:50", cells, end)

    page = running_page([status], library.snapshot(), server_link)

    assert said in page and "2026-01-01 10:02:50 UTC" in page
    assert "No evaluation yet" in running_page([], library.snapshot(), server_link)


def test_the_page_of_a_labelled_system_is_headed_by_its_label(library: Library) -> None:
    r2med.evaluate("mine=bm25[k1=1.4]", TASK)

    page = system_page(
        library.snapshot(), server_link, "bm25[k1=1.4]", suite="demo", metric="ndcg@10"
    ).replace("<wbr>", "")

    assert '<h1><span class="system">mine</span> ' in page
    assert '<p class="quiet system">bm25[k1=1.4]</p>' in page


def test_a_result_without_the_metric_of_the_page_has_no_interval_of_another(
    library: Library,
) -> None:
    page = system_page(library.snapshot(), server_link, "bm25", suite="demo", metric="rbp")

    stored = page.partition("<h2>By task</h2>")[2].partition("</table>")[0]
    assert "–" in stored and 'class="span"' not in stored
