"""One command resolves every name, key and file once."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from inspect import unwrap
from pathlib import Path
from types import CodeType, FrameType

import pytest

from r2med.results.record import result_key
from r2med.results.store import read_result
from r2med.systems.spec import parse
from r2med.tasks.load import load_entry, load_task
from r2med.tasks.registry import resolve
from tests.cli.running import run
from tests.llm_server import running_llm_server

TASK = "demo/medqa-diag"
SYSTEMS = {
    "bm25": 1,
    "bm25 + wordllama": 3,
    "hyde:qwen-7b | bm25 | ce:{folder}@10": 2,
}
"""Systems, and their results: one of every stage with a separate result."""


def count_calls(work: Callable[[], object], functions: list[Callable[..., object]]) -> list[int]:
    """Run `work` and count how often the bodies of some functions run."""
    calls: Counter[CodeType] = Counter()

    def profile(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code] += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return [calls[unwrap(function).__code__] for function in functions]


@pytest.mark.extra("light", "rerank", "llm")
@pytest.mark.parametrize("system", SYSTEMS)
def test_names_and_keys_are_made_once_and_results_are_not_read_back(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("aiohttp")
    from tests.rerank import tiny

    spec = system.format(folder=tiny.save_bert(tmp_path / "ce", labels=1))
    parse.cache_clear()
    with running_llm_server() as server:
        server.reply = lambda body: "A cerebral infarction."
        monkeypatch.setenv("R2MED_LLM_URL", server.url)
        codes = []
        parsed, resolved, loaded, by_name, keys, read = count_calls(
            lambda: codes.append(run("eval", spec, "--task", TASK).code),
            [parse, resolve, load_entry, load_task, result_key, read_result],
        )

    assert codes == [0]
    assert (parsed, resolved, loaded) == (1, 1, 1)
    assert by_name == 0  # it would resolve the name again
    assert keys == SYSTEMS[system]
    assert read == 0
