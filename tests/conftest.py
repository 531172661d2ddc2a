"""Every test runs offline, in its own home and working folder."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: No test times anything: how fast examples come depends on what else the machine does.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

#: Started in the background a shell ignores Ctrl-C, and what tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

_LOOPBACK = ("127.", "::1", "localhost")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--trials N`: the tests under tests/trials draw N times as many kills, flips and inputs."""
    parser.addoption("--trials", type=int, default=1, metavar="N", help="multiply trial counts")


@pytest.fixture
def trials(pytestconfig: pytest.Config) -> int:
    """What a trial multiplies its count by: 1 in `make test`, more in `make trials`."""
    return int(pytestconfig.getoption("--trials"))


@pytest.fixture(autouse=True)
def own_folders(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches and results of a test are its own, so that no test depends on another."""
    monkeypatch.setenv("R2MED_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
    monkeypatch.chdir(tmp_path_factory.mktemp("work"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections leave this machine for nobody; loopback aside."""
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
