from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med import compare, evaluate_all
from r2med.report.cards.facts import find_failures, prose_of
from r2med.report.cards.pages import html, page_names, write_cards
from r2med.report.formats import Page, markdown
from r2med.report.table import Column, Grid
from r2med.runs import Run
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite
from tests.building import texts
from tests.cli.running import run
from tests.nano.making import contents, task_of


class Reader(HTMLParser):
    """Collects text and tags, as a browser would see them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(text: str) -> Page:
    page = Page()
    for style in ("title", "section", "bold", "item", "quote", "note", "link other"):
        page.print(f"x{text}", style=style)
    page.print(Grid([Column(text)], [[text]], title=f"x{text}", caption=f"x{text}"))
    return page


@given(st.text(alphabet="<>&\"'abc/=! scriptonl", min_size=1))
def test_no_text_becomes_markup_in_html(text: str) -> None:
    plain, strange = Reader(html(page_of("x"), "page")), Reader(html(page_of(text), "page"))

    assert strange.tags == plain.tags


@given(st.text(alphabet="<>[]()*_`|#-+1. \n\\ab"))
def test_no_text_breaks_a_line_or_a_table_in_markdown(text: str) -> None:
    told = markdown(text)

    assert "\n" not in told
    assert not re.search(r"(?<!\\)(?:\\\\)*[<|`*\[\]]", told)
    assert not re.match(r"#+ ", told)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("## 1", r"\## 1"), ("1. a", r"1\. a"), ("---", r"\---"), ("-1 a", "-1 a"), ("1.5", "1.5")],
)
def test_the_beginning_of_a_text_is_no_heading_list_or_rule(text: str, expected: str) -> None:
    assert markdown(text) == expected


def test_a_page_is_one_file_without_scripts_or_anything_loaded() -> None:
    page = html(page_of("text"), "page")

    assert not {"script", "link", "img", "iframe"} & set(Reader(page).tags)
    assert "prefers-color-scheme: dark" in page and "@media print" in page
    assert "http" not in page and "url(" not in page


@pytest.mark.parametrize("entry", find_suite("full").entries, ids=lambda entry: entry.name)
def test_every_task_has_prose_without_a_figure_typed_in(entry: object) -> None:
    prose = prose_of(entry)  # type: ignore[arg-type]

    failures = prose.pop("failures")
    assert [*prose] == ["overview", "measures", "interpretation", "training", "sources"]
    assert all(len(text) > 40 for text in prose.values())
    assert len(failures) == 3
    assert not re.search(r"\d", " ".join([*prose.values(), *failures]))


SECTIONS = [
    "Overview",
    "Measured ability",
    "Data profile",
    "Retrieval behaviour",
    "Interpretation",
    "Failure modes",
    "Training and leakage",
    "Examples",
    "Sources",
]


def test_a_card_has_every_section_in_three_forms(tmp_path: Path) -> None:
    outcome = run(
        "tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path / "cards")
    )

    assert outcome.code == 0
    page = (tmp_path / "cards" / "demo-biology.md").read_text()
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    assert all(
        title in (tmp_path / "cards" / "demo-biology.html").read_text() for title in SECTIONS
    )
    told = json.loads((tmp_path / "cards" / "demo-biology.json").read_text())
    assert len(told["examples"]) == 3


def test_the_group_page_labels_both_means_and_links_every_task(tmp_path: Path) -> None:
    hits_by_task, found, total = [], 0, 0
    for result in evaluate_all("bm25-nano", "demo"):
        hits = []
        for query, judged in load_task(result.task).judgements.by_query().items():
            positives = {document for document, score in judged.items() if score > 0}
            ranked = result.run.ranked_documents(query)
            hits.append(not positives.isdisjoint(ranked[:10]))
            found += len(positives.intersection(ranked[:100]))
            total += len(positives)
        hits_by_task.append(hits)
    by_query = 100 * fmean(hit for hits in hits_by_task for hit in hits)
    by_task = 100 * fmean(map(fmean, hits_by_task))

    run("tasks", "card", "demo", "--dense", "none", "--out", str(tmp_path))

    page = (tmp_path / "index.md").read_text()
    assert "query-weighted mean" in page and "task mean" in page
    assert (
        f"BM25: hit@10 {by_query:.2f} query-weighted, {by_task:.2f} task mean; "
        f"recall@100 {100 * found / total:.2f} micro"
    ) in page
    assert "| demo/medqa-diag | " in page.partition("## Failures")[2]
    links = re.findall(r"\]\(([^)]+)\)", page)
    assert len(links) == 8 and all((tmp_path / link).is_file() for link in links)


def test_figures_come_from_stored_results_of_this_very_data(tmp_path: Path) -> None:
    results = evaluate_all(["bm25", "bm25-lucene"], ["demo/biology"])

    run("tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path))

    page = (tmp_path / "demo-biology.md").read_text()
    for result in results:
        assert f"| {result.system} | {100 * result.metrics['ndcg@10']:.2f} |" in page
    assert "from the stored result of" in page


def test_the_same_card_twice_is_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run("tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path / name))

    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_a_folder_that_is_not_empty_is_left_alone_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    arguments = ("tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path))

    refused = run(*arguments)
    forced = run(*arguments, "--force")

    assert refused.code == 2 and "is not empty" in refused.err
    assert forced.code == 0 and (tmp_path / "mine.txt").read_text() == "keep"


CONFUSED = task_of(
    [
        ("stroke", "weakness of one side due to a clot in the brain"),
        ("tumour", "slow growth inside the skull"),
        ("filler", "unrelated words about gardening"),
        *((f"f{i}", f"filler {i}") for i in range(20)),
    ],
    {"1": "sudden weakness of one side", "2": "headache and slow weakness of one side"},
    {"1": {"stroke": 1}, "2": {"tumour": 1}},
    answers={"1": "Stroke", "2": "Tumour"},
    body_systems={"1": "Nervous", "2": "Nervous"},
)


def test_the_three_kinds_of_failure_are_found_in_a_real_ranking() -> None:
    ranked = Run.from_lists(
        {"1": [("stroke", 2.0)], "2": [("stroke", 3.0), *((f"f{i}", 1.0) for i in range(12))]}
    )

    diagnosis, overlap, missing = find_failures(CONFUSED, ranked)

    assert [failure.query for failure in diagnosis.examples] == ["2"]
    assert "asked for is Tumour, but evidence for Stroke" in diagnosis.examples[0].detail
    assert overlap.affected == 1 and "weakness" in overlap.examples[0].detail
    assert [failure.positive for failure in missing.examples] == ["tumour"]


def test_queries_that_lost_all_their_positives_are_shown_first() -> None:
    few = {f"q{n}": f"question {n}" for n in range(4)}
    judged = {"q0": {"a": 1, "b": 1}, "q1": {"a": 1, "b": 1}, "q2": {"b": 1}, "q3": {"b": 1}}
    task = task_of([("a", "first"), ("b", "second"), ("c", "third")], few, judged)

    *_, missing = find_failures(task, Run.from_lists({query: [("a", 1.0)] for query in few}))

    assert missing.affected == 4
    assert [failure.query for failure in missing.examples] == ["q2", "q3"]


def test_a_positive_below_what_counts_as_retrieved_keeps_its_rank() -> None:
    ranked = Run.from_lists({"2": [*((f"f{i}", 30.0 - i) for i in range(12)), ("tumour", 1.0)]})

    *_, missing = find_failures(CONFUSED, ranked)

    unlisted, listed = missing.examples
    assert (unlisted.query, unlisted.first, unlisted.positive_rank) == ("1", None, None)
    assert (listed.positive, listed.positive_rank) == ("tumour", 13)
    assert "not among the first 10" in listed.detail


def test_a_card_never_says_that_a_listed_document_is_not_listed(tmp_path: Path) -> None:
    [result] = evaluate_all(["bm25"], ["demo/biology"])

    run("tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path))

    told = json.loads((tmp_path / "demo-biology.json").read_text())
    for failure in (one for kind in told["failures"] for one in kind["examples"]):
        names = [name for name, _ in result.ranked.ranking(failure["query"])]
        rank = failure["positive_rank"]
        assert (names.index(failure["positive"]) + 1 if rank else None) == rank
        assert rank or failure["positive"] not in names


def test_figures_of_candidates_made_here_name_the_system_that_ranked_them(tmp_path: Path) -> None:
    run("tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path))

    page = (tmp_path / "demo-biology.md").read_text()
    assert "BM25 is bm25-nano, run here." in page
    assert "BM25 is bm25." not in page


def test_two_stored_systems_are_told_apart_by_a_paired_test(tmp_path: Path) -> None:
    evaluate_all(["bm25", "bm25[k1=3.0]"], ["demo/biology"])

    run("tasks", "card", "demo/biology", "--dense", "none", "--out", str(tmp_path))

    page = (tmp_path / "demo-biology.md").read_text()
    [pair] = compare("bm25", "bm25[k1=3.0]", task="demo/biology").verdicts
    assert f"{abs(100 * pair.difference.difference):.1f} points" in page and "Judged@10" in page


def test_tasks_whose_names_read_alike_share_no_page(tmp_path: Path) -> None:
    names = ["a b", "a-b", "A/B", "index", "..", "a-b-2"]
    tasks = [replace(CONFUSED, name=name) for name in names]

    pages = write_cards(tasks, tmp_path, "all", results=[], dense=None)

    assert len({page.lower() for page in pages}) == len(names) + 1
    assert pages == [*page_names(names), "index"]
    links = re.findall(r"\[(.*?)\]\((.*?)\.md\)", (tmp_path / "index.md").read_text())
    assert len(links) == len(names)
    for name, (_, page) in zip(names, links, strict=True):
        assert json.loads((tmp_path / f"{page}.json").read_text())["task"] == name


def test_a_query_without_an_answer_is_no_wrong_diagnosis() -> None:
    queries = CONFUSED.queries
    unknown = replace(CONFUSED, queries=replace(queries, answers=texts("Stroke", None)))

    diagnosis, *_ = find_failures(unknown, Run.from_lists({"2": [("stroke", 1.0)]}))

    assert (diagnosis.affected, diagnosis.of) == (0, 1)


def test_a_kind_that_the_data_cannot_tell_is_left_open() -> None:
    task = task_of([("d", "x"), ("e", "y")], {"1": "x"}, {"1": {"d": 1}})

    diagnosis, *_ = find_failures(task, Run.from_lists({"1": [("e", 1.0)]}))

    assert diagnosis.of == 0 and not diagnosis.examples


def test_markdown_shows_texts_of_the_data_as_text() -> None:
    page = page_of("<b>bold</b> | # not a heading").to_markdown()

    assert "<b>" not in page
