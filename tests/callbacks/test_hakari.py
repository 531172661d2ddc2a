"""Results on NanoR2MED become files of HAKARI-Bench's results repository."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from r2med.callbacks.exporters import find_exporter
from r2med.errors import UsageError
from tests.results.storing import store


def test_a_nano_result_has_the_path_and_the_fields_of_hakari(tmp_path: Path) -> None:
    result = store(tmp_path, "bm25", "NanoR2MEDBiology", {"1": 1, "2": 3})
    warnings: list[str] = []

    [path] = find_exporter("hakari")([result], tmp_path / "out", warnings.append)

    expected = "hakari-results/bm25/hakari-bench__NanoR2MED/NanoR2MEDBiology.json.xz"
    written = json.loads(lzma.decompress(path.read_bytes()))
    assert path == tmp_path / "out" / expected
    assert written["target"]["dataset_id"] == "hakari-bench/NanoR2MED"
    assert written["model"]["method"] == "bm25"
    assert written["evaluation"]["aggregate_metric_value"] == result.metrics["ndcg@10"]
    assert written["metrics"]["NanoR2MEDBiology_r2med_ndcg@10"] == result.metrics["ndcg@10"]
    assert not warnings


def test_other_data_is_left_out_with_a_warning(tmp_path: Path) -> None:
    other_suite = store(tmp_path, "bm25", "demo/biology", {"1": 1})
    changed = store(tmp_path, "bm25", "NanoR2MEDBiology", {"1": 1}, differences=("9 documents",))
    warnings: list[str] = []

    with pytest.raises(UsageError, match="no result on the published NanoR2MED"):
        find_exporter("hakari")([other_suite, changed], tmp_path / "out", warnings.append)

    assert [warning.split(":")[0] for warning in warnings] == ["demo/biology", "NanoR2MEDBiology"]
    assert not (tmp_path / "out").exists()
