"""One server over real results and one Chromium for all tests of the explorer."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.explore.hostile import write_hostile_task

PROGRAM = [sys.executable, "-c", "from r2med.cli import main; main()"]
SYSTEMS = ("bm25", "bm25-lucene", "bm25[k1=0.1]")
TASKS = "demo/medqa-diag,demo/biology"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_HOW = (
    "no Chromium was found, so pages are not tested in a browser. Install it with "
    "`apt-get install chromium` or `python -m playwright install chromium`."
)


@dataclass(frozen=True)
class Site:
    """A running explorer."""

    url: str
    results: Path
    home: Path

    def command(self, *arguments: str) -> None:
        """Run the command line beside it, with the same caches."""
        run_command(self.home, *arguments)


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """An explorer over results of two demo tasks and of a task that means harm."""
    folder = tmp_path_factory.mktemp("explore")
    home, results = folder / "home", folder / "results"
    hostile = write_hostile_task(folder / "hostile")
    run_command(home, "eval", *SYSTEMS, "--task", TASKS, "--results", str(results))
    run_command(home, "eval", *SYSTEMS[:2], "--task", str(hostile), "--results", str(results))
    with serving(home, "--results", str(results), "--task", str(hostile), cwd=folder) as url:
        yield Site(url, results, home)


@contextmanager
def serving(home: Path, *options: str, cwd: Path) -> Iterator[str]:
    """Run `r2med explore` at a free port until the block ends, and give its address."""
    process = subprocess.Popen(
        [*PROGRAM, "explore", "--no-open", "--port", "0", *options],
        env=_environment(home),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if match := re.search(r"r2med explore: (http://\S+?)/(\?token=\S+)? ", line):
                break
        else:
            raise AssertionError("".join(lines))
        yield match[1] + (match[2] or "")
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A real Chromium; without one the tests are skipped, or fail where it is required."""
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    playwright = pytest.importorskip("playwright.sync_api", reason=_HOW)
    with playwright.sync_playwright() as driver:
        path = path or driver.chromium.executable_path
        if not Path(path).exists():
            if os.environ.get("R2MED_REQUIRE_BROWSER"):
                pytest.fail(_HOW)
            pytest.skip(_HOW)
        root = hasattr(os, "geteuid") and os.geteuid() == 0
        arguments = ["--no-sandbox"] if root else []
        launched = driver.chromium.launch(executable_path=path, args=arguments)
        yield launched
        launched.close()


@dataclass(frozen=True)
class Visit:
    """A page in the browser, and everything that went wrong on it."""

    page: Any
    site: Site
    problems: list[str]

    def go(self, path: str) -> Any:
        """Open a page of the site."""
        self.page.goto(self.site.url + path)
        return self.page


@pytest.fixture
def visit(browser: Any, site: Site) -> Iterator[Visit]:
    """A fresh page at 1440 pixels; console errors and requests off loopback fail the test."""
    yield from visiting(browser, site)


def visiting(browser: Any, site: Site, **options: Any) -> Iterator[Visit]:
    """A fresh page with other settings of the browser."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"error: {error}"))
    page.on("dialog", lambda dialog: problems.append(f"a dialog opened: {dialog.message}"))
    page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    page.on(
        "request",
        lambda sent: (
            None if sent.url.startswith(site.url) else problems.append(f"left: {sent.url}")
        ),
    )
    yield Visit(page, site, problems)
    context.close()
    assert problems == []


def _environment(home: Path) -> dict[str, str]:
    return {**os.environ, "R2MED_HOME": str(home)}


def run_command(home: Path, *arguments: str, cwd: Path | None = None) -> str:
    """Run the command line, which must succeed, and return what it printed."""
    program = [*PROGRAM, *arguments]
    done = subprocess.run(program, env=_environment(home), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_lines(path: Path, rows: list[dict[str, object]]) -> None:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
