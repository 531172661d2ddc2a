"""`r2med audit` from end to end: leaks planted in training files, and what is said of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from r2med.audit.evaluation import TextMatcher, evaluation
from r2med.audit.files import training_files
from r2med.audit.matching import Match
from r2med.audit.scanning import scan
from r2med.errors import DataError
from r2med.execution.resources import Progress
from r2med.explore.pages.about import audits_page
from r2med.explore.render import server_link
from r2med.results.overlap import stored_audits
from r2med.tasks.load import load_task
from r2med.tasks.task import Task
from tests.cli.running import run
from tests.nano.making import task_of
from tests.tasks.writing import Written, write_r2med

TASK = "demo/biology"
FILLER = "An unrelated sentence about the weather in the mountains, number {} of a long series."


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(TASK)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def pair_of(task: Task, number: int = 0) -> tuple[str, str]:
    """A query and one of its positives, by id."""
    query = task.queries.ids.to_pylist()[number]
    judged = task.judgements.by_query()[query]
    return query, next(name for name, score in judged.items() if score > 0)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def filler(count: int) -> list[dict[str, Any]]:
    return [{"query": f"weather {n}", "positive": FILLER.format(n)} for n in range(count)]


def audited(*arguments: str) -> dict[str, Any]:
    outcome = run("audit", *arguments, "--json")
    assert outcome.code == 0, outcome.err
    values: dict[str, Any] = json.loads(outcome.out)
    return values


def test_a_pair_that_was_trained_on_is_the_strongest_finding(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    row = {"query": task.query(query).upper(), "positive": task.document(positive)}
    write_rows(here / "train.jsonl", [*filler(20), row, row])

    values = audited("train.jsonl", "--task", TASK)

    (outcome,) = values["tasks"]
    first = outcome["findings"][0]
    kinds = {(found["kind"], found["role"], found["id"]) for found in outcome["findings"]}
    assert outcome["verdict"] == "contaminated" and values["rows"] == 22
    assert {("pair", "query", query), ("pair", "positive", positive)} <= kinds
    assert first["evidence"][0]["row"] == 21 and first["rows"] == 2
    assert query in outcome["affected_queries"]


def test_clean_data_is_called_clean_and_the_outcome_is_stored(here: Path) -> None:
    write_rows(here / "train.jsonl", filler(50))

    outcome = run("audit", "train.jsonl", "--task", TASK, "--name", "weather", "--out", "report")

    assert outcome.code == 0 and "clean" in outcome.out
    (stored,) = stored_audits(here / "r2med-results", print)
    assert (stored.task, stored.training, stored.verdict, stored.rows) == (
        TASK,
        "weather",
        "clean",
        50,
    )
    assert "weather" in (here / "report" / "audit.md").read_text()
    assert (
        json.loads((here / "report" / "audit.json").read_text())["tasks"][0]["verdict"] == "clean"
    )


def test_a_file_whose_texts_are_in_another_field_is_told(here: Path) -> None:
    write_rows(here / "a.jsonl", [{"text": "some words of a text"}])
    write_rows(here / "b.jsonl", [{"body": "some words of a text"}])

    outcome = run("audit", "a.jsonl", "b.jsonl", "--task", TASK, "--field", "text")

    assert outcome.code == 0
    assert 'b.jsonl: no text in it. Fields seen: "body".' in outcome.err


def test_a_passage_of_a_positives_source_is_named(here: Path) -> None:
    text = "A passage about iron in the blood that is long enough to be told apart."
    own = task_of(
        [("PMC12345_0", text), ("PMC99999_1", "other")], {"q": "asked"}, {"q": {"PMC12345_0": 1}}
    )
    rows = [{"id": "PMC12345_7", "text": "Another passage."}, {"id": "PMC777_7", "text": "No."}]
    files = training_files([str(write_rows(here / "t.jsonl", rows))])

    found = scan(files, TextMatcher(evaluation([own])), here / "log")

    assert [(hit.row, hit.kind) for hit in found.hits] == [(1, "same source")]


def test_scores_are_split_by_affected_and_unaffected_queries(here: Path, task: Task) -> None:
    assert run("eval", "bm25", "--task", TASK).code == 0
    queries = task.queries.texts.to_pylist()[:5]
    write_rows(here / "train.jsonl", [*filler(5), *({"text": text} for text in queries)])

    (effect,) = audited("train.jsonl", "--task", TASK)["effects"]

    counts = effect["affected_queries"], effect["unaffected_queries"]
    parts = effect["affected"] * counts[0] + effect["decontaminated"] * counts[1]
    assert counts == (5, len(task.queries) - 5)
    assert effect["raw"] == pytest.approx(parts / sum(counts))
    assert effect["interval"]["low"] <= effect["difference"] <= effect["interval"]["high"]


def test_scores_are_shown_of_affected_tasks_with_the_system_in_every_row(
    here: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a narrow terminal too, where the columns stand in several tables."""
    both = f"{TASK},demo/medqa-diag"
    assert run("eval", "bm25", "tuned=bm25[k1=2]", "--task", both).code == 0
    write_rows(
        here / "train.jsonl", [{"text": text} for text in task.queries.texts.to_pylist()[:2]]
    )
    monkeypatch.setenv("COLUMNS", "50")

    shown = run("audit", "train.jsonl", "--task", both).out.partition("ndcg@10 × 100")[2]

    tables = shown.split("task: system")[1:]
    assert len(tables) > 1 and "MedQA-Diag" not in shown
    assert all("Biology: bm25 " in part and "Biology: tuned " in part for part in tables)


