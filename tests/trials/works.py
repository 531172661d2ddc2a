"""Commands that are disturbed in trials, and what each must have made when it is done."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from r2med.results.store import Store, read_result
from tests.cli.running import Outcome, ended, start
from tests.llm_server import running_llm_server

TASKS = "demo/biology,demo/medqa-diag"


@dataclass(frozen=True)
class Work:
    """A command, and the outcome that every undisturbed run of it has."""

    command: str
    outcome: Callable[[], object]

    @property
    def words(self) -> list[str]:
        return self.command.split("  ")


def _results() -> object:
    """Every stored score, by task and system."""
    found = {}
    for folder in Store(Path("results")).folders():
        result = read_result(folder)
        rows = [result.scores[name].tolist() for name in sorted(result.metrics)]
        found[result.task, result.system] = (dict(result.metrics), rows, _bytes(folder / "run.*"))
    return found


def _bytes(pattern: Path) -> dict[str, str]:
    """Checksums of the files of a pattern; drafts and records of when and where aside."""
    base = Path(pattern.anchor or ".")
    relative = pattern.relative_to(base) if pattern.is_absolute() else pattern
    return {
        str(path.name): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(base.glob(str(relative)))
        if path.is_file() and not path.name.startswith(".")
    }


WORKS = {
    "eval": Work(
        "eval  bm25  bm25 + wordllama  hyde:qwen-7b | bm25"
        f"  --task  {TASKS}  --results  results  --force",
        _results,
    ),
    "generate": Work(
        "generate  hyde  --llm  qwen-7b  --task  demo/biology  --out  made",
        lambda: _bytes(Path("made/**/*.jsonl")),
    ),
    "nano": Work(
        "nano  build  demo/biology  --documents  60  --out  nano  --force",
        lambda: _bytes(Path("nano/**/*.parquet")),
    ),
    "exclusions": Work(
        "tasks  exclusions  demo/biology  --out  exclusions.jsonl  --force",
        lambda: _bytes(Path("exclusions.jsonl")),
    ),
}


#: What the sample of `make test` disturbs: processes are what takes its time.
SAMPLE = ("eval", "exclusions")


@contextmanager
def undisturbed(monkeypatch: pytest.MonkeyPatch, trials: int) -> Iterator[dict[str, object]]:
    """A folder to work in with a model server beside it; yields what each work makes there."""
    with running_llm_server() as server:
        server.reply = lambda body: f"Passage {len(body['messages'][-1]['content'])} of vessels."
        monkeypatch.setenv("R2MED_LLM_URL", server.url)
        yield outcomes(SAMPLE if trials == 1 else tuple(WORKS))


def outcomes(names: Iterable[str]) -> dict[str, object]:
    """What each of these works makes when nothing disturbs it."""
    return {name: finished(WORKS[name]) for name in names}


def finished(work: Work) -> object:
    """Run a work to its end; what it made."""
    done = ended(start(*work.words))
    assert done.code == 0, done.err
    assert "Traceback" not in done.err
    return work.outcome()


def one_message(done: Outcome) -> bool:
    """Whether nothing but notices and one message went to standard error, and no traceback."""
    lines = [line for line in done.err.splitlines() if not line.startswith("note: ")]
    return "Traceback" not in done.err and len(lines) <= 4


def chosen(names: Iterable[str], chance: random.Random) -> str:
    """One of these works; mostly evaluations, which do the most."""
    return chance.choice(["eval", "eval", "eval", *names])
