"""The explorer in a real browser: pages, sorting, filters, keyboard, narrow screens, no script."""

from __future__ import annotations

import re
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from r2med.tasks.load import load_task
from tests.explore.conftest import Site, Visit, visiting

QUERY = "/task/demo/medqa-diag/query/8"
COMPARE = "/compare?scope=demo/medqa-diag&system=bm25&system=bm25-lucene"
PAGES = (
    "/",
    "/leaderboard?suite=full&search=hyde+nv",
    "/system?suite=demo&system=bm25",
    "/tasks",
    "/task/demo/medqa-diag",
    QUERY,
    "/task/demo/medqa-diag/document/medqa-diag-003?query=8",
    COMPARE,
    "/compare?scope=demo/medqa-diag&system=bm25&system=bm25-lucene&system=bm25[k1=0.1]",
    "/try",
    "/running",
    "/about",
    "/nope",
)
_MISSING = {"/nope": ["Failed to load resource: the server responded with a status of 404"]}


@pytest.mark.parametrize("path", PAGES)
def test_every_page_is_accessible_in_both_themes_and_fits_a_phone(visit: Visit, path: str) -> None:
    page = visit.go(path)

    assert page.title().endswith("· r2med")
    assert _serious(page) == []
    page.emulate_media(color_scheme="dark")
    assert _serious(page, only="color-contrast") == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    _forgive(visit, path)


def test_sorting_changes_the_order_and_the_address(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=full")
    first = page.locator("tbody th[scope=row] .system").first.inner_text()

    _follow(page.get_by_role("link", name="MedQA-Diag").first)

    assert "sort=MedQA-Diag" in page.url
    values = page.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => parseFloat([...row.querySelectorAll('td.heat')][4].innerText))"
    )
    known = [value for value in values if value == value]
    assert known == sorted(known, reverse=True)
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("MedQA-Diag")
    assert first


