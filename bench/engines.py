"""Engines against their floors: what sharing work out costs, and what a second process gains.

    python bench/engines.py [--texts 10000] [--rounds 3] [--ray]

One thread everywhere. Short texts of one length go through `minilm` in batches of 64: directly,
then by each engine into an empty store, with models loaded beforehand. Rounds take turns, and the
best counts.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}

import numpy as np

from r2med import Resources, RunOptions, load_task
from r2med.execution.processes import ProcessHandle, open_workers
from r2med.models.encoding import Form
from r2med.systems.build import Builder
from r2med.systems.spec import Unit
from r2med.systems.stages import Retrieval

BATCH = 64
WORDS = ["heart", "lung", "fever", "cough", "pain", "blood", "liver", "brain", "skin", "bone"]
Timed = tuple[float, float]
"""Seconds of the clock, and of all processors together."""


def main() -> None:
    """Measure every engine in turn and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    chance = np.random.default_rng(0)
    texts = [" ".join(words) for words in chance.choice(WORDS, (options.texts, 14)).tolist()]
    texts = list(dict.fromkeys(texts))
    names = ["local", "processes=1", "processes=2", *(["ray"] if options.ray else [])]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = folder
        engines = {}
        for name in names:
            with other_home(folder, f"{name} loaded"):
                engines[name] = Encoding(name)
        direct = engines["local"].direct
        best: dict[str, list[Timed]] = defaultdict(list)
        for place in range(options.rounds):
            best["direct"].append(measured(partial(direct, texts), []))
            for name, engine in engines.items():
                with other_home(folder, f"{name} {place}"):
                    best[name].append(measured(partial(engine, texts), engine.pids()))
        for engine in engines.values():
            engine.close()
    load = os.getloadavg()[0]
    print(f"{len(texts):,} texts in batches of {BATCH}, best of {options.rounds}; load {load:.1f}")
    clock, processor = (min(column) for column in zip(*best["direct"], strict=True))
    for name, rounds in best.items():
        seconds, cpu = (min(column) for column in zip(*rounds, strict=True))
        spent = "" if name == "ray" else f"; CPU {cpu:6.2f} s ({cpu / processor - 1:+.1%})"
        print(f"  {name:<12}{seconds:7.2f} s ({seconds / clock - 1:+.1%}){spent}")
    one, two = (min(seconds for seconds, _ in best[f"processes={n}"]) for n in (1, 2))
    print(f"  two processes are {one / two:.2f}x as fast as one (floor 1.6x on two free cores)")


class Encoding:
    """`minilm` on one engine, its models loaded."""

    def __init__(self, engine: str) -> None:
        self.workers = open_workers(engine)
        self.task = load_task("demo/biology")
        retriever = self._retriever(4096)
        inputs = retriever.encoders["document"].inputs([" ".join(WORDS)], Form())
        self.retriever = self._retriever(BATCH * int(inputs.tokens[0]))
        self([f"{name} {' '.join(WORDS)} {place}" for name in WORDS for place in range(64)])

    def __call__(self, texts: list[str]) -> object:
        return self.retriever.encode(self.task, "document", texts)

    def direct(self, texts: list[str]) -> None:
        """The encoder alone: tokenise, run, keep nothing."""
        encoder = self.retriever.encoders["document"]
        for start in range(0, len(texts), BATCH):
            inputs = encoder.inputs(texts[start : start + BATCH], Form())
            encoder.encode(inputs, np.arange(len(inputs.tokens)))

    def pids(self) -> list[int]:
        """The processes of its workers."""
        members = getattr(self.workers, "_handles", [])
        return [member.process.pid for member in members if isinstance(member, ProcessHandle)]

    def close(self) -> None:
        if self.workers:
            self.workers.close()

    def _retriever(self, batch_tokens: int) -> Any:
        resources = Resources(RunOptions(batch_tokens=batch_tokens), workers=self.workers)
        stage = Builder(resources, {}).system(Unit("minilm"))
        assert isinstance(stage, Retrieval)
        return stage.retriever


@contextmanager
def other_home(folder: str, name: str) -> Iterator[None]:
    """An empty store, while the block runs."""
    os.environ["R2MED_HOME"] = str(Path(folder) / name)
    try:
        yield
    finally:
        os.environ["R2MED_HOME"] = folder


def measured(work: Callable[[], object], others: list[int]) -> Timed:
    """How long the work takes, and what it takes of the processors, those of others included."""
    start, used = time.perf_counter(), time.process_time() + sum(map(cpu_seconds, others))
    work()
    spent = time.process_time() + sum(map(cpu_seconds, others)) - used
    return time.perf_counter() - start, spent


def cpu_seconds(pid: int) -> float:
    """What a process has taken of the processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
