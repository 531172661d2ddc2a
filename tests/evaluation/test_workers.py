"""Workers give what this process would give, and lose nothing when they fail."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from operator import concat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med import Resources, RunOptions, evaluate, evaluate_all
from r2med.errors import MissingError, UsageError, WorkError
from r2med.execution.processes import ProcessHandle, ProcessWorkers, open_workers
from r2med.execution.workers import StageSpec, WorkerAnswer, WorkerJob, Workers, divide_cores
from r2med.models import encoding
from r2med.models.embedding_cache import EmbeddingCache, open_cache
from r2med.models.user_code import code_identity
from r2med.paths import home_folder
from r2med.results.record import Result
from r2med.results.store import Store, read_result
from r2med.tasks.task import Task
from tests.cli.running import ended, run, start
from tests.evaluation import faulty
from tests.llm_server import running_llm_server
from tests.retrieve.checkpoints import save_model, sentences
from tests.retrieve.small_task import own_task

FAULTY = "model:tests.evaluation.faulty:"


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pieces of a few texts, so that small tasks have many."""
    monkeypatch.setattr(encoding, "_CHUNK_TEXTS", 8)
    monkeypatch.setenv("R2MED_FAULTS", str(tmp_path))


def same(here: Result, there: Result) -> bool:
    """Whether two results hold the same rankings, and scores to the last bit."""
    one, other = here.run.to_table(), there.run.to_table()
    return bool(one.equals(other)) and here.metrics == there.metrics


def elsewhere(systems: Any, task: Any, engine: str = "processes=2", **options: Any) -> Any:
    """Evaluated on workers, with a results folder of its own."""
    one = not isinstance(systems, list) and not isinstance(task, list)
    run = evaluate if one else evaluate_all
    return run(systems, task, engine=engine, results="there", **options)


@contextmanager
def pool(count: int = 2, timeout: float | None = None) -> Iterator[ProcessWorkers]:
    workers = open_workers(f"processes={count}", timeout=timeout)
    assert isinstance(workers, ProcessWorkers)
    try:
        yield workers
    finally:
        workers.close()