def test_a_filter_applies_at_once_and_stays_in_the_address(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=full")
    before = page.locator("tbody tr").count()

    page.get_by_label("Type").select_option("reranker")
    page.wait_for_url("**kind=reranker**")

    assert 0 < page.locator("tbody tr").count() < before
    assert "search=" not in page.url


def test_search_narrows_the_table_while_one_types(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=full")

    page.get_by_label("Search").fill("nv hyde")

    shown = page.locator("tbody tr:visible .system").all_inner_texts()
    assert shown and all("nv" in name and "hyde" in name for name in shown)


def test_without_script_filters_and_sorting_still_work(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, java_script_enabled=False):
        page = visit.go("/leaderboard?suite=full")

        page.get_by_label("Search").fill("hyde nv")
        _follow(page.get_by_role("button", name="Show"))

        shown = page.locator("tbody .system").all_inner_texts()
        assert shown and all("nv" in name and "hyde" in name for name in shown)


def test_the_theme_follows_the_system_until_one_is_chosen_and_is_remembered(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=demo")

    def paper() -> str:
        return str(page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    light = paper()
    page.emulate_media(color_scheme="dark")
    dark = paper()
    page.get_by_role("button", name="Light").click()
    chosen = paper()
    visit.go("/about")
    remembered = paper()
    page.get_by_role("button", name="Dark").click()
    page.emulate_media(color_scheme="light")
    visit.go("/leaderboard?suite=full")

    assert light != dark
    assert chosen == remembered == light
    assert paper() == dark
    shown = page.locator("picture source").first.evaluate("source => source.media")
    assert shown == "all"
    page.get_by_role("button", name="System").click()
    assert paper() == light


def test_the_keyboard_reaches_the_content_first(visit: Visit) -> None:
    page = visit.go("/")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")

    page.wait_for_url("**#main")


def test_from_the_leaderboard_to_the_reason_why_a_query_failed(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=demo")

    row = page.locator("tr[data-system=bm25-lucene]")
    _follow(row.locator("td.heat a").first)
    assert "bm25-lucene" in page.locator(".answer").inner_text()
    _follow(page.locator("#queries tbody th a").first)
    assert re.match("Why it (failed|missed)", page.locator(".why").first.inner_text())
    _follow(page.locator(".missed .document, .ranking .document").first)

    assert page.locator("mark").count() > 0
    assert "query" in page.locator(".answer").inner_text()


def test_states_are_told_by_word_and_missed_positives_stand_at_their_true_rank(
    visit: Visit,
) -> None:
    page = visit.go(f"{QUERY}?system=bm25")

    states = set(page.locator(".ranking .state").all_inner_texts())
    ranks = [int(text) for text in page.locator(".missed .rank").all_inner_texts()]

    assert states == {"✓ relevant", "✗ not relevant", "? unjudged"}
    assert ranks == sorted(ranks) and ranks[0] > 10


def test_j_and_k_walk_through_the_queries_and_a_question_mark_helps(visit: Visit) -> None:
    page = visit.go(f"{QUERY}?system=bm25&order=task")

    page.keyboard.press("j")
    page.wait_for_url("**/query/9?**")
    page.keyboard.press("k")
    page.wait_for_url("**/query/8?**")
    page.keyboard.press("f")
    assert page.locator("details.more[open]").count() == page.locator("details.more").count() > 0
    page.keyboard.press("?")

    assert page.get_by_role("dialog").is_visible()


def test_two_chosen_systems_are_compared_and_a_bar_leads_to_its_query(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag")
    button = page.get_by_role("button", name="Compare the chosen systems")
    assert button.is_disabled()

    page.get_by_label("Choose bm25", exact=True).check()
    page.get_by_label("Choose bm25-lucene").check()
    _follow(button)
    verdict = page.locator(".answer").inner_text()
    _follow(page.locator(".panel a").last)

    assert "beats" in verdict and "p " in verdict
    assert "/query/" in page.url and page.locator(".column").count() == 2


def test_a_typed_query_is_searched_stage_by_stage(visit: Visit) -> None:
    page = visit.go("/try")

    page.get_by_label("Query").fill("porphyria attack after fasting")
    page.get_by_label("Task").select_option("demo/medqa-diag")
    _follow(page.get_by_role("button", name="Search"))

    documents = len(load_task("demo/medqa-diag").corpus)
    assert f"first of {documents} documents" in page.locator(".answer").inner_text()
    assert page.locator(".ranking li").count() == 10
    assert page.locator("mark").count() > 0


def test_the_systems_of_a_query_can_be_chosen_without_script(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, java_script_enabled=False):
        page = visit.go(QUERY)
        page.locator(".choose summary").click()
        page.locator("input[name=system]").last.check()

        _follow(page.get_by_role("button", name="Show these side by side"))

        assert page.locator(".column").count() == 3


def _follow(what: Any) -> None:
    """Click, and wait for the page that it leads to."""
    with what.page.expect_navigation():
        what.click()


def _serious(page: Any, *, only: str | None = None) -> list[tuple[str, str]]:
    """What axe finds that keeps people out: the rule, and the first element that breaks it."""
    rules = {"runOnly": [only]} if only else None
    found = Axe().run(page, options=rules).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"]) for each in serious]


def _forgive(visit: Visit, path: str) -> None:
    """A page that says it is missing is answered with 404, which the browser notes."""
    expected = _MISSING.get(path, [])
    for said in list(visit.problems):
        if any(said.startswith(text) for text in expected):
            visit.problems.remove(said)


def test_each_column_says_what_it_missed_and_the_sentence_agrees(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag/query/8?system=bm25&system=bm25-lucene")

    sentence = page.locator(".answer").inner_text()
    for column in page.locator(".column").all():
        name = column.locator("h2").inner_text()
        missed = column.locator(".missed > li").count()
        counts = re.search(rf"{re.escape(name)} scores \S+ and has (\d+) of (\d+)", sentence)
        assert counts and int(counts[2]) - int(counts[1]) == missed
    assert "Nothing was missed" not in sentence


def test_common_words_are_not_marked_and_rare_ones_are_marked_most(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag/query/8?system=bm25")

    marked = {text.lower() for text in page.locator("mark").all_inner_texts()}
    assert not marked & {"he", "she", "his", "had", "what", "very", "3", "times"}
    assert page.locator("mark.w3").count() and page.locator("mark.w1, mark.w2").count()


def test_every_query_of_a_task_is_listed_found_and_sorted(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag")
    rows = page.locator("#queries tbody tr")
    queries = load_task("demo/medqa-diag").queries
    assert rows.count() == len(queries)

    scores = [float(text) for text in page.locator("#queries td.mean").all_inner_texts()]
    assert scores == sorted(scores)
    page.locator("#queries th[data-sort=number] button").click()
    again = [float(text) for text in page.locator("#queries td.mean").all_inner_texts()]
    assert again == sorted(scores, reverse=True)
    words = " ".join(queries.texts[0].as_py().split()[:5])
    assert sum(words in text for text in queries.texts.to_pylist()) == 1
    page.get_by_label("Find a query").fill(words)
    assert page.locator("#queries tbody tr:visible").count() == 1


def test_a_cause_filters_the_queries_without_script(browser: Any, site: Site) -> None:
    queries = len(load_task("demo/medqa-diag").queries)
    for visit in visiting(browser, site, java_script_enabled=False):
        page = visit.go("/task/demo/medqa-diag?system=bm25")
        _follow(page.locator(".stack a").first)

        assert "cause=" in page.url
        causes = set(page.locator("#queries td.cause").all_inner_texts())
        assert len(causes) == 1 and page.locator("#queries tbody tr").count() < queries


def test_the_first_page_asks_whether_systems_understand_or_match_words(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=demo")

    page.locator("figure.overlap svg").first.wait_for()
    sentence = page.locator("figure.overlap .finding").inner_text()
    assert re.search(r"fewest words .* scores \d+ and \S+ \d+", sentence)


def test_numbers_of_the_axis_are_above_their_lines(visit: Visit) -> None:
    page = visit.go("/task/demo/biology")
    centre = "nodes => nodes.map(n => n.getBoundingClientRect()).map(b => b.x + b.width / 2)"

    numbers = page.locator("th.axis text").evaluate_all(centre)
    lines = page.locator("tbody tr").first.locator("td.axis line.rule").evaluate_all(centre)

    assert numbers and all(abs(a - b) < 2 for a, b in zip(numbers, lines, strict=True))


@pytest.mark.parametrize("path", ["/leaderboard?suite=demo", "/task/demo/biology"])
def test_rows_are_cards_on_a_phone(browser: Any, site: Site, path: str) -> None:
    for visit in visiting(browser, site, viewport={"width": 390, "height": 800}):
        page = visit.go(path)
        table = page.locator("table.cards-below").last
        row = table.locator("tbody tr").first

        assert row.evaluate("row => getComputedStyle(row).display") == "grid"
        assert row.bounding_box()["width"] <= 390
        for cell in row.locator("th[scope=row], td.mean").all():
            box = cell.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        mean = row.locator("td.mean")
        at_mean = "cell => { const b = cell.getBoundingClientRect(); cell.scrollIntoView();"
        at_mean += " const c = cell.getBoundingClientRect(); return cell.contains("
        at_mean += "document.elementFromPoint(c.x + c.width / 2, c.y + c.height / 2)) || !b.width }"
        assert mean.evaluate(at_mean)


def test_the_search_of_the_header_finds_systems_tasks_queries_and_documents(visit: Visit) -> None:
    page = visit.go("/")
    page.get_by_label("Find anything").fill("porphyria")
    page.get_by_label("Find anything").press("Enter")

    page.get_by_role("heading", name="Documents").wait_for()
    assert page.locator(".hits a").count() > 0
    assert page.get_by_role("heading", name="Systems").count() == 0
    page = visit.go("/search?q=lucene")
    assert "bm25-lucene" in page.locator(".hits").first.inner_text()
    assert "Nothing here contains" in visit.go("/search?q=zzzzz").locator(".answer").inner_text()


def test_a_typed_query_has_an_address_and_two_systems_side_by_side(visit: Visit) -> None:
    page = visit.go("/try?text=porphyria&task=demo/medqa-diag&system=bm25&system=bm25-lucene")

    assert page.locator(".column").count() == 2
    assert page.locator(".column .move").count() == page.locator(".ranking .rank").count() > 10
    assert "They share" in page.locator(".answer").inner_text()


def test_shades_compare_with_a_chosen_system(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=demo&baseline=bm25")

    own = page.locator("tr[data-system=bm25] td.heat").evaluate_all("c => c.map(x => x.className)")
    others = page.locator("td.heat").evaluate_all("c => c.map(x => x.className)")
    assert all(name.endswith(("h0", "h-1")) for name in own)
    assert any("better" in name for name in others) and any("worse" in name for name in others)
