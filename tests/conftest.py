"""Fixtures for all tests: every test runs offline, with new home and working folders."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: Tests must not depend on time, because the speed depends on other processes of the machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

#: A background job ignores Ctrl-C, and processes that tests start would inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

_LOOPBACK = ("127.", "::1", "localhost")

#: Files and folders whose tests need extras of the package; single tests have a marker.
_EXTRAS = {
    "answer/test_answering.py": ("llm",),
    "audit/test_audit.py": ("web",),
    "build/test_corpus.py": ("build",),
    "build/test_items.py": ("llm",),
    "build/test_pipeline.py": ("build", "llm"),
    "build/test_stages.py": ("llm",),
    "cli/test_answer.py": ("web",),
    "cli/test_judge.py": ("web",),
    "cli/test_pyarrow_setup.py": ("test",),
    "evaluation/test_cluster.py": ("ray",),
    "evaluation/test_python.py": ("test",),
    "evaluation/test_reasoning.py": ("light",),
    "evaluation/test_sensitivity.py": ("light", "llm"),
    "evaluation/test_workers.py": ("dense", "llm"),
    "explore": ("web",),
    "judge/test_agreement.py": ("test",),
    "judge/test_effects.py": ("test",),
    "judge/test_judging.py": ("llm",),
    "measure/test_ir_measures_parity.py": ("test",),
    "measure/test_trec_eval_parity.py": ("test",),
    "results/test_select.py": ("web",),
    "serve/test_listener.py": ("web",),
    "serve/test_mcp.py": ("serve",),
}
#: Files and folders whose tests take more than four seconds of a processor.
_SLOW = (
    "build/test_probes.py",
    "cli/test_compare.py",
    "cli/test_endings.py",
    "cli/test_leaderboard.py",
    "cli/test_odd_surroundings.py",
    "report/test_cards.py",
    "report/test_formats.py",
    "report/test_tables.py",
    "results/test_store.py",
    "retrieve/bm25/test_lucene_analysis.py",
    "tasks/reading/test_layouts.py",
    "tasks/test_demo_artefacts.py",
    "test_docs.py",
    "trials",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--trials N`: tests under tests/trials run N times as many random cases."""
    parser.addoption("--trials", type=int, default=1, metavar="N", help="multiply trial counts")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files that `make quick` leaves out: what they import is not installed."""
    left_out = {"not extra": _EXTRAS, "not slow": _SLOW}
    expression = config.getoption("markexpr")
    paths = {path for marker, paths in left_out.items() if marker in expression for path in paths}
    return True if _is_below(collection_path, paths) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the files and folders above."""
    for item in items:
        for path, extras in _EXTRAS.items():
            if _is_below(item.path, [path]):
                item.add_marker(pytest.mark.extra(*extras))
        if _is_below(item.path, _SLOW):
            item.add_marker(pytest.mark.slow)


def _is_below(path: Path, parents: Iterable[str]) -> bool:
    tests = Path(__file__).parent
    return any(path.is_relative_to(tests / parent) for parent in parents)


@pytest.fixture
def trials(pytestconfig: pytest.Config) -> int:
    """The factor for the number of random cases: 1 in `make test`, more in `make trials`."""
    return int(pytestconfig.getoption("--trials"))


@pytest.fixture(autouse=True)
def isolated_folders(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give every test new folders for caches and results, so that no test affects another."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Refuse connections to other machines."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0]) if isinstance(address, tuple) else str(address)
            if not host.startswith(_LOOPBACK):
                raise OSError(f"the network is blocked in tests: {host}")
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)
    yield


@pytest.fixture
def repository() -> Path:
    """The checkout the tests run from."""
    return Path(__file__).parent.parent
