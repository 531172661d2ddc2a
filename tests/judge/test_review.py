"""Review: a blind stratified queue, decisions that survive, files in and out, settlement."""

from __future__ import annotations

import csv
import io
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError, UsageError
from r2med.judge.added import choose_judgements
from r2med.judge.agreement import measure_agreement
from r2med.judge.pool import query_texts, texts_of
from r2med.judge.review import (
    ReviewQueue,
    ReviewStore,
    build_queue,
    check_attention,
    label_pair,
    settle_pair,
)
from r2med.judge.review_files import export_review, import_review
from r2med.judge.review_report import report_review
from r2med.judge.rubric import find_rubric
from r2med.judge.spreadsheet import read_spreadsheet, write_spreadsheet
from r2med.judge.store import Pair
from tests.judge.making import GRADED, make_task, store_grades

DOCUMENTS = {f"secret-{number}": f"text number {number}" for number in range(60)}
QUERIES = {"q1": "what is number", "q2": "=which text"}
KNOWN = {"q1": {"secret-0": 1, "secret-1": 0}, "q2": {"secret-0": 1, "secret-1": 0}}
TASK = make_task(DOCUMENTS, QUERIES, KNOWN)
GRADES = {(q, f"secret-{n}"): n % 4 for q in QUERIES for n in range(2, 60)}
SYSTEMS = {
    pair: (("rare",) if pair[1] == "secret-7" else ("a", "b") if int(pair[1][7:]) % 2 else ("a",))
    for pair in GRADES
}


@pytest.fixture
def queue(tmp_path: Path) -> ReviewQueue:
    judged = store_grades(tmp_path, TASK, "x", GRADES, systems=SYSTEMS)
    return build_queue(TASK, [judged], size=40)


@pytest.fixture
def store(tmp_path: Path, queue: ReviewQueue) -> ReviewStore:
    opened = open_store(tmp_path)
    opened.open(queue)
    return opened


def open_store(results: Path) -> ReviewStore:
    return ReviewStore(results, TASK.name, TASK.suite, warn=pytest.fail)


def texts(pair: Pair) -> dict[str, str]:
    return {**query_texts(TASK)[pair[0]], "passage": texts_of(TASK, [pair[1]])[pair[1]]}


def test_the_queue_has_all_grades_all_systems_and_known_pairs(queue: ReviewQueue) -> None:
    pairs = [pair for pair in queue.pairs if pair not in queue.checks]

    grades = Counter(GRADES[pair] for pair in pairs)
    assert len(queue.pairs) == 40 and len(set(queue.pairs)) == 40
    assert set(grades) == {0, 1, 2, 3} and max(grades.values()) - min(grades.values()) <= 4
    assert {system for pair in pairs for system in SYSTEMS[pair]} == {"a", "b", "rare"}
    assert sorted(queue.checks.values()) == [False, False, True, True]


def test_pairs_on_which_judges_disagree_come_first(tmp_path: Path) -> None:
    first = store_grades(tmp_path, TASK, "x", GRADES)
    disputed = {("q1", "secret-4"), ("q2", "secret-9")}
    other = {pair: 3 - grade if pair in disputed else grade for pair, grade in GRADES.items()}
    second = store_grades(tmp_path, TASK, "y", other)

    queue = build_queue(TASK, [first, second], size=3)

    assert disputed <= set(queue.pairs)


def test_order_differs_by_reviewer_and_larger_queues_keep_smaller_ones(
    tmp_path: Path, queue: ReviewQueue
) -> None:
    judged = store_grades(tmp_path, TASK, "x2", GRADES, systems=SYSTEMS)
    larger = build_queue(TASK, [judged], size=80)

    assert queue.order("ann") != queue.order("ben")
    assert sorted(queue.order("ann")) == sorted(queue.order("ben"))
    assert set(queue.pairs) <= set(larger.pairs)


