"""Log results to MLflow, Weights & Biases and TensorBoard: one tracker run per system.

All three get the same values: `TASK/METRIC` for each task, the mean over the tasks of a suite if
there are several, and as parameters the spec, the suite, the hash of the data, and how the data
differs from the published data. Two versions of a system are two runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from r2med.errors import MissingError
from r2med.measure.metrics import HEADLINE
from r2med.offline import check_address
from r2med.results.published_data import describe_other_data
from r2med.results.record import Result
from r2med.results.versions import name_versions
from r2med.tasks.registry import in_suite_order

_WANDB_SERVER = "https://api.wandb.ai"
#: Settings of wandb: store nothing about the machine, the program and its folders, and no console.
_WITHOUT_MACHINE = {
    "console": "off",
    "disable_git": True,
    "save_code": False,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}


@dataclass(frozen=True)
class TrackerRun:
    """The name, parameters and scores of one system in a tracker."""

    name: str
    parameters: dict[str, str]
    values: dict[str, float]


def log_to_mlflow(
    results: Sequence[Result],
    *,
    metrics: Sequence[str] = HEADLINE,
    experiment: str = "r2med",
    tracking_uri: str | None = None,
) -> list[str]:
    """Log results to MLflow, one run per system.

    Args:
        results: Results to log.
        metrics: Names of the metrics to log.
        experiment: Name of the MLflow experiment; created if it does not exist.
        tracking_uri: Where MLflow stores runs; by default what MLflow is configured to use.

    Returns:
        The ids of the new MLflow runs.

    Raises:
        MissingError: MLflow is not installed.
    """
    try:
        import mlflow
    except ImportError:
        raise _missing_library("mlflow") from None
    client = mlflow.MlflowClient(tracking_uri)
    existing = client.get_experiment_by_name(experiment)
    experiment_id = existing.experiment_id if existing else client.create_experiment(experiment)
    run_ids = []
    for run in tracker_runs(results, metrics):
        run_id = client.create_run(experiment_id, run_name=run.name).info.run_id
        for name, parameter in run.parameters.items():
            client.log_param(run_id, name, parameter)
        for name, value in run.values.items():
            # MLflow allows no "@" in a metric's name.
            client.log_metric(run_id, name.replace("@", "_at_"), value)
        client.set_terminated(run_id)
        run_ids.append(run_id)
    return run_ids


def log_to_wandb(
    results: Sequence[Result],
    *,
    metrics: Sequence[str] = HEADLINE,
    project: str = "r2med",
    folder: str | Path | None = None,
    mode: Literal["online", "offline"] | None = None,
) -> list[str]:
    """Log results to Weights & Biases, one run per system.

    Args:
        results: Results to log.
        metrics: Names of the metrics to log.
        project: Name of the project.
        folder: Where wandb stores its files; by default `./wandb`.
        mode: `online` or `offline`; by default what `WANDB_MODE` says.

    Returns:
        The ids of the new runs.

    Raises:
        MissingError: wandb is not installed.
        OfflineError: The mode is `online`, but r2med is in offline mode.
    """
    if mode == "online":
        check_address(os.environ.get("WANDB_BASE_URL", _WANDB_SERVER))
    return _log_to_wandb(results, metrics, project, folder, mode, {})


def write_wandb_runs(results: Sequence[Result], folder: Path) -> None:
    """Write offline runs without any connection; they name no path or user of this machine."""
    # Without this, wandb reports its own use even for offline runs.
    os.environ["WANDB_ERROR_REPORTING"] = "false"
    _log_to_wandb(results, HEADLINE, "r2med", folder, "offline", _WITHOUT_MACHINE)


def _log_to_wandb(
    results: Sequence[Result],
    metrics: Sequence[str],
    project: str,
    folder: str | Path | None,
    mode: Literal["online", "offline"] | None,
    settings: Mapping[str, object],
) -> list[str]:
    try:
        import wandb
    except ImportError:
        raise _missing_library("wandb") from None
    fields = wandb.Settings.model_fields  # older versions lack some of the settings
    supported_settings = {name: value for name, value in settings.items() if name in fields}
    run_ids = []
    for run in tracker_runs(results, metrics):
        logged: Any = wandb.init(
            project=project,
            name=run.name,
            config=run.parameters,
            dir=None if folder is None else str(folder),
            mode=mode,
            reinit="finish_previous",
            settings=wandb.Settings(**supported_settings),
        )
        logged.log(run.values)
        logged.finish()
        run_ids.append(logged.id)
    return run_ids


def log_to_tensorboard(
    results: Sequence[Result],
    folder: str | Path,
    *,
    metrics: Sequence[str] = HEADLINE,
    step: int = 0,
) -> list[Path]:
    """Write results as TensorBoard event files, one folder per system.

    Args:
        results: Results to log.
        folder: The log folder that TensorBoard shows.
        metrics: Names of the metrics to log.
        step: The training step that the results belong to.

    Returns:
        The folders that were written.

    Raises:
        MissingError: tensorboard is not installed.
    """
    try:
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise _missing_library("tensorboard") from None
    from tensorboard.compat.proto.event_pb2 import Event

    from r2med.paths import slug

    written = []
    for run in tracker_runs(results, metrics):
        path = Path(folder) / slug(run.name)
        writer = EventFileWriter(str(path))
        for name, value in run.values.items():
            summary = Summary(value=[Summary.Value(tag=name, simple_value=value)])
            writer.add_event(Event(step=step, summary=summary))
        writer.close()
        written.append(path)
    return written


def tracker_runs(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[TrackerRun]:
    """Return one tracker run per version of a system; each mean is over the tasks of one suite."""
    for name, version in name_versions(results).items():
        by_suite: dict[str, list[Result]] = {}
        for task in in_suite_order(sorted(version.tasks)):
            result = version.result(task)
            if result is not None:
                by_suite.setdefault(result.suite or "local data", []).append(result)
        parameters = {"system": version.spec, "suite": ", ".join(sorted(by_suite))}
        values: dict[str, float] = {}
        for suite, suite_results in by_suite.items():
            for result in suite_results:
                parameters[f"data.{result.task}"] = result.data
                if result.suite is not None and (difference := describe_other_data(result)):
                    parameters[f"data_note.{result.task}"] = difference
                for metric in metrics:
                    values[f"{result.task}/{metric}"] = result.metrics[metric]
            mean_name = "task_mean" if len(by_suite) == 1 else f"task_mean/{suite}"
            if len(suite_results) > 1:
                for metric in metrics:
                    mean = fmean(result.metrics[metric] for result in suite_results)
                    values[f"{mean_name}/{metric}"] = mean
        yield TrackerRun(name, parameters, values)


def _missing_library(library: str) -> MissingError:
    return MissingError(
        f"Logging to {library} needs the package {library}, which is not installed. "
        f"Install it with: pip install {library}"
    )
