"""Is the explorer quick enough to think with? Pages, load, start-up and memory against floors.

    python bench/explore.py [--folder DIR] [--seconds 20] [--rate 50]

Makes results of 20 systems on 8 tasks of 100 queries each, one of them with 60,000 documents, and
starts `r2med explore` on them, compiled as an installer leaves it. Times are taken by another
process over loopback. The floors are those of a laptop that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from compileall import compile_dir
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np

import r2med
from r2med.measure import measure
from r2med.results.record import Record, SystemRecord, TaskRecord
from r2med.results.stage_record import StageRecord
from r2med.results.store import Store
from r2med.runs import Run
from r2med.systems.output import StageCost
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite
from r2med.tasks.task import Task

LARGE, SMALL, QUERIES, SYSTEMS = 60_000, 2_000, 100, 20
WORDS, VOCABULARY = 120, 60_000
FLOORS = {
    "first leaderboard": 0.5,
    "leaderboard page, p95": 0.100,
    "query page, p95": 0.150,
    "start-up": 1.5,
    "memory, MB": 500.0,
}
MAIN = "Biology"
PROGRAM = [sys.executable, "-c", "from r2med.cli import main; main()"]


def names() -> list[str]:
    """Texts of twenty systems; what they are called matters to nobody here."""
    return [f"bm25[k1={1 + place / 10:.1f}]" for place in range(SYSTEMS)]


def write_task(folder: Path, documents: int, rng: np.random.Generator) -> None:
    """A task of random words, rare and frequent ones as in a language."""
    folder.mkdir(parents=True)
    vocabulary = np.array([f"w{number:x}" for number in range(VOCABULARY)])
    ranks = np.minimum(rng.zipf(1.25, size=(documents + QUERIES, WORDS)), VOCABULARY) - 1
    texts = [" ".join(row) for row in vocabulary[ranks]]
    corpus = ({"id": f"d{n}", "text": text} for n, text in enumerate(texts[QUERIES:]))
    queries = ({"id": f"q{n}", "text": text} for n, text in enumerate(texts[:QUERIES]))
    positives = [rng.choice(documents, 4, replace=False) for _ in range(QUERIES)]
    judged = (
        {"q_id": f"q{n}", "p_id": f"d{p}", "score": int(k < 3)}
        for n, row in enumerate(positives)
        for k, p in enumerate(row)
    )
    for name, rows in (("corpus", corpus), ("query", queries), ("qrels", judged)):
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def store_result(store: Store, task: Task, system: str, rng: np.random.Generator) -> None:
    """A run of a hundred documents per query in which some positives stand high."""
    ids = task.corpus.document_ids.to_pylist()
    judged = task.judgements.by_query()
    lists: dict[str, list[tuple[str, float]]] = {}
    for query in task.queries.ids.to_pylist():
        drawn = [ids[place] for place in rng.choice(len(ids), 97, replace=False)]
        for positive in (name for name, grade in judged[query].items() if grade > 0):
            drawn.insert(int(min(rng.exponential(25), 97)), positive)
        unique = list(dict.fromkeys(drawn))[:100]
        lists[query] = [(name, float(100 - rank)) for rank, name in enumerate(unique)]
    run = Run.from_lists(lists)
    scores = measure(run, task.judgements)
    record = Record(
        task=TaskRecord(
            task.name, task.suite, task.hash, len(ids), QUERIES, len(scores), task.notices
        ),
        system=SystemRecord(
            system,
            {"name": system},
            100,
            "trec",
            None,
            (),
            StageRecord("retriever", system, system, system, 100),
        ),
        metrics=scores.means(),
        micro={},
        seconds={"index": 1.0, "search": 0.5},
        facts={},
        created=datetime.now(UTC).isoformat(),
        costs=(
            StageCost(system, "index", 1.0),
            StageCost(system, "search", float(rng.exponential(0.5))),
        ),
    )
    store.write(record, run, scores)


def make(folder: Path) -> None:
    """Data and results, unless an earlier run left them."""
    if (folder / "made").exists():
        return
    rng = np.random.default_rng(7)
    entries = find_suite("full").entries
    for entry in entries:
        write_task(folder / "data" / entry.name, LARGE if entry.name == MAIN else SMALL, rng)
    store = Store(folder / "results")
    for entry in entries:
        task = load_task(entry.name, root=folder / "data")
        for system in names():
            store_result(store, task, system, rng)
    (folder / "made").touch()


def get(url: str, path: str) -> tuple[int, float, str]:
    """Status, seconds and text of one request."""
    start = time.perf_counter()
    connection = HTTPConnection(urlsplit(url).netloc, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        text = response.read().decode()
        return response.status, time.perf_counter() - start, text
    finally:
        connection.close()


def leaderboards() -> list[str]:
    sorts = ["", *(f"&sort={entry.name}" for entry in find_suite("full").entries)]
    return [f"/leaderboard?suite=full{sort}{more}" for sort in sorts for more in ("", "&rows=all")]


def query_pages() -> list[str]:
    systems = names()
    return [
        f"/task/{MAIN}/query/q{n}?system={quote(systems[n % SYSTEMS])}"
        f"&system={quote(systems[(n + 7) % SYSTEMS])}"
        for n in range(QUERIES)
    ]


def others() -> list[str]:
    a, b = map(quote, names()[:2])
    return [
        "/tasks",
        "/about",
        "/running",
        f"/task/{MAIN}",
        f"/compare?scope={MAIN}&system={a}&system={b}",
        f"/system?suite=full&system={a}",
        "/plot/means.svg?suite=full&theme=light",
        "/static/explore.css",
        f"/task/{MAIN}/document/d1?query=q1",
    ]


def p95(url: str, paths: Sequence[str]) -> float:
    """Of pages that were asked for before."""
    for path in paths:
        status, _, text = get(url, path)
        assert status == 200, f"{path}: {status}\n{text[:500]}"
    return float(np.quantile([get(url, path)[1] for path in paths for _ in range(2)], 0.95))


def load(url: str, rate: float, seconds: float) -> None:
    """Ask for mixed pages at a fixed rate, whether answers come or not; print what came."""
    paths = [*leaderboards(), *query_pages(), *others()]
    rng = np.random.default_rng(3)
    chosen = [paths[place] for place in rng.integers(len(paths), size=int(rate * seconds))]
    begun = time.perf_counter()

    def ask(place: int) -> tuple[int, float]:
        time.sleep(max(0.0, begun + place / rate - time.perf_counter()))
        due = begun + place / rate
        try:
            status, _, _ = get(url, chosen[place])
        except OSError:
            status = 0
        return status, time.perf_counter() - due

    with ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(ask, range(len(chosen))))
    late = [seconds for _, seconds in answers]
    print(
        json.dumps(
            {
                "requests": len(answers),
                "errors": sum(status != 200 for status, _ in answers),
                "p50": float(np.quantile(late, 0.5)),
                "p95": float(np.quantile(late, 0.95)),
                "seconds": time.perf_counter() - begun,
            }
        )
    )


def memory(pid: int) -> float:
    """The megabytes that a process has."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else float("nan")


