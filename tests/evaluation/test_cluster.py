"""A Ray cluster gives what this process would give, and loses nothing when it loses a machine."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from r2med import Resources, evaluate, evaluate_all
from r2med.errors import MissingError
from r2med.execution.processes import open_workers
from r2med.execution.ray_cluster import RayWorkers, cluster_folder, start_node
from r2med.execution.workers import WorkerHandle
from r2med.models import encoding
from tests.cli.running import ended, start
from tests.evaluation.test_workers import FAULTY, descendants, elsewhere, gone, long_task, same

NODE: dict[str, Any] = {
    "num_cpus": 1,
    "include_dashboard": False,
    "object_store_memory": 80 * 1024**2,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two machines in name, on the loopback of this one; their environment is this one's now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R2MED_FAULTS", str(tmp_path_factory.mktemp("faults")))
        patch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray then stays on the loopback
        patch.setenv("RAY_gcs_server_port_wait_time_s", "120")
        import ray
        from ray.cluster_utils import Cluster

        made = start_node(lambda: Cluster(initialize_head=True, head_node_args=NODE))
        try:
            add_node(made)
            ray.init(address=made.address, log_to_driver=False, logging_level="ERROR")
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


def add_node(cluster: Any) -> None:
    """Add a machine in name, also while this one is busy."""
    start_node(lambda: cluster.add_node(**NODE))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_CHUNK_TEXTS", 8)


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_results_as_this_process(cluster: Any) -> None:
    systems = ["bm25", "wordllama", "bm25 + wordllama | own:tests.evaluation.faulty:SoundPairs@10"]
    tasks = ["demo/biology", "demo/medqa-diag"]

    there = elsewhere(systems, tasks, "ray")
    here = evaluate_all(systems, tasks)

    assert all(map(same, here, there))


@pytest.mark.filterwarnings("ignore")
def test_a_lost_machine_loses_nothing_and_a_new_one_joins(cluster: Any) -> None:
    task = long_task()
    steps, first = list[int](), set[WorkerHandle]()
    workers = open_workers("ray")
    assert isinstance(workers, RayWorkers)

    def disturb(what: str, done: int, total: int, seconds: float) -> None:
        steps.append(done)
        if len(steps) == 3:
            first.update(workers._handles)
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
        if len(steps) == 6:
            add_node(cluster)

    resources = Resources(workers=workers, progress=disturb)
    try:
        result = evaluate(f"{FAULTY}Sound", task, resources=resources, results="there")
        evaluate("bm25", task, resources=resources, results="there")
        while sum(member.ready for member in workers._handles) < 2:
            time.sleep(0.1)
        later = set(workers._handles)
    finally:
        workers.close()

    assert same(evaluate(f"{FAULTY}Sound", task), result)
    assert later - first


@pytest.mark.filterwarnings("ignore")
def test_faults_of_models_on_a_cluster_are_tried_elsewhere(cluster: Any, trials: int) -> None:
    if trials == 1:
        pytest.skip("the rules are those of processes; make trials tries them here too")
    task, told = long_task("dies", "hangs", "nan"), list[str]()

    result = elsewhere(f"{FAULTY}Unlucky", task, "ray", worker_timeout=20.0, warn=told.append)

    assert same(evaluate(f"{FAULTY}Sound", task), result)
    assert len([line for line in told if "retrying on another worker" in line]) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_not_there_is_named() -> None:
    import ray

    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(MissingError, match="--engine ray=127"):
        evaluate("bm25", "demo/biology", engine="ray=127.0.0.1:1")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_cluster_that_the_command_started(
    number: signal.Signals, trials: int, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    if trials == 1:
        pytest.skip("starting Ray takes long; make trials does it")
    monkeypatch.setenv("R2MED_PAUSE", "60")
    monkeypatch.setenv("PYTHONPATH", str(repository))
    mark = os.environ["R2MED_HOME"]
    process = start("eval", f"{FAULTY}Sound", "--task", "demo/biology", "--engine", "ray")
    while not any("Worker.work" in words for words in commands_of(descendants(mark))):
        assert process.poll() is None, ended(process)
        time.sleep(0.2)

    folder = find_cluster_folder(descendants(mark))

    process.send_signal(number)
    done = ended(process)

    assert done.code == 128 + number, done.err
    assert number == signal.SIGKILL or done.err.startswith(("interrupted: ", "terminated: "))
    assert gone(mark, seconds=90)
    if number == signal.SIGKILL:
        with cluster_folder():  # as the next command does
            pass
    assert not folder.exists()


def find_cluster_folder(pids: set[int]) -> Path:
    """The folder of a cluster, which the command lines of Ray's processes name."""
    folders = re.findall(r"/tmp/r2med-ray-\w+", "\n".join(commands_of(pids)))
    return Path(folders[0])


def commands_of(pids: set[int]) -> Iterator[str]:
    for pid in pids:
        with suppress(OSError):
            yield Path(f"/proc/{pid}/cmdline").read_text()


OWN_CLUSTER = """
import os, stat, sys, time
from pathlib import Path
from r2med.execution.ray_cluster import RayWorkers

workers = RayWorkers("", "ray", timeout=None, device=None, warn=print)
workers._start_missing()
while not any(handle.ready for handle in workers._handles):
    time.sleep(0.05)
import ray
from ray._private import worker

session = Path(worker._global_node.get_session_dir_path())
token = os.environ["RAY_AUTH_TOKEN"]
assert os.environ["RAY_AUTH_MODE"] == "token" and len(token) == 64
private = session.parents[1]
assert stat.S_IMODE(private.stat().st_mode) == 0o700, private
for path in [session, *session.rglob("*")]:
    status = path.lstat()
    if stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        assert not status.st_mode & 0o077, (path, oct(status.st_mode))
    if stat.S_ISREG(status.st_mode) and status.st_size < 1 << 20:
        assert token.encode() not in path.read_bytes(), path
handle = workers._handles[0]
if "close" in sys.argv:
    workers.close()
    handle.kill()
    assert not ray.is_initialized()
    assert not worker._global_node
    assert not private.exists()
print("done")
"""


@pytest.mark.parametrize("ending", ["close", "exit"])
def test_a_cluster_of_ones_own_is_private_and_ends_once(ending: str, tmp_path: Path) -> None:
    """In a process of its own, since Ray reads its settings when it is imported."""
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("RAY_")}

    done = subprocess.run(
        [sys.executable, "-c", OWN_CLUSTER, ending],
        capture_output=True,
        text=True,
        env={**environment, "HOME": str(tmp_path)},
    )

    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert not list(tmp_path.rglob("*token*"))


FAILED_STARTS = """
import os
from pathlib import Path
from ray._private import services
from r2med.execution import ray_cluster

attempts = []


def fail_twice(*arguments, **settings):
    attempts.append(arguments)
    if len(attempts) < 3:
        raise Exception("The current node timed out during startup.")
    return start_raylet(*arguments, **settings)


start_raylet, services.start_raylet = services.start_raylet, fail_twice
workers = ray_cluster.RayWorkers("", "ray", timeout=None, device=None, warn=print)
workers._connect()
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
programs = [Path(f"/proc/{pid}/cmdline").read_text().split("\\0")[0] for pid in children]
assert len([program for program in programs if "gcs_server" in program]) == 1, programs
workers.close()
print(len(attempts))
"""


def test_a_start_that_failed_is_tried_again_and_leaves_no_process(tmp_path: Path) -> None:
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("RAY_")}

    done = subprocess.run(
        [sys.executable, "-c", FAILED_STARTS],
        capture_output=True,
        text=True,
        env={**environment, "HOME": str(tmp_path)},
    )

    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