def descendants(mark: str) -> set[int]:
    """Processes that were started with this text in their environment."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes():
                found.add(int(path.name))
        except OSError:
            continue
    return found - {os.getpid()}


def gone(mark: str, seconds: int = 30) -> bool:
    """Whether, after a moment, no such process is left."""
    for _ in range(10 * seconds):
        if not descendants(mark):
            return True
        time.sleep(0.1)
    return False


def logged(folder: Path, kind: str = "texts") -> list[str]:
    return [line for file in folder.glob(f"{kind}-*.log") for line in file.read_text().split()]


def long_task(*marked: str) -> Task:
    """A task of a hundred documents of one length; some call for a fault, each in its own piece."""
    words = {place * 15: f"<{fault}>" for place, fault in enumerate(marked)}
    return own_task(
        {f"d{place}": f"document {place:3} {words.get(place, ''):10}." for place in range(100)}
    )


def test_processes_give_the_same_results_as_this_process() -> None:
    systems = ["bm25", "wordllama", "bm25 + wordllama | own:tests.evaluation.faulty:SoundPairs@10"]
    tasks = ["demo/biology", "demo/medqa-diag"]

    here = evaluate_all(systems, tasks)
    there = elsewhere(systems, tasks)

    assert [result.system for result in there] == [result.system for result in here]
    assert all(map(same, here, there))
    facts = there[1].record.facts["wordllama"]
    assert facts["documents"]["reused"] == facts["documents"]["distinct"]


def test_transformers_differ_by_no_more_than_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = save_model(tmp_path / "model", "bert")
    words = sentences(40)[1:]
    task = own_task({f"d{place}": text for place, text in enumerate(words)})
    system = f"dense:{model}"

    here = evaluate(system, task)
    monkeypatch.setenv("R2MED_HOME", str(tmp_path / "home"))
    there = elsewhere(system, task, "processes=1")

    np.testing.assert_allclose(here.run.scores, there.run.scores, atol=1e-6)
    documents = there.record.facts[system]["documents"]
    assert documents["engine"] == "processes=1"
    assert documents["device"] == "cpu"
    assert documents["first"] == here.record.facts[system]["documents"]["first"]


def test_every_fault_that_passes_is_tried_elsewhere_and_leaves_no_trace(tmp_path: Path) -> None:
    task = long_task("dies", "hangs", "raises", "nan", "short", "hungry")
    told: list[str] = []

    result = elsewhere(f"{FAULTY}Unlucky", task, worker_timeout=2.0, warn=told.append)

    assert same(evaluate(f"{FAULTY}Sound", task), result)
    assert len([line for line in told if "retrying on another worker" in line]) == 5
    for words in ("SIGKILL", "within 2 s", "once in a hundred", "NaN", "shape (7, 8) for 8"):
        assert any(words in line for line in told), words
    assert any("out of memory" in line for line in told)
    assert len(list(tmp_path.glob("*-0.struck"))) == 6


def test_a_fault_that_stays_is_named_and_everything_else_is_done(tmp_path: Path) -> None:
    task = long_task("dies", "nan")

    with pytest.raises(WorkError) as failure:
        elsewhere([f"{FAULTY}Cursed", f"{FAULTY}Sound", "bm25"], task, warn=lambda _: None)

    assert "2 of 13 batches failed, each 3 times" in str(failure.value)
    assert "8 texts from document d" in str(failure.value)
    stored = {read_result(folder).system for folder in Store(Path("there")).folders()}
    assert stored == {f"{FAULTY}Sound", "bm25"}
    assert len(set(logged(tmp_path))) == 102
    assert len(list(tmp_path.glob("dies-*.struck"))) == 3


def test_eight_workers_fill_one_store_over_the_folder_and_through_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = long_task()
    expected = faulty.vectors_of(task.corpus.texts.to_pylist())
    for shared in (True, False):
        place = tmp_path / str(shared)
        monkeypatch.setenv("R2MED_HOME", str(place))
        with pool(8) as workers:
            workers.share_home = shared
            resources = Resources(workers=workers)
            evaluate(f"{FAULTY}Sound", task, resources=resources, force=True)

        shards = list(place.glob("embeddings/*/*.arrow"))
        cache = opened(place)
        places = cache.find(cache_addresses(task))
        assert (cache.vectors(places) == expected).all()
        assert (len({shard.name.split("-")[1] for shard in shards}) > 2) == shared


def cache_addresses(task: Task) -> Any:
    from r2med.models.encoding import Form

    return Form().addresses(task.corpus.texts.to_pylist())


def opened(place: Path) -> EmbeddingCache:
    identity = {"library": "custom", "identity": "sound", **code_identity(faulty.Sound())}
    cache = open_cache("embeddings", identity, label="", warn=print, root=place / "embeddings")
    assert cache.folder is not None
    return cache


def test_a_worker_that_is_killed_while_it_waits_is_replaced() -> None:
    task = long_task()
    with pool() as workers:
        evaluate(f"{FAULTY}Sound", task, resources=Resources(workers=workers))
        first = workers._handles[0]
        assert isinstance(first, ProcessHandle)
        os.kill(first.process.pid, signal.SIGKILL)

        again = evaluate("bm25", task, resources=Resources(workers=workers))

        assert same(again, evaluate("bm25", task, force=True))


def test_what_a_worker_holds_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    call, sent = ProcessHandle.call, list[str]()

    def noting(
        self: ProcessHandle, method: str, *arguments: Any, seconds: float | None
    ) -> WorkerAnswer:
        if method == "load_stage":
            sent.append(arguments[0].spec)
        return call(self, method, *arguments, seconds=seconds)

    monkeypatch.setattr(ProcessHandle, "call", noting)
    asked = [0, 1, 1, 0, 2, 3, 4, 0, 1]
    with pool(1) as workers:
        outcomes = [workers.submit(stage_of(number), concat, ["piece"])() for number in asked]

    assert outcomes == [[f"stage {number}", "piece"] for number in asked]
    assert sent == [f"stage {number}" for number in (0, 1, 2, 3, 4, 1)]


def list_of_spec(spec: str, resources: Resources) -> list[str]:
    return [spec]


def stage_of(number: int) -> StageSpec:
    """A stage that is nothing but a list of its spec."""
    return StageSpec(f"stage {number}", RunOptions(), list_of_spec)


def test_a_worker_that_does_not_even_read_is_killed_in_time() -> None:
    source = stage_of(1)
    with pool(1, timeout=1.0) as workers:
        workers.submit(source, concat, [])()
        first = workers._handles[0]
        assert isinstance(first, ProcessHandle)
        os.kill(first.process.pid, signal.SIGSTOP)

        outcome = workers.submit(source, concat, ["text " * 100_000])()

    assert len(outcome) == 2
    assert first.process.poll() == -signal.SIGKILL


def test_clocks_that_jump_move_neither_time_outs_nor_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = long_task()
    real, jumps = time.time_ns, iter(range(10_000))
    monkeypatch.setattr(time, "time_ns", lambda: real() + (-1) ** next(jumps) * 10**18)
    monkeypatch.setattr(time, "time", lambda: time.time_ns() / 1e9)

    result = elsewhere([f"{FAULTY}Sound"], task, worker_timeout=60.0)[0]

    assert same(evaluate(f"{FAULTY}Sound", task), result)


def test_a_run_of_a_worker_is_called_by_its_system_and_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pieces: list[object] = []
    submit = Workers.submit

    def noting(self: Workers, source: Any, work: Any, piece: Any) -> Any:
        pieces.append(piece)
        return submit(self, source, work, piece)

    monkeypatch.setattr(Workers, "submit", noting)
    elsewhere("bm25", "demo/biology", "processes=1")

    assert [str(piece) for piece in pieces] == ["bm25 on demo/biology"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_workers(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setenv("R2MED_PAUSE", "60")
    monkeypatch.setenv("PYTHONPATH", str(repository))
    command = ["eval", f"{FAULTY}Sound", "--task", "demo/biology", "--engine", "processes=2"]
    process = start(*command)
    mark = os.environ["R2MED_HOME"]
    while len(descendants(mark) - {process.pid}) < 2:
        assert process.poll() is None
        time.sleep(0.05)

    process.send_signal(number)
    done = ended(process)

    assert done.code == 128 + number
    assert done.err.startswith({2: "interrupted: ", 15: "terminated: "}[number])
    assert gone(mark)


def test_one_budget_holds_for_all_workers() -> None:
    with running_llm_server() as server:
        server.reply = lambda body: "vessels and valves"
        outcome = run(
            *("eval", "wordllama", "hyde:qwen-7b[max_tokens=64] | wordllama"),
            *("--task", "demo/biology,demo/medqa-diag", "--llm-url", server.url),
            *("--max-tokens", "3500", "--engine", "processes=2"),
        )

        assert outcome.code == 3, outcome.err
        assert 0 < server.tokens <= 3500


def test_engines_that_are_not_known_and_times_without_workers_are_refused() -> None:
    for engine in ("threads", "processes=0", "processes=x", "local=2"):
        with pytest.raises(UsageError, match="expected local, processes"):
            open_workers(engine)
    with pytest.raises(UsageError, match="needs --engine processes"):
        open_workers("local", timeout=3.0)
    with pytest.raises(UsageError, match="above 0"):
        open_workers("processes", timeout=0.0)
    assert open_workers("local") is None


def test_an_object_of_this_process_runs_here_and_says_so() -> None:
    told: list[str] = []

    result = elsewhere(faulty.vectors_of, long_task(), warn=told.append)

    assert any("run in this process" in line for line in told)
    assert same(evaluate(f"{FAULTY}Sound", long_task()), result)


def test_workers_share_the_cores_or_have_a_gpu_each() -> None:
    assert divide_cores(2, 0) == (2, 1)
    assert divide_cores(1, 0) == (1, 1)
    assert divide_cores(16, 0) == (4, 4)
    assert divide_cores(64, 8) == (8, 8)
    assert divide_cores(4, 8) == (8, 1)


def test_workers_leave_the_store_of_an_older_version_alone() -> None:
    task = long_task()
    elsewhere(f"{FAULTY}Sound", task)
    (record,) = home_folder().glob("embeddings/*/model.json")
    model = {"library": "custom", "identity": "sound"}
    earlier = {"schema": 1, "label": "sound", "model": model, "storage": "float32"}
    record.write_text(json.dumps(earlier))
    record.parent.rename(record.parent.with_name("earlier"))

    again = elsewhere(f"{FAULTY}Sound", task, force=True)

    assert again.record.facts[f"{FAULTY}Sound"]["documents"]["reused"] == 0
    assert json.loads(record.parent.with_name("earlier").joinpath("model.json").read_text()) == (
        earlier
    )


def test_a_worker_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    call = ProcessHandle.call

    def older(
        self: ProcessHandle, method: str, *arguments: Any, seconds: float | None
    ) -> WorkerAnswer:
        answer = call(self, method, *arguments, seconds=seconds)
        return WorkerAnswer(["0.0.9", "node7"]) if method == "begin" else answer

    monkeypatch.setattr(ProcessHandle, "call", older)

    with pytest.raises(UsageError, match=r"worker on node7 runs r2med 0\.0\.9, this is"):
        elsewhere("bm25", "demo/biology")


def test_workers_that_cannot_be_started_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")

    with pytest.raises(MissingError, match=r"no worker of --engine processes=2 could be started"):
        elsewhere("bm25", "demo/biology")


def test_a_piece_that_was_given_up_is_not_tried_again() -> None:
    with pool() as workers:
        workers._start_missing()
        while not workers._handles:
            time.sleep(0.05)
        job = WorkerJob(stage_of(1), lambda *_: (), "piece", is_cancelled=True)
        workers._retry_or_fail(job, workers._handles[0], WorkError("no"))

        assert isinstance(job.future.exception(), WorkError)
        assert not workers._queue
