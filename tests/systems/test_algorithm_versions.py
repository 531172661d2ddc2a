"""An algorithm that gives another output has another version, which is part of every key."""

from __future__ import annotations

import json

import pytest

from r2med.algorithms import ALGORITHM_VERSIONS
from tests.systems.algorithm_outputs import FILE, OUTPUTS, is_close, output_of

pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")


def test_every_algorithm_has_a_stored_output() -> None:
    stored = json.loads(FILE.read_text(encoding="utf-8"))

    assert set(stored) == set(OUTPUTS) == set(ALGORITHM_VERSIONS)


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_changes_only_with_the_version_of_its_algorithm(name: str) -> None:
    if name == "static-encoding":
        pytest.importorskip("wordllama")
    stored = json.loads(FILE.read_text(encoding="utf-8"))[name]

    assert stored["version"] == ALGORITHM_VERSIONS[name], (
        "after raising a version, run python -m tests.systems.algorithm_outputs"
    )
    assert is_close(stored["output"], output_of(name)), (
        f"the output of {name} changed: raise its version in r2med.algorithms"
    )