def bench(folder: Path, rate: float, seconds: float) -> int:
    make(folder)
    compile_dir(Path(r2med.__file__).parent, quiet=1)
    environment = {**os.environ, "R2MED_HOME": str(folder / "home")}
    options = ["--results", str(folder / "results"), "--data-root", str(folder / "data")]
    start = time.perf_counter()
    process = subprocess.Popen(
        [*PROGRAM, "explore", *options, "--no-open", "--port", "0"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        match = re.search(r"http://\S+/", process.stdout.readline())
        assert match, "the explorer did not start"
        url = match[0].rstrip("/")
        assert get(url, "/about")[0] == 200
        found = {"start-up": time.perf_counter() - start}
        found["first leaderboard"] = get(url, "/leaderboard?suite=full")[1]
        found["leaderboard page, p95"] = p95(url, leaderboards())
        cold = get(url, query_pages()[0])[1]
        found["query page, p95"] = p95(url, query_pages())
        for path in others():
            get(url, path)
        run = [sys.executable, __file__, "--load", url, "--rate", str(rate)]
        loader = subprocess.Popen(
            [*run, "--seconds", str(seconds)], stdout=subprocess.PIPE, text=True
        )
        time.sleep(seconds / 4)
        task = load_task(MAIN, root=folder / "data")
        new = f"bm25[k1={time.time_ns() % 10**9}]"
        store_result(Store(folder / "results"), task, new, np.random.default_rng(1))
        seen = new in get(url, f"/task/{MAIN}")[2].replace("<wbr>", "")
        answered = json.loads(loader.communicate(timeout=seconds + 120)[0])
        found["memory, MB"] = memory(process.pid)
    finally:
        process.terminate()
        process.wait(timeout=30)
    print(f"first query page of {LARGE:,} documents {cold:.2f} s")
    print(f"{rate:g} requests/s for {seconds:g} s: {answered}")
    print(f"a result stored meanwhile was {'seen' if seen else 'NOT seen'} on reload")
    failed = answered["errors"] > 0 or not seen
    for name, floor in FLOORS.items():
        good = found[name] <= floor
        failed = failed or not good
        print(f"{name:<24} {found[name]:8.3f}  floor {floor:g}  {'ok' if good else 'MISSED'}")
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="where data and results are kept")
    parser.add_argument("--rate", type=float, default=50)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(options.load, options.rate, options.seconds)
        return 0
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
        return bench(options.folder, options.rate, options.seconds)
    with tempfile.TemporaryDirectory() as folder:
        return bench(Path(folder), options.rate, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
