"""What strangers may not do to the server: by headers, addresses, parameters and texts."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.explore.conftest import Site, Visit
from tests.explore.hostile import ATTRIBUTE, SCRIPT


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Message
    text: str


def ask(
    site: Site, path: str, *, method: str = "GET", body: str | None = None, **headers: str
) -> Answer:
    """One raw request; headers are named with _ for -."""
    connection = HTTPConnection(urlsplit(site.url).netloc, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(connection):
        connection.request(method, path, body=body, headers=named)
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode())


def test_a_strangers_host_name_is_refused(site: Site) -> None:
    assert ask(site, "/", Host="rebinding.example").status == 421
    assert ask(site, "/", Host="rebinding.example:80@127.0.0.1").status in (400, 421)
    assert ask(site, "/", Host="localhost").status == 200


def test_every_answer_forbids_scripts_and_styles_from_elsewhere_and_inline(site: Site) -> None:
    for path in ("/", "/nope", "/static/explore.js", "/leaderboard?suite=zzz"):
        policy = str(ask(site, path).headers["Content-Security-Policy"])

        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy and "*" not in policy and "http" not in policy


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_no_other_method_is_answered(site: Site, method: str) -> None:
    assert ask(site, "/", method=method).status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/leaderboard?suite=nope",
        "/leaderboard?suite=full&suite=demo",
        "/leaderboard?metric=" + "x" * 300,
        "/leaderboard?metric=ndcg@-1",
        "/leaderboard?sort=__class__",
        "/leaderboard?search=%00",
        "/task/demo/medqa-diag?metric=;",
        "/task/demo/medqa-diag/query/8?order=random",
        "/task/demo/medqa-diag/query/8?depth=1000000",
        "/task/demo/medqa-diag/query/8?" + "&".join(f"system=s{n}" for n in range(9)),
        "/compare?scope=/etc",
        "/compare?scope=demo&" + "&".join(f"system=s{n}" for n in range(9)),
        "/plot/means.svg",
        "/plot/means.svg?suite=demo&theme=pink",
    ],
)
def test_a_wrong_parameter_is_one_clean_refusal(site: Site, path: str) -> None:
    response = ask(site, path)

    assert response.status == 400
    assert "<h1>" in response.text and "Traceback" not in response.text


@pytest.mark.parametrize(
    "path",
    [
        "/task/..%2f..%2f..%2fetc%2fpasswd",
        "/task/../../../etc/passwd",
        "/task//etc/passwd",
        "/task/%ff%fe",
        "/task/demo/biology/query/..%2f..%2fx",
        "/task/demo/biology/document/..%2f..%2f..%2fetc%2fpasswd",
        "/compare?scope=demo&system=/etc/passwd&system=bm25",
        "/task/demo/biology/query/1?system=../../etc/passwd",
        "/static/..%2fapp.py",
        "/static/../app.py",
        "/plot/..%2f..%2fx.svg?suite=demo",
        "/task/" + quote("demo/../local", safe=""),
    ],
)
def test_no_address_leads_out_of_the_data(site: Site, path: str) -> None:
    response = ask(site, path)

    assert response.status in (400, 404)
    assert "root:" not in response.text


def test_an_endless_address_is_refused(site: Site) -> None:
    assert ask(site, "/?search=" + "a" * 20_000).status in (400, 414, 431)


def test_hostile_texts_are_shown_as_texts(visit: Visit) -> None:
    query, document = quote("../q", safe=""), quote(SCRIPT, safe="")
    paths = [
        "/task/hostile",
        "/tasks",
        f"/task/hostile/query/{query}",
        f"/task/hostile/query/{document}",
        f"/task/hostile/document/{document}?query={query}",
        f"/task/hostile/document/{quote('../../etc/passwd', safe='')}?query={query}",
        "/compare?scope=hostile&system=bm25&system=bm25-lucene",
    ]
    for path in paths:
        page: Any = visit.go(path)

        assert page.locator("h1").count() == 1
        assert "taken" not in page.title() or "script" in page.title()
        assert page.locator("main script, main img[src=x]").count() == 0
    shown = visit.go(paths[2]).locator("main").inner_text()
    assert SCRIPT in shown and ATTRIBUTE in shown and "{{ 7 * 7 }}" in shown
    assert "\x1b" not in shown and "\u202e" not in visit.go(paths[5]).content()


def test_a_form_of_another_site_is_refused(site: Site) -> None:
    body = "text=fever&system=bm25&task=demo%2Fbiology"
    kind = {"Content_Type": "application/x-www-form-urlencoded"}

    def post(text: str = body, **headers: str) -> Answer:
        return ask(site, "/try", method="POST", body=text, **{**kind, **headers})

    assert post().status == 403
    assert post(Origin="null").status == 403
    assert post(Origin="http://elsewhere.example").status == 403
    assert post(Origin=site.url).status == 200
    assert ask(site, "/leaderboard", method="POST", Origin=site.url, body="").status == 405
    assert post("text=" + "a" * 100_000, Origin=site.url).status == 413
    assert post("text=" + "a" * 30_000, Origin=site.url).status == 400
    assert post("text=x&system=model:os.system&task=demo%2Fbiology", Origin=site.url).status == 400
    assert post("text=x&system=bm25&task=%2Fetc", Origin=site.url).status == 400


def test_asking_for_a_page_changes_nothing(site: Site) -> None:
    def state() -> dict[str, int]:
        files = [path for path in site.results.rglob("*") if path.is_file()]
        return {str(path): path.stat().st_mtime_ns for path in files}

    before = state()
    for path in ("/", "/try?text=fever&system=bm25&task=demo/biology", "/running", "/about"):
        assert ask(site, path).status == 200

    assert state() == before


def test_a_damaged_result_is_named_and_the_rest_is_shown(site: Site) -> None:
    folder = next(path for path in site.results.glob("demo/demo-biology/*") if path.is_dir())
    record = folder / "result.json"
    whole = record.read_text(encoding="utf-8")
    try:
        record.write_text(whole[: len(whole) // 2], encoding="utf-8")
        broken = ask(site, "/leaderboard?suite=demo").text
        task = ask(site, "/task/demo/biology").text
    finally:
        record.write_text(whole, encoding="utf-8")

    assert "Damaged:" in broken and "bm25" in broken
    assert "Damaged:" in task and "not a readable record" in task
    assert "Damaged:" not in ask(site, "/leaderboard?suite=demo").text


def test_a_result_stored_meanwhile_appears_on_reload(site: Site) -> None:
    before = ask(site, "/task/demo/biology").text

    site.command("eval", "bm25[k1=3]", "-t", "demo/biology", "--results", str(site.results))

    after = ask(site, "/task/demo/biology").text
    assert "k1=3" not in before and "k1=3" in after.replace("<wbr>", "")
