"""The review page: blind, by POST and keyboard alone, with every decision on disk."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from starlette.testclient import TestClient

from r2med.explore.review import ReviewSession, create_review_app, split_matches
from r2med.judge.review import ReviewQueue, ReviewStore, build_queue, label_pair
from r2med.judge.store import Pair
from r2med.serve.listener import open_listener
from tests.judge.making import make_task, store_grades

DOCUMENTS = {f"secret-{number}": f"passage number {number} <b>bold</b>" for number in range(30)}
TASK = make_task(
    DOCUMENTS,
    {"q-secret": "Which <i>passage</i> helps?"},
    {"q-secret": {"secret-0": 1, "secret-1": 0}},
)
GRADES = {("q-secret", f"secret-{number}"): number % 4 for number in range(2, 30)}
ORIGIN = {"Origin": "http://127.0.0.1"}


@pytest.fixture
def session(tmp_path: Path) -> ReviewSession:
    judged = store_grades(tmp_path, TASK, "judge-name", GRADES)
    store = ReviewStore(tmp_path, TASK.name, TASK.suite, warn=pytest.fail)
    queue = store.open(build_queue(TASK, [judged], size=20))
    return session_of(queue, store, "ann")


def session_of(queue: ReviewQueue, store: ReviewStore, reviewer: str) -> ReviewSession:
    return ReviewSession(queue, store, reviewer, texts, "mine")


def texts(pair: Pair) -> dict[str, str]:
    return {
        "query": TASK.query(pair[0]),
        "passage": TASK.document(pair[1]),
        "answer": "the hidden answer",
        "reasoning": "",
    }


@pytest.fixture
def client(session: ReviewSession) -> TestClient:
    return TestClient(create_review_app(session), base_url="http://127.0.0.1")


def code_in(page: str) -> str:
    match = re.search(r'name="code" value="([0-9a-f]+)"', page)
    assert match is not None
    return match[1]


def decide(client: TestClient, **form: str) -> str:
    answered = client.post("/decide", data=form, headers=ORIGIN)
    assert answered.status_code == 200, answered.text
    return str(answered.text)


def test_a_page_shows_texts_and_nothing_that_biases(client: TestClient) -> None:
    page = client.get("/").text

    assert "Which &lt;i&gt;passage&lt;/i&gt; helps?" in page and "&lt;b&gt;bold" in page
    assert "secret" not in page and "judge-name" not in page and "hidden answer" in page
    assert '<details id="answer"><summary' in page
    assert "0 of 20" in page and 'class="passage" ' in page
    marked = client.get("/?marks=1").text
    assert 'class="passage marked" ' in marked and "<mark>passage</mark>" in marked


def test_labels_are_stored_with_comment_span_and_time(
    client: TestClient, session: ReviewSession
) -> None:
    code = code_in(client.get("/").text)

    page = decide(client, code=code, label="3", comment="good", span="number", seconds="4.2")

    [decision] = session.store.decisions("ann").values()
    assert (decision.label, decision.comment, decision.span) == (3, "good", "number")
    assert decision.seconds == 4.2 and decision.pair == session.queue.codes[code]
    assert "1 of 20" in page and code_in(page) != code and "minute" in page


def test_undo_shows_the_last_pair_again_and_skipped_pairs_come_at_the_end(
    client: TestClient, session: ReviewSession
) -> None:
    first = code_in(client.get("/").text)
    second = code_in(decide(client, code=first, action="skip"))
    third = code_in(decide(client, code=second, label="1"))

    again = decide(client, action="undo")

    assert code_in(again) == second and third != second
    code = second
    for _ in range(19):
        page = decide(client, code=code, label="2")
        code = code_in(page)
    assert code == first
    assert "All 20 pairs are labelled" in decide(client, code=first, label="0")
    assert len(session.store.labels()["ann"]) == 20


def test_disagreements_are_settled_with_names_and_reasons(
    client: TestClient, session: ReviewSession
) -> None:
    assert "Nothing to settle" in client.get("/settle").text
    pair = session.order[0]
    session.store.add(label_pair(session.queue, "ben", pair, 0, comment="off topic"))
    session.store.add(label_pair(session.queue, "eve", pair, 3))

    page = client.get("/settle").text
    assert "ben: <strong>0</strong> – off topic" in page and "eve: <strong>3</strong>" in page
    form = {"code": code_in(page), "label": "2", "reason": "guideline 4"}
    assert "Nothing to settle" in client.post("/settle", data=form, headers=ORIGIN).text

    settled = session.store.settled_decisions()[pair]
    assert (settled.label, settled.reviewer, settled.comment) == (2, "ann", "guideline 4")


def test_settling_shows_no_label_of_a_pair_that_its_reader_will_label(
    client: TestClient, session: ReviewSession
) -> None:
    first, second = session.order[:2]
    for pair in (first, second):
        session.store.add(label_pair(session.queue, "ben", pair, 0))
        session.store.add(label_pair(session.queue, "eve", pair, 3))
    decide(client, code=session.queue.code(first), label="2")

    page = client.get("/settle").text

    assert "1 disagreement to settle" in page
    assert code_in(page) == session.queue.code(first)
    client.post(
        "/settle", data={"code": code_in(page), "label": "1", "reason": "x"}, headers=ORIGIN
    )
    assert "only pairs that you have labelled" in client.get("/settle").text


def test_a_pair_that_somebody_settled_is_not_labelled_by_them(
    client: TestClient, session: ReviewSession
) -> None:
    pair = session.order[0]
    session.store.add(label_pair(session.queue, "ben", pair, 0))
    session.store.add(label_pair(session.queue, "eve", pair, 3))
    form = {"code": session.queue.code(pair), "label": "1", "reason": "guideline"}
    client.post("/settle", data=form, headers=ORIGIN)

    page = client.get("/").text

    assert code_in(page) != session.queue.code(pair) and "0 of 19" in page
    for _ in range(19):
        page = decide(client, code=code_in(page), label="2")
    assert "All 19 pairs are labelled" in page


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"code": "0" * 12, "label": "1"}, 404),
        ({"label": "1"}, 404),
        ({"code": "CODE", "label": "9"}, 400),
        ({"code": "CODE", "label": "x"}, 400),
        ({"code": "CODE"}, 400),
        ({"code": "CODE", "label": "1", "comment": "x" * 3000}, 400),
        ({"code": "CODE", "action": "delete"}, 400),
    ],
)
def test_wrong_decisions_are_refused_and_store_nothing(
    client: TestClient, session: ReviewSession, form: dict[str, str], status: int
) -> None:
    code = code_in(client.get("/").text)
    values = {key: code if value == "CODE" else value for key, value in form.items()}

    answered = client.post("/decide", data=values, headers=ORIGIN)

    assert answered.status_code == status and session.store.labels() == {}


def test_only_posts_of_the_page_itself_are_taken(
    client: TestClient, session: ReviewSession
) -> None:
    form = {"code": code_in(client.get("/").text), "label": "1"}

    assert client.post("/decide", data=form).status_code == 403
    stranger = {"Origin": "http://evil.example"}
    assert client.post("/decide", data=form, headers=stranger).status_code == 403
    assert client.get("/decide", params=form).status_code in (404, 405)
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 421
    assert session.store.labels() == {}


def test_two_reviewers_work_at_once(client: TestClient, session: ReviewSession) -> None:
    other_store = ReviewStore(
        session.store.folder.parents[2], TASK.name, TASK.suite, warn=pytest.fail
    )
    other = TestClient(
        create_review_app(session_of(session.queue, other_store, "ben")),
        base_url="http://127.0.0.1",
    )
    pages = {client: client.get("/").text, other: other.get("/").text}
    for _ in range(20):
        for each, label in ((client, "1"), (other, "2")):
            pages[each] = decide(each, code=code_in(pages[each]), label=label)

    labels = session.store.labels()
    assert labels == other_store.labels()
    assert {name: set(own.values()) for name, own in labels.items()} == {"ann": {1}, "ben": {2}}
    assert len(labels["ann"]) == len(labels["ben"]) == 20


@contextmanager
def serving_review(session: ReviewSession) -> Iterator[str]:
    """Serve the review page at a free port until the block ends."""
    listener = open_listener("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(create_review_app(session), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def press(page: Any, key: str) -> None:
    with page.expect_navigation():
        page.keyboard.press(key)


def test_the_page_works_by_keyboard_alone(browser: Any, session: ReviewSession) -> None:
    with serving_review(session) as url:
        page = browser.new_page()
        page.goto(url)
        press(page, "3")
        press(page, "0")
        press(page, "u")
        page.keyboard.press("c")
        page.keyboard.type("not sure, 2 or 3")
        page.keyboard.press("Escape")
        page.evaluate(_SELECT)
        page.wait_for_function("document.getElementById('span-shown').hidden === false")
        page.keyboard.press("m")
        assert page.locator(".passage.marked mark").count() >= 1
        page.keyboard.press("a")
        assert page.get_by_text("the hidden answer").is_visible()
        press(page, "2")
        assert page.locator(".passage.marked").count() == 1
        assert page.get_by_text("the hidden answer").is_visible()
        press(page, "s")
        page.close()

    labels = [decision.label for decision in session.store.decisions("ann").values()]
    comments = [decision.comment for decision in session.store.decisions("ann").values()]
    spans = [decision.span for decision in session.store.decisions("ann").values()]
    assert labels == [3, 2, None]
    assert comments == ["", "not sure, 2 or 3", ""] and spans == ["", "passage", ""]


def test_a_selected_span_can_be_removed(browser: Any, session: ReviewSession) -> None:
    with serving_review(session) as url:
        page = browser.new_page()
        page.goto(url)
        page.evaluate(_SELECT)
        page.wait_for_function("document.getElementById('span-shown').hidden === false")
        page.get_by_role("button", name="Remove").click()
        assert page.locator("#span-shown").is_hidden()
        press(page, "2")
        page.close()

    assert [decision.span for decision in session.store.decisions("ann").values()] == [""]


def test_a_sentence_is_marked_by_keyboard(browser: Any, session: ReviewSession) -> None:
    session.texts = lambda pair: {
        "query": "Which passage?",
        "passage": "First words. The second passage sentence. And a third.",
        "answer": "",
        "reasoning": "",
    }
    with serving_review(session) as url:
        page = browser.new_page()
        page.goto(url)
        for key in ("n", "n", "n", "n", "p"):
            page.keyboard.press(key)
        page.wait_for_function("document.querySelector('[name=span]').value.includes('second')")
        press(page, "3")
        page.keyboard.press("n")
        page.wait_for_function("document.getElementById('span-shown').hidden === false")
        page.keyboard.press("x")
        press(page, "0")
        page.close()

    spans = [decision.span for decision in session.store.decisions("ann").values()]
    assert spans == ["The second passage sentence.", ""]


def test_labels_are_in_reach_on_a_telephone_and_cover_nothing(
    browser: Any, session: ReviewSession
) -> None:
    with serving_review(session) as url:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.goto(url)
        assert all(button.is_visible() for button in page.locator(".labels button").all())
        bar = page.locator(".labels").bounding_box()
        assert bar["y"] + bar["height"] == pytest.approx(844, abs=1)
        page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
        last = page.locator("footer p").bounding_box()
        assert last["y"] + last["height"] <= page.locator(".labels").bounding_box()["y"]
        page.close()


_SELECT = """() => {
  const range = document.createRange();
  range.selectNodeContents(document.querySelector("#passage mark"));
  getSelection().removeAllRanges(); getSelection().addRange(range);
}"""


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_fits_and_can_be_used_by_everybody(
    browser: Any, session: ReviewSession, width: int, theme: str
) -> None:
    viewport = {"width": width, "height": 844}
    with serving_review(session) as url:
        context = browser.new_context(viewport=viewport, color_scheme=theme)
        page = context.new_page()
        page.goto(f"{url}?marks=1")
        size = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(size) == 0
        found = Axe().run(page).response["violations"]
        assert [v["id"] for v in found if v["impact"] in ("serious", "critical")] == []
        context.close()


def test_shared_words_are_found_without_case_and_common_words() -> None:
    assert split_matches("What is the Fever?", "FEVER and what the fever does") == [
        "",
        "FEVER",
        " and what the ",
        "fever",
        " does",
    ]
