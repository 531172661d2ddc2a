"""A results folder of someone else: no value or file in it stops a command or a page."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.testclient import TestClient

import r2med
from r2med.explore.app import create_app
from r2med.explore.library import Library
from r2med.results import index
from r2med.storage import seal
from tests.cli.running import run
from tests.explore.conftest import write_lines
from tests.results.test_store import make_endless, make_fifo, make_huge
from tests.trials.counting import counted
from tests.trials.limits import time_limit

CASES = 10
TASK = "demo/biology"
EXPANDED = "hyde:expert[generations=thoughts.jsonl] | bm25"


def nest(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**18, -(10**18), 10**400, 1e308, -1e308, 0.5),
    *("", "x", "=1+1", "\0", "../../../etc/passwd", "a" * 100_000, "9999-99-99", "((((", "bm25 |"),
    *("2026-01-01T00:00:00", "model:evil:Model", "\u202e<script>alert(1)</script>\x1b[31m"),
    *([], {}, [1], ["a"], {"x": 1}, [None], nest(30), nest(230), nest(900)),
)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("results", "list"),
    ("results", "list", "--json"),
    ("leaderboard", "--suite", "demo"),
    ("compare", "bm25", "bm25-lucene", "--task", TASK),
    ("diagnose", "bm25", "--task", TASK),
    ("diagnose", "bm25", "--task", TASK, "--query", "1"),
    ("report", "--out", "out/report.html"),
    ("results", "export", "--to", "csv", "--out", "out/csv"),
    ("plot", "means", "--suite", "demo", "--out", "out/means.svg"),
    ("eval", "bm25", "--task", TASK),
)
PAGES = (
    *("/", "/tasks", "/about", "/running", "/try", "/answers", "/audits", "/leaderboard.csv"),
    *(f"/task/{TASK}", f"/task/{TASK}/query/1", "/overlap?suite=demo", "/search?q=copper"),
    f"/task/{TASK}/query/1?{urlencode({'system': EXPANDED})}",
    f"/system?suite=demo&{urlencode({'system': EXPANDED})}",
    *("/compare?scope=demo", "/system?suite=demo&system=bm25"),
)
#: Pages that show all results, so that none of them may be refused because one is damaged.
ALL_RESULTS = ("/", "/tasks", "/about", "/running", "/leaderboard.csv", "/compare?scope=demo")


@pytest.fixture(autouse=True)
def index_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read every folder through an index, as a large one is."""
    monkeypatch.setattr(index, "_WORTH_INDEXING", 1)
    monkeypatch.setattr(index, "_SETTLED_NS", 0)


@pytest.fixture
def records() -> list[Path]:
    """The records of three systems in the folder r2med-results."""
    query_ids = r2med.load_task("demo/biology").queries.ids.to_pylist()
    thoughts = [{"id": query_id, "hy_doc": f"copper wool {query_id}"} for query_id in query_ids]
    write_lines(Path("thoughts.jsonl"), [dict(row) for row in thoughts])
    done = run("eval", "bm25", "bm25-lucene", EXPANDED, "--task", TASK)
    assert done.code == 0, done.err
    return sorted(Path("r2med-results").rglob("result.json"))


def use(commands: tuple[tuple[str, ...], ...], pages: tuple[str, ...], case: str) -> None:
    """Run commands and open pages: each succeeds or ends with one message."""
    for command in commands:
        shutil.rmtree("out", ignore_errors=True)
        with time_limit():
            done = run(*command)
        assert done.code in (0, 1, 2), f"{case}: {command}: {done.err}"
        assert "Traceback" not in done.err and "\x1b[31m" not in done.out, f"{case}: {command}"
        assert command[:2] != ("results", "list") or done.code == 0, f"{case}: {done.err}"
    application = create_app(Library("r2med-results"))
    with TestClient(application, base_url="http://localhost") as client:
        for page in pages:
            with time_limit():
                answer = client.get(page)
            assert answer.status_code in (200, 404, 422), f"{case}: {page}: {answer.text}"
            assert page not in ALL_RESULTS or answer.status_code == 200, f"{case}: {page}"
            assert "<script>alert" not in answer.text, f"{case}: {page}"


def find_fields(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield from find_fields(inner, (*path, key))


def test_no_value_in_a_record_stops_a_command_or_a_page(records: list[Path], trials: int) -> None:
    chance = random.Random(29)
    for _ in range(CASES * trials):
        path = chance.choice(records)
        sound = path.read_text()
        record = json.loads(sound)
        del record["checksum"]
        field = chance.choice(list(find_fields(record)))
        value = chance.choice(VALUES)
        parent = record
        for key in field[:-1]:
            parent = parent[key]
        parent[field[-1]] = value
        path.write_text(seal(record))

        commands, pages = chance.sample(COMMANDS[:-1], 3), chance.sample(PAGES, 5)
        use(tuple(commands), tuple(pages), f"{field} = {value!r:.60}")

        path.write_text(sound)
        counted("values in a stranger's record")


def make_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


def make_noise(path: Path) -> None:
    path.write_bytes(random.Random(0).randbytes(10_000))


ODD_FILES: tuple[Callable[[Path], None], ...] = (
    *(make_fifo, make_endless, make_link_to_itself, make_huge, make_noise),
    *(Path.mkdir, Path.touch, lambda path: None),
)


@pytest.mark.parametrize("name", ["result.json", "run.parquet", "scores.parquet"])
def test_no_file_of_a_result_stops_a_command_or_a_page(
    records: list[Path], name: str, trials: int
) -> None:
    chance = random.Random(name)
    for number in range(3 * trials):
        make = ODD_FILES[(number + len(name)) % len(ODD_FILES)]
        folder = chance.choice(records).parent
        shutil.copytree(folder, "sound")
        (folder / name).unlink()
        make(folder / name)

        commands, pages = chance.sample(COMMANDS[:-1], 3), chance.sample(PAGES, 5)
        use(tuple(commands), tuple(pages), f"{name}, {make}")

        shutil.rmtree(folder)
        Path("sound").rename(folder)
        counted("odd files in a stranger's result")


def test_an_evaluation_replaces_a_result_that_cannot_be_read(records: list[Path]) -> None:
    for make in ODD_FILES:
        for path in records:
            path.unlink()
            make(path)

        use(COMMANDS[-1:], ("/",), f"{make}")

        assert json.loads(run("results", "list", "--json").out)
        for path in records:
            if not path.is_file():
                shutil.rmtree(path.parent)
        assert run("eval", "bm25", "bm25-lucene", EXPANDED, "--task", TASK).code == 0
