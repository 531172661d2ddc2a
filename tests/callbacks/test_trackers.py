"""Results arrive in MLflow, Weights & Biases and TensorBoard: read back with the real libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import r2med
from r2med.callbacks import log_to_mlflow, log_to_tensorboard, log_to_wandb
from r2med.callbacks.exporters import export_model_cards
from r2med.callbacks.trackers import tracker_runs
from r2med.errors import OfflineError
from r2med.results.record import Result
from tests.connections import read_connections, watch_connections
from tests.results.storing import ranks, store

METRICS = ("ndcg@10", "recall@100")


@pytest.fixture
def results() -> list[Result]:
    return r2med.evaluate_all(["bm25", "bm25-nano"], ["demo/biology", "demo/medqa-diag"])


def read_wandb_log(path: Path) -> bytes:
    """Return the records of an offline run; the file cuts them at blocks of 32 KiB."""
    block_size, file_header, fragment_header = 32_768, 7, 7
    content, position, records = path.read_bytes(), file_header, b""
    while position + fragment_header < len(content):
        left_in_block = block_size - position % block_size
        if left_in_block < fragment_header:
            position += left_in_block
            continue
        length = int.from_bytes(content[position + 4 : position + 6], "little")
        position += fragment_header
        records += content[position : position + length]
        position += length
    return records


@pytest.mark.extra("mlflow")
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_per_system_with_every_metric(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()

    run_ids = log_to_mlflow(results, metrics=METRICS, experiment="trial", tracking_uri=uri)

    assert len(run_ids) == 2
    logged = mlflow.MlflowClient(uri).get_run(run_ids[0]).data
    expected = next(r for r in results if r.name == "bm25" and r.task == "demo/biology")
    assert logged.params["system"] == "bm25"
    assert logged.metrics["demo/biology/ndcg_at_10"] == expected.metrics["ndcg@10"]
    assert "task_mean/recall_at_100" in logged.metrics


@pytest.mark.extra("wandb")
@pytest.mark.filterwarnings("ignore")
def test_wandb_stores_offline_runs_with_the_values(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")

    import wandb

    run_ids = log_to_wandb(results, metrics=METRICS, folder=tmp_path, mode="offline")
    wandb.teardown()  # its service writes the last records of a run after `finish` returns

    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(run_ids) == len(folders) == 2
    assert {folder.name.rsplit("-", 1)[1] for folder in folders} == set(run_ids)
    logs = b"".join(read_wandb_log(path) for path in (tmp_path / "wandb").glob("*/*.wandb"))
    assert b"demo/biology/ndcg@10" in logs
    assert all(json.dumps(result.metrics["ndcg@10"]).encode() in logs for result in results)


@pytest.mark.extra("tensorboard")
@pytest.mark.filterwarnings("ignore")
def test_tensorboard_reads_the_values_back(results: list[Result], tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folders = log_to_tensorboard(results, tmp_path, metrics=METRICS, step=7)

    assert [folder.name for folder in folders] == ["bm25", "bm25-nano"]
    events = EventAccumulator(str(folders[0])).Reload()
    [event] = events.Scalars("demo/medqa-diag/ndcg@10")
    expected = next(r for r in results if r.name == "bm25" and r.task == "demo/medqa-diag")
    assert event.step == 7
    assert event.value == pytest.approx(expected.metrics["ndcg@10"], abs=1e-6)


@pytest.fixture
def retrained(tmp_path: Path) -> list[Result]:
    """Old weights on two tasks and on local data, and new weights on one task."""
    old, new = {"checkpoint": "old"}, {"checkpoint": "new"}
    tonight = "2026-02-01T00:00:00+00:00"
    return [
        store(tmp_path, "dense:./tiny", "demo/biology", ranks(0), identity=old),
        store(tmp_path, "dense:./tiny", "demo/medqa-diag", ranks(1), identity=old),
        store(tmp_path, "dense:./tiny", "ward", ranks(1), identity=old, suite=None, data="x"),
        store(tmp_path, "dense:./tiny", "demo/biology", ranks(1), identity=new, created=tonight),
    ]


def test_a_tracker_run_never_mixes_versions_or_suites(retrained: list[Result]) -> None:
    first, second = tracker_runs(retrained, ["hit@1"])

    assert first.name == "dense:./tiny"
    assert second.name != first.name
    assert first.values == {
        "demo/biology/hit@1": 0.0,
        "demo/medqa-diag/hit@1": 1.0,
        "ward/hit@1": 1.0,
        "task_mean/demo/hit@1": 0.5,
    }
    assert second.values == {"demo/biology/hit@1": 1.0}


def test_data_that_is_not_published_is_a_parameter(tmp_path: Path) -> None:
    differences = ("documents 50 instead of 57,359",)
    result = store(tmp_path, "bm25", "Biology", ranks(1), data="x", differences=differences)

    [run] = tracker_runs([result], ["hit@1"])

    assert differences[0] in run.parameters["data_note.Biology"]


def test_every_version_has_a_model_card_of_its_own(retrained: list[Result], tmp_path: Path) -> None:
    cards = export_model_cards(retrained, tmp_path / "cards", lambda message: None)

    assert len(cards) == 2
    texts = [card.read_text() for card in cards]
    assert ["demo/medqa-diag" in text for text in texts] == [True, False]


@pytest.mark.extra("mlflow", "tensorboard", "wandb")
@pytest.mark.parametrize("tracker", ["mlflow", "tensorboard", "wandb"])
def test_an_export_to_a_tracker_connects_nowhere_and_names_no_folder(
    tracker: str, tmp_path: Path
) -> None:
    folder = tmp_path / "secret-ward"
    folder.mkdir()
    bm25 = r2med.evaluate("bm25", "demo/biology")
    bm25.run.to_trec(folder / "mine.trec")
    r2med.evaluate(f"run:{folder}/mine.trec", "demo/biology")
    names = ("MLFLOW", "WANDB")
    environment = {name: os.environ[name] for name in os.environ if not name.startswith(names)}
    program = "from r2med.cli import main; main()"

    done = subprocess.run(
        [sys.executable, "-c", program, "results", "export", "--to", tracker, "--out", "out"],
        env={**environment, **watch_connections(tmp_path)},
        capture_output=True,
        text=True,
    )

    assert (done.returncode, read_connections(tmp_path)) == (0, []), done.stderr
    assert "Traceback" not in done.stderr
    files = [path for path in Path("out").rglob("*") if path.is_file()]
    assert files
    private = [str(Path.cwd()), str(Path.home()), "secret-ward", sys.prefix]
    for path in files:
        content = path.read_bytes()
        assert [words for words in private if words.encode() in content] == [], path


def test_results_are_not_sent_to_wandb_in_offline_mode(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("R2MED_OFFLINE", "1")

    with pytest.raises(OfflineError, match="wandb"):
        log_to_wandb([], mode="online")