def test_clean_copies_lack_the_rows_and_say_why(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    rows = [
        *filler(3),
        {"query": task.query(query), "positive": task.document(positive)},
        *filler(2),
    ]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (here / "train.jsonl.gz").write_bytes(gzip.compress(content))
    assert run("audit", "train.jsonl.gz", "--task", TASK, "--write-clean", "clean").code == 0

    kept = gzip.decompress((here / "clean" / "train.jsonl.gz").read_bytes())
    removed = json.loads((here / "clean" / "removed.jsonl").read_text())

    assert kept.splitlines() == [*content.splitlines()[:3], *content.splitlines()[4:]]
    assert gzip.decompress((here / "train.jsonl.gz").read_bytes()) == content
    assert removed["row"] == 4
    assert {"kind": "exact", "column": "query", "task": TASK, "query": query} in removed["because"]
    again = audited("clean/train.jsonl.gz", "--task", TASK)
    assert again["tasks"][0]["verdict"] == "clean"
    assert run("audit", "train.jsonl.gz", "--task", TASK, "--write-clean", "clean").code == 2


def test_parquet_and_text_are_cleaned_in_their_form(here: Path, task: Task) -> None:
    import pyarrow as pa

    rows = [*filler(4), {"query": task.query("1"), "positive": "x"}]
    pq.write_table(pa.Table.from_pylist(rows), here / "a.parquet", row_group_size=2)
    (here / "a.txt").write_text(f"first\n\n{task.query('1')}\n\nlast\n")

    run("audit", "a.parquet", "a.txt", "--task", TASK, "--write-clean", "clean")

    assert pq.read_table(here / "clean" / "a.parquet").to_pylist() == rows[:4]
    assert (here / "clean" / "a.txt").read_text().split() == ["first", "last"]


def test_an_array_and_lines_of_one_name_are_both_kept_when_cleaned(here: Path) -> None:
    write_rows(here / "a.jsonl", filler(3))
    (here / "a.json").write_text(json.dumps(filler(2)))

    run("audit", "a.json", "a.jsonl", "--task", TASK, "--write-clean", "clean")

    assert (here / "clean" / "a.jsonl").read_bytes() == (here / "a.jsonl").read_bytes()
    lines = (here / "clean" / "a.json.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == filler(2)


def test_an_exclusion_list_alone_finds_what_it_lists(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    document = task.document(positive)
    rows = [{"text": task.query(query).upper()}, {"text": f"{FILLER} {document} {FILLER}"}]
    write_rows(here / "train.jsonl", [*filler(10), *rows])
    assert run("tasks", "exclusions", TASK, "--out", "list.jsonl").code == 0

    values = audited("train.jsonl", "--exclusions", "list.jsonl")

    kinds = {(found["id"], found["kind"]) for found in values["tasks"][0]["findings"]}
    assert kinds == {(query, "exact"), (positive, "fingerprint")}
    assert document[:40] not in json.dumps(values["tasks"][0]["findings"][0]["text"])
    broken = run("audit", "train.jsonl", "--exclusions", "train.jsonl")
    assert broken.code == 1 and "not an exclusion list" in broken.err


def test_short_texts_are_listed_apart(here: Path) -> None:
    folder = here / "own"
    folder.mkdir()
    write_rows(folder / "corpus.jsonl", [{"id": "d", "text": "a text"}])
    write_rows(folder / "query.jsonl", [{"id": "q", "text": "What causes scurvy?"}])
    write_rows(folder / "qrels.jsonl", [{"q_id": "q", "p_id": "d", "score": 1}])
    write_rows(here / "train.jsonl", [{"question": "what causes scurvy"}])

    (outcome,) = audited("train.jsonl", "--task", "./own")["tasks"]

    assert outcome["verdict"] == "clean" and not outcome["findings"]
    assert [found["id"] for found in outcome["short"]] == ["q"]


def test_a_sample_of_the_task_comes_with_an_interval(here: Path, task: Task) -> None:
    texts = task.queries.texts.to_pylist()
    write_rows(here / "train.jsonl", [{"text": text} for text in texts[: len(texts) // 2]])

    (outcome,) = audited("train.jsonl", "--task", TASK, "--sample", "8")["tasks"]

    share = next(s for s in outcome["shares"] if (s["role"], s["kind"]) == ("query", "any strong"))
    assert share["of"] == 8
    assert share["interval"]["low"] <= share["affected"] / 8 <= share["interval"]["high"]


def test_bad_files_are_named_and_strict_stops_at_them(here: Path) -> None:
    (here / "bad.jsonl").write_text('{"text": "some words that are fine"}\n{"text": \n')
    (here / "bad.parquet").write_bytes(b"nothing")
    (here / "empty.jsonl").write_text("")

    lenient = run("audit", "bad.jsonl", "bad.parquet", "empty.jsonl", "--task", TASK)
    strict = run("audit", "bad.jsonl", "--task", TASK, "--strict")

    assert lenient.code == 0
    assert "1 of 2 rows cannot be read" in lenient.err and "bad.jsonl, line 2" in lenient.err
    assert "bad.parquet: not a readable Parquet file" in lenient.err
    assert "empty.jsonl is empty" in lenient.err
    assert strict.code == 1 and "bad.jsonl, line 2" in strict.err


def test_data_without_text_shows_the_fields_it_has(here: Path) -> None:
    write_rows(here / "numbers.jsonl", [{"vector": [1, 2], "label": 3}])

    outcome = run("audit", "numbers.jsonl", "--task", TASK)

    assert outcome.code == 1
    assert '"vector", "label"' in outcome.err and "--field" in outcome.err


class _KilledError(Exception):
    pass


def killed_after(pieces: int) -> Progress:
    seen = 0

    def progress(what: str, done: int, total: int, seconds: float) -> None:
        nonlocal seen
        seen += 1
        if seen == pieces:
            raise _KilledError

    return progress


def test_a_killed_audit_goes_on_where_it_was(
    here: Path, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("r2med.tasks.reading.lines.BLOCK_BYTES", 1000)
    query, positive = pair_of(task)
    leak = {"query": task.query(query), "positive": task.document(positive)}
    files = training_files([str(write_rows(here / "t.jsonl", [*filler(60), leak, *filler(60)]))])
    matcher = TextMatcher(evaluation([task]))
    whole = scan(files, matcher, here / "other")
    with pytest.raises(_KilledError):
        scan(files, matcher, here / "log", progress=killed_after(8))
    (log,) = (here / "log").glob("*/*.jsonl")
    log.write_bytes(log.read_bytes()[:-20])
    asked: list[int] = []
    real = matcher.matches

    def counted(texts: Sequence[str]) -> list[Match]:
        asked.append(len(texts))
        return real(texts)

    monkeypatch.setattr(matcher, "matches", counted)

    resumed = scan(files, matcher, here / "log")

    assert resumed == whole and resumed.hits
    (all_pieces,) = (here / "other").glob("*/*.jsonl")
    assert 0 < len(asked) < len(all_pieces.read_text().splitlines())
    asked.clear()
    scan(files, matcher, here / "log")
    assert asked == []


def test_few_texts_are_kept_where_most_rows_are_leaks(here: Path, task: Task) -> None:
    path = write_rows(here / "t.jsonl", [{"text": task.query("1")}] * 500)

    found = scan(training_files([str(path)]), TextMatcher(evaluation([task])), here / "log")

    assert len(found.hits) == 500 and sum(bool(hit.text) for hit in found.hits) == 3


def test_two_processes_find_what_one_finds(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    leak = {"query": task.query(query), "positive": task.document(positive)}
    names = [str(write_rows(here / f"{n}.jsonl", [*filler(n), leak])) for n in range(3)]
    matcher = TextMatcher(evaluation([task]))

    alone = scan(training_files(names), matcher, here / "one", processes=1)
    together = scan(training_files(names), matcher, here / "two", processes=2)

    assert together == alone and len(alone.hits) == 6


def test_strict_scans_raise_for_a_damaged_file(here: Path) -> None:
    (here / "cut.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 99)[:-9])
    files = training_files([str(here / "cut.jsonl.gz")])
    matcher = TextMatcher(evaluation([task_of([("d", "t")], {"q": "a"}, {"q": {"d": 1}})]))

    with pytest.raises(DataError, match="cut off"):
        scan(files, matcher, here / "log", strict=True)
    assert list(scan(files, matcher, here / "log").failed) == ["cut.jsonl.gz"]


def test_a_benchmark_is_held_against_itself(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    text = task.document(positive)
    folder = here / "own"
    folder.mkdir()
    documents = [
        {"id": "a", "text": text},
        {"id": "b", "text": text.upper()},
        {"id": "c", "text": "z"},
    ]
    write_rows(folder / "corpus.jsonl", documents)
    asked = {
        "id": "q",
        "text": f"Warn me of iron deficiency: {task.query(query)}",
        "answer": "Iron deficiency",
    }
    write_rows(folder / "query.jsonl", [asked])
    write_rows(folder / "qrels.jsonl", [{"q_id": "q", "p_id": "a", "score": 1}])

    values = json.loads(run("audit", "--self", f"./own,{TASK}", "--json").out)

    rows = {
        (r["issue"], r["kind"], r["task"] == r["other_task"], r["role"] == "query")
        for r in values["repeats"]
    }
    assert ("repeated", "exact", True, False) in rows
    assert ("repeated", "exact", False, False) in rows
    assert ("repeated", "contained", False, True) in rows
    assert ("label noise", "exact", True, False) in rows
    assert ("answer named", "contained", False, True) in rows
    shown = run("audit", "--self", f"./own,{TASK}").out
    assert "label noise" in shown and "answer named" in shown


def test_what_to_look_for_must_be_said(here: Path) -> None:
    write_rows(here / "train.jsonl", filler(1))

    assert run("audit", "train.jsonl").code == 2
    assert run("audit", "--task", TASK).code == 2
    assert "queries" in run("audit", "train.jsonl", "--task", TASK, "--against", "query").err


def test_a_text_of_similar_meaning_is_a_weak_finding(here: Path, task: Task) -> None:
    shuffled = " ".join(sorted(task.query("1").split(), key=len))
    write_rows(here / "train.jsonl", [*filler(5), {"text": shuffled}])

    near = audited("train.jsonl", "--task", TASK, "--neighbours", "wordllama")
    wrong = run("audit", "train.jsonl", "--task", TASK, "--neighbours", "bm25")

    (outcome,) = near["tasks"]
    assert [(found["kind"], found["id"]) for found in outcome["findings"]] == [("neighbour", "1")]
    assert outcome["findings"][0]["evidence"][0]["measures"]["cosine"] >= 0.9
    assert outcome["verdict"] == "suspicious"
    assert wrong.code == 2 and "not an encoder" in wrong.err


def test_the_card_of_a_task_shows_the_outcome(here: Path, task: Task) -> None:
    write_rows(here / "train.jsonl", [{"text": task.query("1")}])
    before = ("tasks", "card", TASK, "--dense", "none", "--out")
    assert run(*before, "first").code == 0
    assert run("audit", "train.jsonl", "--task", TASK, "--name", "my set").code == 0
    assert run(*before, "second").code == 0

    first, second = ((here / name / "demo-biology.md").read_text() for name in ("first", "second"))

    assert "not audited" in first and "not audited" not in second
    assert "my set (1 row): contaminated" in second


def test_evidence_begins_where_the_texts_agree(here: Path, task: Task) -> None:
    long = " ".join(FILLER.format(n) for n in range(300))
    write_rows(here / "train.jsonl", [{"text": f"{long} {task.query('1')} {long}"}])

    (outcome,) = audited("train.jsonl", "--task", TASK)["tasks"]

    shown = outcome["findings"][0]["evidence"][0]["text"]
    assert " ".join(task.query("1").split()[:12]) in " ".join(shown.split())[:200]


def test_the_explorer_shows_verdicts_and_both_texts_without_their_markup(
    here: Path, task: Task
) -> None:
    write_rows(here / "train.jsonl", [{"text": f"<script>alert(1)</script> {task.query('1')}"}])
    assert run("audit", "train.jsonl", "--task", TASK, "--name", "<b>mine</b>").code == 0

    page = audits_page(
        stored_audits(here / "r2med-results", print), ["one is damaged"], server_link
    )

    assert "contaminated" in page and "one is damaged" in page
    assert "&lt;script&gt;" in page and "<script>alert" not in page and "<b>mine" not in page
    assert "No training set has been audited here." in audits_page([], [], server_link)


def test_a_row_that_cannot_be_read_is_not_in_the_clean_copy(here: Path, task: Task) -> None:
    leaked = task.query(task.queries.ids[0].as_py())
    lines = [json.dumps(row) for row in filler(3)]
    lines += [json.dumps({"query": leaked}), '{"query": "cut off']
    Path("train.jsonl").write_text("\n".join(lines) + "\n")
    Path("table.csv").write_text("query,answer\na sentence,b\nonly one column\nanother,d\n")

    done = run("audit", "train.jsonl", "table.csv", "--task", TASK, "--write-clean", "clean")

    assert Path("clean/train.jsonl").read_text().splitlines() == lines[:3]
    assert Path("clean/table.csv").read_text() == "query,answer\na sentence,b\nanother,d\n"
    assert "train.jsonl without 1 leaked row and 1 unreadable row; 3 rows kept" in done.err
    removed = [json.loads(line) for line in Path("clean/removed.jsonl").read_text().splitlines()]
    unreadable = [row for row in removed if row["because"][0]["kind"] == "unreadable"]
    places = [(row["file"], row["row"]) for row in unreadable]
    assert places == [("train.jsonl", 5), ("table.csv", 3)]


def test_no_planted_text_stays_in_the_clean_copy(here: Path) -> None:
    """Short texts, texts that share most of their words, and texts inside longer rows."""
    template = (
        "A {} year old patient comes to the clinic with {} since {} days and asks which of the "
        "following is the most likely diagnosis given the findings above"
    )
    family = [template.format(20 + n, "pain" if n % 2 else "fever", n % 7) for n in range(120)]
    short = [f"which nerve number {n} moves" for n in range(40)]
    alone = [
        f"Observation {n}: {' '.join(f'finding{n}x{m}' for m in range(30))}" for n in range(40)
    ]
    texts = [*family, *short, *alone]
    queries = tuple((f"q{n}", text) for n, text in enumerate(texts))
    judgements = (("q0", "d1", 1),)
    write_r2med(here / "own", Written(queries=queries, judgements=judgements))
    longer = [f"{FILLER} {text} {FILLER}" for text in texts]
    planted = [{"text": longer[n] if n % 2 else text} for n, text in enumerate(texts)]
    write_rows(here / "train.jsonl", [*filler(50), *planted])

    run("audit", "train.jsonl", "--task", "own", "--against", "queries", "--write-clean", "clean")

    kept = Path("clean/train.jsonl").read_text().splitlines()
    assert len(planted) == 200
    assert kept == [json.dumps(row) for row in filler(50)]


def test_fail_if_ends_with_4_on_the_verdict_named_or_a_worse_one(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    row = {"query": task.query(query), "positive": task.document(positive)}
    write_rows(here / "leaked.jsonl", [*filler(5), row])
    write_rows(here / "clean.jsonl", filler(5))

    for verdict in ("contaminated", "suspicious"):
        leaked = run("audit", "leaked.jsonl", "--task", TASK, "--fail-if", verdict)
        clean = run("audit", "clean.jsonl", "--task", TASK, "--fail-if", verdict)

        assert leaked.code == 4
        assert f"failed: {TASK} is contaminated: strong findings for" in leaked.out
        assert (clean.code, clean.out.splitlines()[-1]) == (0, f"passed: no task is {verdict}")


def test_fail_if_keeps_json_on_its_own(here: Path, task: Task) -> None:
    query, positive = pair_of(task)
    write_rows(here / "t.jsonl", [{"q": task.query(query), "p": task.document(positive)}])

    done = run("audit", "t.jsonl", "--task", TASK, "--fail-if", "contaminated", "--json")

    assert done.code == 4
    assert json.loads(done.out)["tasks"][0]["verdict"] == "contaminated"


def test_fail_if_does_not_pass_when_a_file_was_not_read_to_its_end(here: Path) -> None:
    content = gzip.compress("".join(json.dumps(row) + "\n" for row in filler(500)).encode())
    (here / "cut.jsonl.gz").write_bytes(content[: len(content) // 2])

    write_rows(here / "whole.jsonl", filler(5))

    done = run("audit", "cut.jsonl.gz", "whole.jsonl", "--task", TASK, "--fail-if", "contaminated")

    assert done.code == 4
    assert "failed: cut.jsonl.gz" in done.out
