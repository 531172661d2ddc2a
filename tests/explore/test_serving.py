"""The server among other programs: proxies, tokens, host names, idle connections, slow models."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from r2med.explore.library import Cache
from tests.explore.conftest import Site, serving, visiting
from tests.explore.test_safety import Answer, ask

_NO_NGINX = "nginx is not installed; install it with `apt-get install nginx-light`."
_FORM = {"Content_Type": "application/x-www-form-urlencoded"}
_NAME = "r2med.example"
#: A name that Chromium resolves to loopback without asking a server.
_LOCAL_NAME = "r2med.localhost"


def _split(url: str) -> tuple[str, str]:
    address, _, token = url.partition("?token=")
    return address, token


def _free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def _nginx(folder: Path, config: str) -> Iterator[None]:
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
    if program is None:
        pytest.skip(_NO_NGINX)
    folder.mkdir()
    temporary = "\n".join(
        f"{name}_temp_path {folder}/{name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off; pid {folder}/pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {temporary}\n{config}\n}}\n"
    )
    process = subprocess.Popen(
        [program, "-p", str(folder), "-e", f"{folder}/error.log", "-c", f"{folder}/nginx.conf"],
        stderr=subprocess.PIPE,
    )
    try:
        yield
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _wait_for(port: int) -> None:
    for _ in range(100):
        with closing(socket.socket()) as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"nothing listens at port {port}")


@pytest.mark.parametrize("passes_path", [True, False], ids=["path kept", "path removed"])
def test_the_guide_for_nginx_works(
    site: Site, browser: Any, repository: Path, tmp_path: Path, passes_path: bool
) -> None:
    guide = (repository / "docs" / "deploy.md").read_text(encoding="utf-8")
    match = re.search(r"```nginx\n(.*?)```", guide, re.DOTALL)
    assert match
    port = _free_port()
    config = re.sub(r"listen 443 ssl;", f"listen 127.0.0.1:{port};", match[1])
    config = re.sub(r"\n.*ssl_certificate.*", "", config)
    names = ["--allowed-host", _NAME, "--allowed-host", _LOCAL_NAME]
    options = ["--results", str(site.results), *names, "--root-path", "/r2med"]
    with serving(site.home, *options, cwd=tmp_path) as url:
        address, token = _split(url)
        target = f"127.0.0.1:{urlsplit(address).port}" + ("" if passes_path else "/")
        config = config.replace("127.0.0.1:8642", target)
        with _nginx(tmp_path / "nginx", config):
            _wait_for(port)
            proxied = replace(site, url=f"http://127.0.0.1:{port}")
            assert ask(proxied, "/r2med/", Host=_NAME).status == 401
            assert ask(proxied, "/r2med/", Host="other.example").status == 421
            first = ask(proxied, f"/r2med/leaderboard?suite=demo&token={token}", Host=_NAME)
            cookie = str(first.headers["Set-Cookie"]).partition(";")[0]
            assert first.headers["Location"] == "/r2med/leaderboard?suite=demo"
            assert ask(proxied, "/r2med/tasks", Host=_NAME, Cookie=cookie).status == 200
            typed = ask(
                proxied,
                "/r2med/try",
                method="POST",
                body="text=fever&system=bm25&task=demo%2Fbiology",
                Host=_NAME,
                Origin=f"http://{_NAME}:{port}",
                Cookie=cookie,
                **_FORM,
            )
            assert typed.status == 200 and "ranks" in typed.text
            public = replace(site, url=f"http://{_LOCAL_NAME}:{port}")
            for visit in visiting(browser, public):
                page = visit.go(f"/r2med/?token={token}")
                assert "token" not in page.url
                assert page.locator("table.board").count() == 1
                assert page.evaluate("getComputedStyle(document.body).display") == "flex"
                page.get_by_role("link", name="Tasks", exact=True).click()
                page.wait_for_url("**/r2med/tasks")
                visit.go("/r2med/try")
                page.locator("[name=text]").fill("fever and a large spleen")
                page.get_by_role("button", name="Search", exact=True).click()
                page.locator(".ranking li").first.wait_for()


def test_a_cookie_is_for_encrypted_connections_where_a_trusted_proxy_says_so(
    site: Site, tmp_path: Path
) -> None:
    options = ["--results", str(site.results), "--allowed-host", _NAME]
    for proxies, is_secure in ((["127.0.0.1"], True), (["10.9.8.7"], False)):
        trusted = [word for name in proxies for word in ("--trusted-proxy", name)]
        with serving(site.home, *options, *trusted, cwd=tmp_path) as url:
            address, token = _split(url)
            there = replace(site, url=address)
            first = ask(there, f"/?token={token}", Host=_NAME, X_Forwarded_Proto="https")
            assert ("secure" in str(first.headers["Set-Cookie"]).lower()) is is_secure


def test_all_addresses_are_answered_for_where_it_is_bound_to_all(
    site: Site, tmp_path: Path
) -> None:
    options = ["--results", str(site.results), "--host", "0.0.0.0"]
    with serving(site.home, *options, cwd=tmp_path) as url:
        address, token = _split(url)
        there = replace(site, url=address)
        own_name = socket.gethostname()

        assert ask(there, "/").status == 401
        assert ask(there, "/static/explore.css").status == 401
        assert ask(there, f"/?token={token}x").status == 401
        cookie = str(ask(there, f"/?token={token}").headers["Set-Cookie"]).partition(";")[0]
        for host in ("192.168.7.9:8642", "[fe80::1]", own_name):
            assert ask(there, "/", Host=host, Cookie=cookie).status == 200
        assert ask(there, "/", Host="rebinding.example", Cookie=cookie).status == 421


def test_a_token_leads_to_no_other_host(site: Site, tmp_path: Path) -> None:
    options = ["--results", str(site.results), "--allowed-host", _NAME]
    with serving(site.home, *options, cwd=tmp_path) as url:
        address, token = _split(url)
        answer = ask(replace(site, url=address), f"//evil.example/x?token={token}")

        assert answer.headers["Location"] == "/evil.example/x"


@pytest.mark.parametrize("origin", ["http://[", "http://", "//", "http://[::1", "\\x00"])
def test_an_origin_that_is_not_an_address_is_refused(site: Site, origin: str) -> None:
    body = "text=fever&system=bm25&task=demo%2Fbiology"

    assert ask(site, "/try", method="POST", body=body, Origin=origin, **_FORM).status == 403


def test_another_site_may_link_to_pages_but_not_embed_them(site: Site) -> None:
    cross = {"Sec_Fetch_Site": "cross-site"}
    link = {**cross, "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    image = {**cross, "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}

    assert ask(site, "/compare", **link).status == 200
    assert ask(site, "/compare", **image).status == 403


def test_pages_are_answered_while_more_connections_idle_than_files_may_be_open(
    site: Site, tmp_path: Path
) -> None:
    idle: list[socket.socket] = []
    with serving(site.home, "--results", str(site.results), cwd=tmp_path) as url:
        parts = urlsplit(url)
        try:
            for _ in range(400):
                idle.append(socket.create_connection((parts.hostname, parts.port), timeout=10))
            assert ask(replace(site, url=url), "/about").status == 200
            assert sum(map(_is_open, idle)) <= 200
        finally:
            for connection in idle:
                connection.close()


def _is_open(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def test_an_error_leaves_nothing_in_a_cache() -> None:
    cache: Cache[str] = Cache(3)

    def fail() -> str:
        raise LookupError("no page")

    for number in range(100):
        with pytest.raises(LookupError, match="no page"):
            cache.get(number, fail)

    assert not cache._making and not cache._values


def test_a_slow_model_delays_no_other_page(site: Site, tmp_path: Path) -> None:
    (tmp_path / "slow_model.py").write_text(
        "import time\n"
        "class Slow:\n"
        "    def encode(self, texts):\n"
        "        while not __import__('os').path.exists('go-on'):\n"
        "            time.sleep(0.05)\n"
        "        return [[1.0, float(len(text))] for text in texts]\n"
    )
    options = ["--results", str(site.results), "--try", "model:slow_model:Slow"]
    answers: list[Answer] = []
    with serving(site.home, *options, cwd=tmp_path) as url:
        there = replace(site, url=url)

        def type_a_query() -> None:
            body = "text=fever&system=model%3Aslow_model%3ASlow&task=demo%2Fbiology"
            sent = ask(there, "/try", method="POST", body=body, Origin=url, **_FORM)
            answers.append(sent)

        threads = [threading.Thread(target=type_a_query) for _ in range(12)]
        for thread in threads:
            thread.start()
        while len(answers) < 4:  # those that found the queue full
            time.sleep(0.05)
        for path in ("/about", "/tasks", "/", "/compare"):
            assert ask(there, path).status == 200
        assert len(answers) == 4
        (tmp_path / "go-on").touch()
        for thread in threads:
            thread.join()

    assert sorted(answer.status for answer in answers) == [200] * 8 + [403] * 4


def test_an_unknown_figure_starts_no_process(site: Site) -> None:
    answer = ask(site, "/plot/garbage?suite=demo")

    assert answer.status == 404 and "No figure is named" in answer.text


def test_a_failure_is_one_line_of_the_log(site: Site, tmp_path: Path) -> None:
    from r2med.serve.guard import failure_line

    try:
        raise ValueError("first\nsecond \x1b[31m")
    except ValueError as error:
        line = failure_line({"method": "GET", "path": "/x\n/y"}, error)

    assert "\n" not in line and "\x1b" not in line
    assert line.startswith("GET /x /y: ValueError: first second") and __file__ in line


def test_a_request_that_never_ends_does_not_hold_a_page(site: Site) -> None:
    parts = urlsplit(site.url)
    with closing(socket.create_connection((parts.hostname, parts.port))) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        connection = HTTPConnection(parts.netloc, timeout=30)
        with closing(connection):
            connection.request("GET", "/about")
            assert connection.getresponse().status == 200
