"""How the explorer's pages look in a real browser: what is in view, aligned and in agreement."""

from __future__ import annotations

import re
from typing import Any

import pytest

from r2med.tasks.load import load_task
from tests.explore.conftest import Site, Visit, visiting

PHONE = {"width": 390, "height": 844}
COMPARE = "/compare?scope=demo/medqa-diag&system=bm25&system=bm25-lucene"
TYPED = "/try?task=demo/medqa-diag&system=bm25&text="
_CENTRES = "nodes => nodes.map(n => n.getBoundingClientRect()).map(b => b.x + b.width / 2)"


def test_the_first_screen_has_the_leader_the_question_and_the_table(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=demo")
    page.locator("figure.overlap svg").first.wait_for()

    for part in (".answer.lead", "figure.overlap figcaption", "table.board thead"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 900, part


def test_steps_of_the_first_page_lead_to_a_comparison_a_task_and_a_form(visit: Visit) -> None:
    page = visit.go("/leaderboard?suite=demo")

    addresses = page.locator(".paths a").evaluate_all("links => links.map(a => a.pathname)")

    assert addresses[0] == "/compare" and addresses[-1] == "/try"
    assert addresses[1].startswith("/task/demo/")


def test_the_axis_of_differences_has_numbers_above_its_lines(visit: Visit) -> None:
    page = visit.go(COMPARE)

    texts = page.locator("th.axis text").all_text_contents()
    numbers = page.locator("th.axis text").evaluate_all(_CENTRES)
    lines = page.locator("tbody tr").first.locator("td.axis line.rule, td.axis line.zero")

    assert "0" in texts and texts[0].startswith("−") and texts[-1].startswith("+")
    found = lines.evaluate_all(_CENTRES)
    assert all(abs(a - b) < 2 for a, b in zip(numbers, found, strict=True))


@pytest.mark.parametrize("path", ["/leaderboard?suite=demo", "/task/demo/medqa-diag"])
def test_systems_are_chosen_and_compared_on_a_phone(browser: Any, site: Site, path: str) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        page = visit.go(path)

        boxes = page.locator("td.pick input")
        boxes.nth(0).click()
        boxes.nth(1).click()
        page.get_by_role("button", name="Compare the chosen systems").click()
        page.wait_for_url("**/compare?**")

        difference = page.locator('td[data-label="A − B"]').first.bounding_box()
        assert difference["x"] >= 0 and difference["x"] + difference["width"] <= 390


def test_the_header_leaves_a_phone_its_screen(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        page = visit.go("/tasks")

        assert page.locator("header.site").bounding_box()["height"] <= 110
        last = page.get_by_role("link", name="About", exact=True)
        last.scroll_into_view_if_needed()
        assert last.bounding_box()["x"] < 390


def test_the_chart_of_overlap_fits_a_phone_with_readable_numbers(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        page = visit.go("/leaderboard?suite=demo")
        chart = page.locator("figure.overlap > svg").first
        chart.wait_for()

        box = chart.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        heights = chart.locator("text.tick").evaluate_all(
            "nodes => nodes.map(n => n.getBoundingClientRect().height)"
        )
        assert min(heights) >= 9


def test_figures_have_their_size_before_they_are_drawn(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site):
        visit.page.route("**/plot/**", lambda route: route.abort())
        page = visit.go("/leaderboard?suite=full")

        image = page.locator(".plot img").first
        box = image.bounding_box()
        assert box["height"] > 200
        visit.problems.clear()  # the browser notes the figure that was held back


def test_the_query_is_whole_on_paper(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag/query/8?system=bm25")

    page.emulate_media(media="print")
    side = page.locator(".query-side")

    assert side.evaluate("node => getComputedStyle(node).overflowY") == "visible"
    assert side.evaluate("node => node.scrollHeight <= node.clientHeight + 1")


def test_causes_of_another_system_are_chosen_on_the_task(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag")

    page.get_by_label("Scores and causes of").select_option("bm25")
    page.wait_for_url("**system=bm25**")

    assert page.get_by_text("why bm25 missed").count() == 1
    assert page.locator("#queries").get_by_text(re.compile("bm25 misses .* positives")).count()


def test_examples_show_two_systems_and_known_queries_their_judgements(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag/query/8?system=bm25")
    text = page.locator(".query-side .query-text").inner_text()
    page = visit.go("/try")
    assert page.locator(".examples-large .card").count() == 3
    page.locator(".examples-large a").first.click()
    page.locator(".column").nth(1).wait_for()

    page.get_by_label("Query").fill(" ".join(text.split()))
    page.get_by_label("beside").select_option("")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("This is query 8 of the task").wait_for()

    assert set(page.locator(".ranking .state").all_inner_texts()) & {"✓ relevant", "? unjudged"}


def test_search_shows_the_words_where_they_were_found(visit: Visit) -> None:
    page = visit.go("/search?q=porphyria")

    excerpts = page.locator(".hits li:has(.first-words)")
    assert excerpts.count() > 0
    for excerpt in excerpts.all():
        assert "porphyria" in excerpt.locator("mark").first.inner_text().lower()


def test_cards_of_tasks_have_counts_the_best_system_and_the_baseline(visit: Visit) -> None:
    task = load_task("demo/medqa-diag")
    page = visit.go("/tasks")

    stored = page.locator(".card", has=page.locator('a[href="/task/demo/medqa-diag"]'))
    assert f"{len(task.queries)} queries, {len(task.corpus)} documents" in stored.inner_text()
    assert stored.locator("svg.strip circle").count() >= 3
    published = page.locator(".card", has=page.locator('a[href="/task/Biology"]'))
    assert "57,359 documents" in published.inner_text()
    assert "r2med eval bm25 --task Biology" in published.inner_text()
    assert published.locator("svg.strip circle").count() > 50


def test_a_query_leads_back_to_the_comparison_one_came_from(visit: Visit) -> None:
    page = visit.go("/compare?scope=demo&system=bm25&system=bm25-lucene")

    page.locator("table.queries tbody th a").first.click()
    page.wait_for_url("**/query/**")
    back = page.locator(".crumbs a").last

    assert back.inner_text() == "bm25 against bm25-lucene"
    assert "scope=demo&" in back.get_attribute("href")


def test_the_positives_of_a_query_are_in_view_beside_its_lists(visit: Visit) -> None:
    page = visit.go("/task/demo/medqa-diag/query/8?system=bm25&system=bm25-lucene")

    side = page.locator(".query-side")
    page.locator(".columns").scroll_into_view_if_needed()
    page.mouse.wheel(0, 600)
    page.wait_for_timeout(100)
    last = page.locator("table.ranks tbody tr").last.bounding_box()

    assert side.bounding_box()["y"] <= 20
    assert last["y"] + last["height"] <= 900


def test_labels_of_cards_are_whole_on_a_phone(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        for path in (COMPARE, "/system?suite=demo&system=bm25", "/task/demo/medqa-diag"):
            cells = visit.go(path).locator(".cards-below tbody tr").first.locator("[data-label]")

            clipped = cells.evaluate_all(
                """cells => cells.filter(cell => {
                    const label = getComputedStyle(cell, "::before");
                    const pen = document.createElement("canvas").getContext("2d");
                    pen.font = label.font;
                    const [height, line] = [label.height, label.lineHeight].map(parseFloat);
                    const room = Math.round(height / line) * parseFloat(label.width);
                    return cell.offsetWidth && pen.measureText(cell.dataset.label).width > room + 2;
                }).map(cell => cell.dataset.label)"""
            )
            assert cells.count() > 2 and clipped == [], path


def test_figures_of_a_card_are_in_two_columns_on_a_phone(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        row = visit.go("/leaderboard?suite=demo").locator(".cards-below tbody tr").first

        boxes = [cell.bounding_box() for cell in row.locator("td[data-label]").all()]

        assert row.locator('td[data-label="J@10"]').count() == 1
        assert len({round(box["x"]) for box in boxes}) == 2
        assert len({round(box["width"]) for box in boxes}) == 1


def test_queries_of_a_comparison_show_their_difference_on_a_phone(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        cell = visit.go(COMPARE).locator('table.queries td[data-label="A − B"]').first

        box = cell.bounding_box()

        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_numbers_of_figures_are_readable_on_a_phone(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        page = visit.go(COMPARE)
        heights = page.locator(".panel .tick").evaluate_all(
            "nodes => nodes.map(node => node.getBoundingClientRect().height)"
        )
        assert heights and min(heights) >= 9

        page.route("**/plot/**", lambda route: route.abort())
        figure = visit.go("/leaderboard?suite=full").locator("figure.plot").first
        assert figure.locator("img").bounding_box()["width"] >= 640
        assert figure.bounding_box()["width"] <= 390
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        visit.problems.clear()  # the browser notes the figure that was held back


def test_headings_and_bars_have_room_on_a_phone(browser: Any, site: Site) -> None:
    for visit in visiting(browser, site, viewport=PHONE):
        for heading in visit.go("/tasks").locator("h2.ends").all():
            assert heading.bounding_box()["height"] <= 90

        page = visit.go("/task/demo/medqa-diag?system=bm25")
        named = page.locator(".stack text").evaluate_all(
            """nodes => nodes.filter(node => node.getBoundingClientRect().width).map(node => {
                const part = node.parentElement.querySelector("rect").getBoundingClientRect();
                return part.right - node.getBoundingClientRect().right;
            })"""
        )
        assert named and min(named) >= 0