def test_up_to_five_pairs_of_a_query_follow_each_other(queue: ReviewQueue) -> None:
    counts = Counter(query_id for query_id, _ in queue.pairs)
    changes = sum(
        first[0] != second[0] for first, second in pairwise([*queue.order("ann"), ("end", "")])
    )

    assert len(counts) > 1 and max(counts.values()) > 5
    assert changes <= sum(-(-count // 5) for count in counts.values())


def test_codes_do_not_show_ids(queue: ReviewQueue) -> None:
    assert len(queue.codes) == len(queue.pairs)
    assert not any("secret" in code or "q1" in code for code in queue.codes)


def test_sets_of_different_scales_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    text = Path(__file__).parents[2] / "src/r2med/judge/rubrics/graded.toml"
    binary = text.read_text().replace("most = 3", "most = 1").replace("to = 1", "to = 0")
    binary = binary.replace("relevant_from = 2", "relevant_from = 1")
    path.write_text("\n".join(r for r in binary.splitlines() if r[:3] not in ("2 =", "3 =")))
    first = store_grades(tmp_path, TASK, "x", GRADES)
    second = store_grades(
        tmp_path, TASK, "y", {("q1", "secret-3"): 1}, rubric=find_rubric(str(path))
    )

    with pytest.raises(DataError, match="different scales"):
        build_queue(TASK, [first, second])
    with pytest.raises(MissingError, match="no judgements to review"):
        build_queue(TASK, [])


def test_decisions_are_read_back_by_another_process_and_undone(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue
) -> None:
    first, second, third = queue.order("ann")[:3]
    store.add(label_pair(queue, "ann", first, 3, comment="c", span="text", seconds=4.0))
    store.add(label_pair(queue, "ann", second, None))
    other = open_store(tmp_path)
    other.add(label_pair(queue, "ben", first, 1))
    store.add(label_pair(queue, "ann", third, 0))

    assert store.labels() == other.labels() == {"ann": {first: 3, third: 0}, "ben": {first: 1}}
    assert store.decisions("ann")[first].span == "text"
    assert store.decisions("ann")[second].label is None
    assert other.undo("ann") == third and store.undo("ann") == second
    assert list(store.decisions("ann")) == [first]
    assert store.undo("nobody") is None


@given(steps=st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["0", "3", "skip", "undo"]))))
def test_the_log_replays_to_the_same_labels(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, str]]
) -> None:
    folder = tmp_path_factory.mktemp("review")
    queue = ReviewQueue(GRADED, tuple(GRADES)[:5])
    store = open_store(folder)
    expected: dict[Pair, int | None] = {}
    for position, step in steps:
        pair = queue.pairs[position]
        if step == "undo":
            undone = store.undo("ann")
            assert undone == (list(expected)[-1] if expected else None)
            if undone:
                del expected[undone]
            continue
        label = None if step == "skip" else int(step)
        store.add(label_pair(queue, "ann", pair, label))
        expected.pop(pair, None)
        expected[pair] = label

    again = open_store(folder)

    assert {p: d.label for p, d in again.decisions("ann").items()} == expected
    assert list(again.decisions("ann")) == list(expected)


def test_labels_off_the_scale_and_foreign_pairs_are_refused(queue: ReviewQueue) -> None:
    with pytest.raises(UsageError, match="label 4 is not on the scale"):
        label_pair(queue, "ann", queue.pairs[0], 4)
    with pytest.raises(UsageError, match="not in the queue"):
        label_pair(queue, "ann", ("q1", "other"), 1)
    with pytest.raises(UsageError, match="--reviewer"):
        label_pair(queue, " ", queue.pairs[0], 1)


def test_disagreements_are_settled_with_a_reason(store: ReviewStore, queue: ReviewQueue) -> None:
    same, disputed, outvoted = queue.order("ann")[:3]
    for reviewer, labels in {"ann": (2, 3, 3), "ben": (2, 0, 3), "eve": (2, 1, 0)}.items():
        for pair, label in zip((same, disputed, outvoted), labels, strict=True):
            store.add(label_pair(queue, reviewer, pair, label))

    assert set(store.disagreements()) == {disputed, outvoted}
    assert store.final_labels() == {same: 2, outvoted: 3}
    with pytest.raises(UsageError, match="needs a reason"):
        settle_pair(queue, disputed, 1, settled_by="head", reason=" ")
    store.add(settle_pair(queue, disputed, 1, settled_by="head", reason="guideline"))
    assert store.final_labels()[disputed] == 1
    settled = store.settled_decisions()[disputed]
    assert (settled.reviewer, settled.comment) == ("head", "guideline")
    assert store.disagreements() == [outvoted]


def test_labels_that_tie_but_mean_the_same_need_no_settlement(
    store: ReviewStore, queue: ReviewQueue
) -> None:
    irrelevant, relevant, disputed = queue.order("ann")[:3]
    for reviewer, labels in {"ann": (0, 2, 1), "ben": (1, 3, 2)}.items():
        for pair, label in zip((irrelevant, relevant, disputed), labels, strict=True):
            store.add(label_pair(queue, reviewer, pair, label))

    assert store.final_labels() == {}
    assert store.final_labels(GRADED) == {irrelevant: 0, relevant: 2}


def test_labels_of_people_are_added_judgements(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue
) -> None:
    pair = next(pair for pair in queue.pairs if pair not in queue.checks and GRADES[pair] == 0)
    store.add(label_pair(queue, "ann", pair, 3))

    def score(choice: str) -> int:
        chosen = choose_judgements(TASK, choice, tmp_path, warn=pytest.fail)
        return chosen.judgements.by_query()[pair[0]][pair[1]]

    assert (score("review"), score("all"), score("x")) == (1, 1, 0)


