"""Pages of a system with several stored versions: none is mixed with another, and all are named."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from r2med.explore.app import create_app
from r2med.explore.library import Library
from tests.results.storing import ranks, store
from tests.results.test_select import NEW, OLD, TASK, TASKS, retrained, store_version

SPEC = "dense:./tiny"


def read_page(root: Path, path: str, **values: str | list[str]) -> str:
    client = TestClient(create_app(Library(root)), base_url="http://127.0.0.1")
    response = client.get(path, params=values)
    assert response.status_code == 200, response.text
    return unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.text)))


@pytest.mark.parametrize(
    ("path", "values"),
    [
        (f"/task/{TASK}", {}),
        ("/compare", {"suite": "demo", "system": [SPEC, "bm25"]}),
        ("/compare", {"task": TASK, "system": [SPEC, "bm25"]}),
        ("/compare", {"suite": "demo", "system": [SPEC, "bm25", "bm25-nano"]}),
        ("/system", {"suite": "demo", "system": SPEC}),
    ],
)
def test_pages_say_which_of_two_versions_they_show(
    path: str, values: dict[str, str | list[str]], tmp_path: Path
) -> None:
    retrained(tmp_path)
    for task in TASKS:
        store(tmp_path, "bm25-nano", task, ranks(3, 3, 0))

    page = read_page(tmp_path, path, **values)

    assert f"tiny: the version of {OLD[:19]} is shown. That of {NEW[:19]}" in page
    assert f"stored too for {TASK}, is not" in page
    assert 'checkpoint ("old" and "new")' in page


def test_a_comparison_of_a_suite_leaves_out_tasks_of_another_version(tmp_path: Path) -> None:
    store_version(tmp_path, "old", TASKS[:5], 2, OLD)
    store_version(tmp_path, "new", TASKS[5:7], 1, NEW)
    for task in TASKS:
        store(tmp_path, "bm25", task, ranks(3, 3, 0))

    page = read_page(tmp_path, "/compare", suite="demo", system=[SPEC, "bm25"])

    assert "on these 5 tasks" in page
    assert "5 of 8 tasks are compared. Left out: " in page
    assert all(f"{task}" in page for task in TASKS[5:])


@pytest.mark.parametrize("path", ["/compare", "/system", f"/task/{TASK}"])
def test_an_address_may_name_a_system_by_its_label(path: str, tmp_path: Path) -> None:
    retrained(tmp_path)
    systems = ["tiny", "bm25"] if path == "/compare" else "tiny"

    by_label = read_page(tmp_path, path, suite="demo", system=systems)

    by_spec = [SPEC, "bm25"] if path == "/compare" else SPEC
    assert by_label == read_page(tmp_path, path, suite="demo", system=by_spec)


def test_questions_of_the_first_page_name_the_version_that_they_lead_to(tmp_path: Path) -> None:
    retrained(tmp_path)

    page = read_page(tmp_path, "/", suite="demo")

    assert "Is tiny really better than bm25?" in page
    assert "Where does tiny fail most?" in page
