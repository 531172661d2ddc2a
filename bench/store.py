"""How listing, the leaderboard and pages of the explorer scale with stored results.

    python bench/store.py [--sizes 500,5000,50000] [--folder FOLDER]

Each folder has results of BM25 variants on the eight demo tasks. The first command builds the index
of the folder; the figures are of the second, with an index. Commands run as processes of their own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import r2med
from r2med.results.record import Record, Result
from r2med.results.store import Store
from r2med.tasks.registry import find_suite

PROGRAM = [sys.executable, "-m", "r2med"]


def main() -> None:
    """Print one line per size and command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="500,5000,50000")
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        base = options.folder or Path(temporary)
        os.environ["R2MED_HOME"] = str(base / "home")
        print(f"{'results':>8}  {'command':<28} {'first':>8} {'again':>8} {'cpu':>8} {'memory':>8}")
        for size in map(int, options.sizes.split(",")):
            folder = base / f"results-{size}"
            make_results(folder, size)
            for name, command in commands(folder).items():
                first, _, _ = run(command)
                again, cpu, memory = run(command)
                seconds = f"{first:>7.2f}s {again:>7.2f}s {cpu:>7.2f}s"
                print(f"{size:>8,}  {name:<28} {seconds} {memory:>6.0f}MB")
            board, processor, cached, memory = measure_pages(folder)
            seconds = f"{'':>8} {board:>7.2f}s {processor:>7.2f}s"
            print(f"{size:>8,}  {'explorer, first page':<28} {seconds} {memory:>6.0f}MB")
            print(f"{size:>8,}  {'explorer, cached page':<28} {'':>8} {1000 * cached:>6.0f}ms")


def commands(folder: Path) -> dict[str, list[str]]:
    """What is measured, by name."""
    place = ["--results", str(folder)]
    return {
        "results list": ["results", "list", *place],
        "leaderboard demo --top 10": ["leaderboard", "--suite", "demo", "--top", "10", *place],
    }


def make_results(folder: Path, count: int) -> None:
    """Store `count` results of as many BM25 settings as that takes, unless they are there."""
    if folder.exists():
        return
    store = Store(folder)
    tasks = [entry.name for entry in find_suite("demo").entries]
    examples = [r2med.evaluate("bm25", task, results=folder) for task in tasks]
    for number in range(len(tasks), count):
        copy_result(store, examples[number % len(tasks)], number // len(tasks))


def copy_result(store: Store, example: Result, variant: int) -> None:
    """Store a result again as that of another setting, with scores that differ a little."""
    record = vary(example.record, variant)
    target = store.folder(record.task.name, record.task.suite, record.system.spec, record.key)
    target.mkdir()
    for name in ("run.parquet", "scores.parquet"):
        os.link(example.folder / name, target / name)
    (target / "result.json").write_text(record.to_json(), encoding="utf-8")


def vary(record: Record, variant: int) -> Record:
    """The record of another setting of BM25."""
    k1 = round(0.5 + variant / 10_000, 4)
    spec = f"bm25[k1={k1}]"
    identity = {**record.system.identity, "k1": k1}
    stage = replace(record.system.stage, unit=spec, system=spec)
    system = replace(record.system, spec=spec, identity=identity, stage=stage)
    metrics = {name: value * (1 - variant / 100_000) for name, value in record.metrics.items()}
    return replace(record, system=system, metrics=metrics)


#: Runs a command in a small process: Linux counts the memory of the parent as a child's.
MEASURE = """
import resource, subprocess, sys, time
start = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
seconds = time.perf_counter() - start
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
"""


def run(arguments: list[str]) -> tuple[float, float, float]:
    """Seconds, seconds of the processor and peak megabytes of a command."""
    command = [sys.executable, "-c", MEASURE, *PROGRAM, *arguments]
    measured = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds, processor, megabytes = map(float, measured.stdout.split())
    return seconds, processor, megabytes


#: Runs the script in its first argument from a small process, for the same reason.
RELAY = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]], check=True)"

#: Opens the first page of the explorer ten times.
PAGES = """
import resource, sys, time
from starlette.testclient import TestClient
from r2med.explore.app import create_app
from r2med.explore.library import Library

client = TestClient(create_app(Library(sys.argv[1])), base_url="http://127.0.0.1")
times = []
processor_times = [time.process_time()]
for _ in range(10):
    start = time.perf_counter()
    client.get("/").raise_for_status()
    times.append(time.perf_counter() - start)
    processor_times.append(time.process_time())
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(times[0], processor_times[1] - processor_times[0], sorted(times[1:])[4], memory)
"""


def measure_pages(folder: Path) -> tuple[float, float, float, float]:
    """Measure the first page: seconds, seconds of the processor, seconds when cached, megabytes.

    The seconds of the cached page are the median of nine requests.
    """
    command = [sys.executable, "-c", RELAY, PAGES, str(folder)]
    measured = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    first, processor, cached, megabytes = map(float, measured.stdout.split())
    return first, processor, cached, megabytes


if __name__ == "__main__":
    main()
