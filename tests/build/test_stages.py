"""Pool, judge, review and freeze: what each adds, refuses and drops."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.build.folder import BuildFolder, read_rows, write_rows
from r2med.build.freeze import freeze_build
from r2med.build.items import build_items
from r2med.build.judge import judge_candidates, load_judged, prepare_judging
from r2med.build.pool import build_pool, family_of, load_pool
from r2med.build.review import open_review, record_review
from r2med.errors import DataError, MissingError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.judge.review_files import export_review, import_review
from tests.build.making import CASES, make_folder, passages, reply, resources_of, write_corpus
from tests.llm_server import LLMServer, running_llm_server


@pytest.fixture(scope="module")
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        running.reply = reply
        yield running


@pytest.fixture
def resources(server: LLMServer) -> Iterator[Resources]:
    server.reply = reply
    with resources_of(server) as opened:
        yield opened


def make_items(path: Path, resources: Resources, **tables: Mapping[str, object]) -> BuildFolder:
    folder = make_folder(path, **tables)
    build_items(folder, resources)
    write_corpus(folder)
    return folder


def make_judged(path: Path, resources: Resources, **tables: Mapping[str, object]) -> BuildFolder:
    folder = make_items(path, resources, **tables)
    build_pool(folder, resources)
    judge_candidates(folder, prepare_judging(folder, resources), resources)
    return folder


def test_every_candidate_says_which_view_and_system_found_it_at_which_rank(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_items(tmp_path, resources)
    outcome = build_pool(folder, resources)
    stated = next(c for c in outcome.candidates if (c.query_id, c.document_id) == ("0", "book-0#1"))

    assert {(find.view, find.system) for find in stated.found_by} >= {("answer", "bm25")}
    assert all(1 <= find.rank <= 5 for c in outcome.candidates for find in c.found_by)
    assert {row.name for row in outcome.views} == {"query", "answer", "reasoning"}
    total = len(outcome.candidates)
    assert all(row.unique <= row.found <= total for row in (*outcome.views, *outcome.systems))
    assert load_pool(folder) == list(outcome.candidates)


def test_documents_that_an_item_links_to_are_candidates(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_folder(tmp_path, pool={"systems": ["bm25"], "views": ["answer"], "depth": 1})
    rows = [row for _, row in read_rows(tmp_path / "medqa.jsonl")]
    rows[0]["references"] = ["https://www.example.org/filler-9/", "filler.txt"]
    write_rows(tmp_path / "medqa.jsonl", rows)
    build_items(folder, resources)
    extra = {"id": "page#1", "text": "A page of the hospital."}
    write_corpus(folder, [*passages(2), extra])
    sources = [{"id": "page#1", "source": "http://example.org/filler-9"}]
    sources += [{"id": f"filler#{n}", "source": "texts/filler.txt"} for n in range(2)]
    write_rows(folder.passages_path, sources)
    outcome = build_pool(folder, resources)

    linked = {c.document_id for c in outcome.candidates if c.found_by[0].system == "reference"}
    assert linked == {"page#1", "filler#0", "filler#1"}


def test_a_passage_that_repeats_the_question_is_left_out(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_items(tmp_path, resources)
    write_corpus(folder, [*passages(), {"id": "own#1", "text": CASES[0][0].upper()}])
    outcome = build_pool(folder, resources)

    assert outcome.record.drops == {"candidate repeats the question": 1}
    assert ("0", "own#1") not in {(c.query_id, c.document_id) for c in outcome.candidates}


def test_an_empty_pool_is_an_error(tmp_path: Path, resources: Resources) -> None:
    folder = make_items(tmp_path, resources, pool={"systems": ["bm25"]})
    write_corpus(folder, [{"id": "x", "text": "zzz"}])

    with pytest.raises(DataError, match="the pool is empty"):
        build_pool(folder, resources)
    assert not folder.pool_path.exists()


def test_a_pool_of_one_family_is_warned_about(tmp_path: Path, server: LLMServer) -> None:
    server.reply = reply
    warnings: list[str] = []
    with Resources(RunOptions(llm_url=server.url), warn=warnings.append) as resources:
        folder = make_items(tmp_path, resources, pool={"systems": ["bm25", "bm25-nano"]})
        build_pool(folder, resources)

    assert any("systems of 1 family (bm25)" in warning for warning in warnings)
    assert len({family_of(name) for name in ("bm25", "wordllama", "medcpt", "bge")}) == 4


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"views": ["query", "question"]}, "'question' is not one of"),
        ({"systems": ["bm25", "bm25"]}, "named twice"),
        ({"depth": 0}, "expected a whole number from 1"),
        ({"dept": 5}, "Did you mean 'depth'"),
    ],
)
def test_wrong_settings_are_named(
    tmp_path: Path, resources: Resources, table: Mapping[str, object], problem: str
) -> None:
    folder = make_folder(tmp_path, pool=table)

    with pytest.raises(UsageError, match=problem):
        build_pool(folder, resources)


def test_a_stage_names_the_earlier_one_that_is_missing(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_folder(tmp_path)

    with pytest.raises(MissingError, match="r2med build items"):
        build_pool(folder, resources)
    build_items(folder, resources)
    with pytest.raises(MissingError, match="r2med build corpus"):
        build_pool(folder, resources)
    write_corpus(folder)
    with pytest.raises(UsageError, match="r2med build pool"):
        prepare_judging(folder, resources)


def test_a_change_of_items_makes_later_stages_out_of_date(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_judged(tmp_path, resources)
    rows = [row for _, row in read_rows(folder.items_path)]
    rows[0]["query"] = "An edited question?"
    write_rows(folder.items_path, rows)

    with pytest.raises(UsageError, match=r"items\.jsonl changed after `build judge`"):
        freeze_build(folder, resources)
    build_pool(folder, resources)
    judge_candidates(folder, prepare_judging(folder, resources), resources)
    outcome = freeze_build(folder, resources)
    assert r2med.load_task(outcome.tasks[0]).query("0") == "An edited question?"


def test_an_edited_pool_is_judged_as_edited_and_not_overwritten_without_force(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_judged(tmp_path, resources)
    rows = [row for _, row in read_rows(folder.pool_path)]
    write_rows(folder.pool_path, rows[:-1])

    with pytest.raises(UsageError, match=r"pool\.jsonl was edited"):
        build_pool(folder, resources)
    with pytest.raises(UsageError, match=r"pool\.jsonl changed after `build judge`"):
        freeze_build(folder, resources)
    judge_candidates(folder, prepare_judging(folder, resources), resources)
    assert len(load_judged(folder)) == len(rows) - 1
    build_pool(folder, resources, force=True)
    assert [row for _, row in read_rows(folder.pool_path)] == rows


def test_edited_judgements_are_frozen_and_not_overwritten_without_force(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_judged(tmp_path, resources)
    before = folder.judged_path.read_bytes()
    rows = [row for _, row in read_rows(folder.judged_path)]
    changed = next(row for row in rows if row["relevant"])
    changed["relevant"] = False
    write_rows(folder.judged_path, rows)

    with pytest.raises(UsageError, match=r"judged\.jsonl was edited"):
        judge_candidates(folder, prepare_judging(folder, resources), resources)
    [frozen] = freeze_build(folder, resources).tasks
    judged = r2med.load_task(frozen).judgements.by_query()
    assert judged[changed["query_id"]][changed["document_id"]] == 0
    judge_candidates(folder, prepare_judging(folder, resources), resources, force=True)
    assert folder.judged_path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"relevant": "yes"}, r"line 2: 'relevant' is 'yes', expected true, false or null"),
        ({"extra": 1}, "line 2: not a judged candidate"),
        (None, "line 2: the pair .* is in an earlier line"),
    ],
)
def test_a_wrong_row_of_judged_candidates_is_named(
    tmp_path: Path, resources: Resources, change: Mapping[str, object] | None, problem: str
) -> None:
    folder = make_judged(tmp_path, resources)
    rows = [row for _, row in read_rows(folder.judged_path)]
    rows[1] = rows[0] if change is None else {**rows[1], **change}
    write_rows(folder.judged_path, rows)

    with pytest.raises(DataError, match=problem):
        freeze_build(folder, resources)


def test_a_judge_that_answers_nonsense_is_stopped_and_what_it_judged_is_kept(
    tmp_path: Path, server: LLMServer, resources: Resources
) -> None:
    folder = make_items(tmp_path, resources)
    build_pool(folder, resources)

    def rambling(body: Mapping[str, Any]) -> str:
        is_readable = "Goodpasture" in str(body["messages"])
        return reply({"messages": body["messages"][:2]}) if is_readable else "Perhaps relevant."

    server.reply = rambling
    with pytest.raises(DataError, match="cannot be read"):
        judge_candidates(folder, prepare_judging(folder, resources), resources)
    assert not folder.judged_path.exists()
    server.reply = reply
    asked = len(server.seen)
    outcome = judge_candidates(
        folder, prepare_judging(folder, resources, {"judges": ("other",)}), resources
    )
    assert len(server.seen) > asked
    assert outcome.record.counts_out["positives"] == 2 * len(CASES)


def test_judging_again_asks_nothing(
    tmp_path: Path, server: LLMServer, resources: Resources
) -> None:
    folder = make_judged(tmp_path, resources)
    before, asked = folder.judged_path.read_bytes(), len(server.seen)
    judge_candidates(folder, prepare_judging(folder, resources), resources)

    assert len(server.seen) == asked
    assert folder.judged_path.read_bytes() == before


def label(folder: BuildFolder, reviewer: str, labels: Mapping[tuple[str, str], int]) -> None:
    """Label the queue in a file; pairs that `labels` does not name get 0."""
    review = open_review(folder, warn=lambda _: None)
    path = folder.path / f"{reviewer}.csv"
    export_review(path, review.queue, reviewer, lambda pair: {"passage": "p"}, review.store)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = str(labels.get(review.queue.codes[row["code"]], 0))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    import_review(path, review.queue, reviewer, review.store)
    review.store.close()


def test_labels_of_people_replace_grades_and_their_agreement_is_on_the_card(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_judged(tmp_path, resources, review={"size": 400})
    judged = {
        (row["query_id"], row["document_id"]): row for _, row in read_rows(folder.judged_path)
    }
    labels = {pair: int(row["grade"]) for pair, row in judged.items()}
    labels["0", "book-0#2"] = 0
    label(folder, "ann", labels)
    label(folder, "bob", labels)
    record, state = record_review(folder, warn=lambda _: None)
    outcome = freeze_build(folder, resources)
    rows = [row for _, row in read_rows(outcome.tasks[0] / "qrels.jsonl")]

    assert state.alpha == pytest.approx(1.0)
    assert state.is_reached
    assert record.counts_out == {"labelled pairs": len(judged)}
    assert {"q_id": "0", "p_id": "book-0#2", "score": 0} in rows
    card = (outcome.folder / "README.md").read_text("utf-8")
    assert "reaches the declared 0.67" in card


def test_labels_that_tie_but_mean_the_same_replace_the_grade_of_the_judge(
    tmp_path: Path, server: LLMServer
) -> None:
    warnings: list[str] = []
    with Resources(RunOptions(llm_url=server.url), warn=warnings.append) as resources:
        folder = make_judged(tmp_path, resources, review={"size": 400})
        rows = [row for _, row in read_rows(folder.judged_path)]
        labels = {(row["query_id"], row["document_id"]): int(row["grade"]) for row in rows}
        label(folder, "ann", {**labels, ("0", "book-0#1"): 1, ("0", "book-0#2"): 0})
        label(folder, "bob", {**labels, ("0", "book-0#1"): 0, ("0", "book-0#2"): 3})
        outcome = freeze_build(folder, resources)

    judged = r2med.load_task(outcome.tasks[0]).judgements.by_query()["0"]
    card = (outcome.folder / "README.md").read_text("utf-8")
    assert "Different labels of reviewers are not settled: 2 pairs" in card
    assert (judged["book-0#1"], judged["book-0#2"]) == (0, 1)
    assert any("2 pairs with different labels not settled" in warning for warning in warnings)


def test_a_freeze_says_that_the_declared_agreement_was_not_reached(
    tmp_path: Path, resources: Resources
) -> None:
    folder = make_judged(tmp_path, resources, review={"size": 40})
    pairs = [(row["query_id"], row["document_id"]) for _, row in read_rows(folder.judged_path)]
    label(folder, "ann", {pair: 3 * (index % 2) for index, pair in enumerate(pairs)})
    label(folder, "bob", {pair: 3 * (index % 3 == 0) for index, pair in enumerate(pairs)})
    outcome = freeze_build(folder, resources)

    assert not outcome.review.is_reached
    assert "does NOT reach the declared 0.67" in (outcome.folder / "README.md").read_text("utf-8")


def test_queries_without_positives_and_those_that_bm25_solves_are_dropped_and_counted(
    tmp_path: Path, server: LLMServer, resources: Resources
) -> None:
    folder = make_items(tmp_path, resources, freeze={"drop_if_lexical_ndcg": 1.0})
    rows = [
        *(row for row in passages() if not row["id"].startswith("book-3#")),
        {"id": "copy#1", "text": f"{CASES[1][0]} {CASES[1][3]}"},
    ]
    write_corpus(folder, rows)

    def judge(body: Mapping[str, Any]) -> str:
        text = str(body["messages"][-1]["content"])
        question, _, passage = text.partition("Passage:\n")
        if "drooping" in question and "Give two scores" in text:
            score = 3 if "drooping" in passage else 0
            return json.dumps({"answer": score, "reasoning": score})
        return reply(body)

    server.reply = judge
    build_pool(folder, resources)
    judge_candidates(folder, prepare_judging(folder, resources), resources)
    outcome = freeze_build(folder, resources)

    assert outcome.record.drops == {"no positive": 1, "solved by the lexical baseline": 1}
    assert outcome.record.counts_out["queries"] == len(CASES) - 2


def test_a_build_without_any_positive_cannot_be_frozen(
    tmp_path: Path, server: LLMServer, resources: Resources
) -> None:
    folder = make_items(tmp_path, resources)
    build_pool(folder, resources)
    server.reply = lambda body: '{"answer": 0, "reasoning": 0}'
    judge_candidates(folder, prepare_judging(folder, resources), resources)

    with pytest.raises(DataError, match="no query is left of 12"):
        freeze_build(folder, resources)
    assert not folder.frozen_folder.exists()


def test_a_split_divides_the_queries(tmp_path: Path, resources: Resources) -> None:
    folder = make_judged(tmp_path, resources, freeze={"dev_share": 0.4})
    outcome = freeze_build(folder, resources)
    dev, test = (r2med.load_task(path) for path in outcome.tasks)
    ids = [*dev.queries.ids.to_pylist(), *test.queries.ids.to_pylist()]

    assert [path.name for path in outcome.tasks] == ["tiny-dev", "tiny-test"]
    assert sorted(ids) == sorted(str(index) for index in range(len(CASES)))
    assert r2med.load_task(f"{outcome.folder / 'hub'}#dev").hash == dev.hash


def test_a_judge_of_the_family_that_wrote_the_queries_is_warned_about(
    tmp_path: Path, server: LLMServer
) -> None:
    server.reply = reply
    warnings: list[str] = []
    with Resources(RunOptions(llm_url=server.url), warn=warnings.append) as resources:
        folder = make_items(tmp_path, resources, items={"model": "qwen-7b", "solvers": ["o3-mini"]})
        build_pool(folder, resources)
        prepare_judging(folder, resources, {"judges": ("o3-mini",)})
        assert not any("wrote the queries" in warning for warning in warnings)
        prepare_judging(folder, resources, {"judges": ("qwen-32b",)})

    assert any(warning.startswith("qwen-7b wrote the queries") for warning in warnings)
