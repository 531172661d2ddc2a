"""Fixtures for all tests: every test runs offline, with new home and working folders."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

#: Tests must not depend on time, because the speed depends on other processes of the machine.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")

#: A background job ignores Ctrl-C, and processes that tests start would inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

_LOOPBACK = ("127.", "::1", "localhost")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--trials N`: tests under tests/trials run N times as many random cases."""
    parser.addoption("--trials", type=int, default=1, metavar="N", help="multiply trial counts")


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
