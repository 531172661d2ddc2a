"""The formats of `r2med results export --to`: files of other tools, trackers, and plugins."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from r2med.callbacks.hakari import export_hakari
from r2med.callbacks.model_card import update_model_card
from r2med.callbacks.trackers import log_to_mlflow, log_to_tensorboard, write_wandb_runs
from r2med.errors import UsageError, nearest
from r2med.execution.resources import Warn
from r2med.plugins import load_plugins
from r2med.results.export import EXPORTS
from r2med.results.record import Result
from r2med.results.versions import name_versions
from r2med.storage import write_file
from r2med.tasks.registry import in_suite_order

#: The file in which MLflow describes an experiment or a run.
_MLFLOW_RECORD = "meta.yaml"

Exporter = Callable[[Sequence[Result], Path, Warn], list[Path]]


def export_model_cards(results: Sequence[Result], out: Path, warn: Warn) -> list[Path]:
    """Write one model card per version of a system, `OUT/SYSTEM/README.md`, or update it."""
    from r2med.paths import slug

    written = []
    for name, version in name_versions(results).items():
        folder = out / slug(name)
        folder.mkdir(parents=True, exist_ok=True)
        card_results = [
            result
            for task in in_suite_order(sorted(version.tasks))
            if (result := version.result(task)) is not None
        ]
        written.append(update_model_card(folder, card_results))
    return written


def export_to_mlflow(results: Sequence[Result], out: Path, warn: Warn) -> list[Path]:
    """Write MLflow runs to the folder `OUT`; `mlflow ui --backend-store-uri OUT` shows them."""
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
    earlier = set(out.rglob(_MLFLOW_RECORD))
    address = out.resolve().as_uri()
    log_to_mlflow(results, tracking_uri=address)
    # MLflow records the absolute path of each run's artifacts, of which there are none.
    for path in sorted(set(out.rglob(_MLFLOW_RECORD)) - earlier):
        write_file(path, path.read_text(encoding="utf-8").replace(address, "."))
    return [out]


def export_to_wandb(results: Sequence[Result], out: Path, warn: Warn) -> list[Path]:
    """Write offline runs of Weights & Biases below `OUT`; `wandb sync` uploads them."""
    out.mkdir(parents=True, exist_ok=True)
    write_wandb_runs(results, out)
    return sorted((out / "wandb").glob("offline-run-*"))


def export_to_tensorboard(results: Sequence[Result], out: Path, warn: Warn) -> list[Path]:
    """Write event files below `OUT`; `tensorboard --logdir OUT` shows them."""
    return log_to_tensorboard(results, out)


EXPORTERS: Mapping[str, Exporter] = {
    **EXPORTS,
    "hakari": export_hakari,
    "model-card": export_model_cards,
    "mlflow": export_to_mlflow,
    "wandb": export_to_wandb,
    "tensorboard": export_to_tensorboard,
}


def find_exporter(name: str) -> Exporter:
    """Return the exporter of a format; plugins are loaded only if r2med lacks the format."""
    if name in EXPORTERS:
        return EXPORTERS[name]
    added = load_plugins().exporters
    if name in added:
        return added[name]
    raise UsageError(f"--to {name}: no such format. {nearest(name, [*EXPORTERS, *added])}")
