"""The explorer in a real browser: pages, sorting, filters, keyboard, narrow screens, no script."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.explore.conftest import Site, Visit, visiting

PAGES = (
    "/",
    "/leaderboard?suite=full&search=hyde+nv",
    "/tasks",
    "/task/demo/medqa-diag",
    "/task/hostile",
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

    page.get_by_role("link", name="MedQA-Diag").first.click()

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

    page.get_by_label("Kind").select_option("reranker")
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
        page.get_by_role("button", name="Show").click()

        shown = page.locator("tbody .system").all_inner_texts()
        assert shown and all("nv" in name and "hyde" in name for name in shown)


def test_the_keyboard_reaches_the_content_first(visit: Visit) -> None:
    page = visit.go("/")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")

    assert page.url.endswith("#main")


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