def test_the_report_compares_people_and_judges(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue
) -> None:
    judged = store_grades(tmp_path, TASK, "x", {})
    for pair in queue.pairs:
        known = queue.checks.get(pair)
        label = GRADES[pair] if known is None else 3 * known
        store.add(label_pair(queue, "ann", pair, label))
        store.add(label_pair(queue, "ben", pair, min(3, label + 1)))

    report = report_review(TASK, queue, store, [judged])

    assert report.agreement.raters == ("ann", "ben", "judge x")
    assert report.alpha_of_reviewers == measure_agreement(store.labels(), GRADED.scale).alpha
    assert report.alpha_of_reviewers != report.agreement.alpha
    pairs = {(p.first, p.second): p for p in report.agreement.pairs}
    assert pairs["ann", "judge x"].percent.value == 1.0
    kappa = pairs["ann", "ben"].weighted_kappa.value
    assert kappa is not None and 0 < kappa < 1
    assert [(check.reviewer, check.checked) for check in report.attention] == [
        ("ann", 4),
        ("ben", 4),
    ]
    assert check_attention(queue, store)[0].correct == 4
    assert "Krippendorff" in str(report)


@pytest.mark.parametrize("ending", ["csv", "xlsx"])
def test_a_file_goes_out_blind_and_comes_back(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue, ending: str
) -> None:
    path = tmp_path / f"ann.{ending}"
    export_review(path, queue, "ann", texts, store)
    rows = read_rows(path)
    everything = "".join(cell for row in rows for cell in row)
    assert "secret" not in everything and len(rows) == 41
    assert {row[3] for row in rows[1:]} == {"what is number", "'=which text"}
    for number, row in enumerate(rows[1:]):
        row[1], row[2] = str(number % 4), "=sure" if number == 0 else ""
    write_rows(path, rows)

    first = import_review(path, queue, "ann", store)
    again = import_review(path, queue, "ann", store)

    assert (first.labels, again.labels, again.unchanged) == (40, 0, 40)
    expected = {pair: n % 4 for n, pair in enumerate(queue.order("ann"))}
    assert store.labels()["ann"] == expected
    export_review(path, queue, "ann", texts, store)
    assert read_rows(path)[1][1:3] == ["0", "'=sure"]
    assert import_review(path, queue, "ann", store).unchanged == 40


def read_rows(path: Path) -> list[list[str]]:
    if path.suffix == ".xlsx":
        return read_spreadsheet(path)
    return list(csv.reader(io.StringIO(path.read_text("utf-8-sig"), newline="")))


def write_rows(path: Path, rows: list[list[str]]) -> None:
    if path.suffix == ".xlsx":
        path.write_bytes(write_spreadsheet(rows))
    else:
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)


def test_a_file_with_mistakes_names_them_all_and_stores_nothing(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue
) -> None:
    codes = [queue.code(pair) for pair in queue.pairs]
    rows = [
        ["code", "label", "comment"],
        [codes[0], "3", ""],
        ["unknown", "1", ""],
        [codes[1], "7", ""],
        [codes[0], "2", ""],
        [codes[2], "", ""],
        [codes[3], "high", ""],
    ]
    path = tmp_path / "bad.csv"
    write_rows(path, rows)

    with pytest.raises(DataError, match="nothing was imported") as problem:
        import_review(path, queue, "ann", store)

    for finding in (
        "row 3: code 'unknown' is not in the queue",
        "row 4: label '7' is not on the scale",
        f"row 5: code {codes[0]} is in an earlier row with another label",
        "1 rows without a label (rows 6)",
        "row 7: label 'high'",
    ):
        assert finding in str(problem.value)
    assert store.labels() == {}
    write_rows(path, [rows[0], rows[1], rows[5]])
    assert import_review(path, queue, "ann", store, partial=True).labels == 1


@pytest.mark.parametrize(
    ("name", "content", "finding"),
    [
        ("a.csv", b"x,y\n1,2\n", "no columns code and label"),
        ("a.csv", b"code,label\n\xff\xfe,1\n", "expected CSV in UTF-8"),
        ("a.xlsx", b"not a zip", "not a readable .xlsx file"),
        ("a.csv", b"", "no columns code and label"),
    ],
)
def test_unreadable_files_are_refused(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue, name: str, content: bytes, finding: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(DataError) as problem:
        import_review(path, queue, "ann", store)
    assert finding in str(problem.value)


@given(rows=st.lists(st.lists(st.text(max_size=20), min_size=1, max_size=4), max_size=6))
def test_spreadsheets_keep_texts(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("sheet") / "a.xlsx"
    path.write_bytes(write_spreadsheet(rows))

    read = read_spreadsheet(path)

    for written, back in zip(rows, read, strict=True):
        for cell, found in zip(written, back, strict=True):
            printable = [c for c in cell if c.isprintable()]
            assert [c for c in found if c.isprintable() and c != " "] == [
                c for c in printable if c != " "
            ]


def test_a_stored_queue_grows_and_refuses_another_rubric(
    tmp_path: Path, store: ReviewStore, queue: ReviewQueue
) -> None:
    judged = store_grades(tmp_path, TASK, "x", {})
    larger = store.open(build_queue(TASK, [judged], size=80))

    assert set(queue.pairs) <= set(larger.pairs) == set(open_store(tmp_path).queue().pairs)
    other = store_grades(tmp_path, TASK, "r", GRADES, rubric=find_rubric("reasoning"))
    with pytest.raises(UsageError, match="another rubric"):
        store.open(build_queue(TASK, [other]))
