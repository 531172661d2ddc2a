"""`r2med estimate`: cost, time, disk and memory of systems before they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Context

from r2med.cli import options
from r2med.errors import MissingError, UsageError
from r2med.report.console import answer

if TYPE_CHECKING:
    from r2med.evaluation.estimate import StageEstimate, TaskSize
    from r2med.tasks.registry import TaskEntry

#: Address used for models whose server is not named: nothing is sent to it.
_NO_SERVER = "http://localhost/v1"


def estimate(
    context: Context,
    systems: options.Systems,
    task: options.Task = "full",
    data_root: options.DataRoot = None,
    passages: Annotated[
        int | None,
        options.option(
            "--passages", min=1, help="Replace each corpus by N passages of its mean length."
        ),
    ] = None,
    queries_per_day: Annotated[
        int | None,
        options.option(
            "--queries-per-day", min=1, help="Also estimate daily use for N new queries."
        ),
    ] = None,
    vector_width: Annotated[
        int | None,
        options.option(
            "--vector-width",
            min=1,
            heading=options.MODELS,
            help="Dimensions of a vector, for its size on disk.",
        ),
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        options.option(
            "--tokens-per-second",
            min=1e-9,
            heading=options.MODELS,
            help="Speed of your hardware, to estimate hours for local models.",
        ),
    ] = None,
    price: Annotated[
        float | None,
        options.option(
            "--price", min=0, heading=options.MODELS, help="US dollars per hour of your hardware."
        ),
    ] = None,
    answer_llm: Annotated[
        str | None,
        options.option(
            "--answer-llm", heading=options.MODELS, help="Also estimate r2med answer with this LLM."
        ),
    ] = None,
    k: options.K = 5,
    judge_llm: Annotated[
        str | None,
        options.option(
            "--judge-llm", heading=options.MODELS, help="Also estimate r2med judge with this LLM."
        ),
    ] = None,
    depth: options.Depth = 10,
    calibration: options.CalibrationSize = 100,
    samples: options.Samples = 1,
    llm_url: options.LlmUrl = None,
    prompts: options.Prompts = None,
    as_json: options.Json = False,
) -> None:
    """Estimate requests, tokens, cost, hours, disk and memory; nothing is run.

    Tasks whose data is not here are estimated from published counts, and no server has to run.
    """
    from r2med.report.estimates import estimate_rows, estimate_tables
    from r2med.tasks.registry import resolve

    if price is not None and tokens_per_second is None:
        raise UsageError("--price needs --tokens-per-second N, the speed of that hardware.")
    sizes = [_measure(item, data_root, passages) for item in resolve(task)]
    stages: list[StageEstimate] = []
    daily: list[StageEstimate] = []
    for spec in systems:
        for size in sizes:
            system_stages, system_daily = _estimate_system(
                context, spec, size, vector_width, queries_per_day
            )
            stages += system_stages
            daily += system_daily
    if answer_llm is None:
        options.refuse_unread(context, "without --answer-llm", "k")
    else:
        stages += _estimate_answers(context, answer_llm, sizes, systems, k, samples)
    if judge_llm is None:
        options.refuse_unread(context, "without --judge-llm", "depth", "calibration")
    else:
        stages += _estimate_judgements(
            context, judge_llm, sizes, len(systems), depth, calibration, samples
        )
    if answer_llm is None and judge_llm is None:
        options.refuse_unread(context, "without --answer-llm or --judge-llm", "samples")
    rows = estimate_rows(stages, tokens_per_second, price)
    daily_rows = estimate_rows(daily, tokens_per_second, price)
    tables = estimate_tables(rows, daily_rows, queries_per_day, tokens_per_second, price)
    value = {"run": rows, "per_day": daily_rows} if queries_per_day else rows
    answer(value, *tables, as_json=as_json)


def _estimate_system(
    context: Context,
    spec: str,
    size: TaskSize,
    vector_width: int | None,
    queries_per_day: int | None,
) -> tuple[Sequence[StageEstimate], Sequence[StageEstimate]]:
    """Return the estimates of one run and of daily use; no server address has to be set."""
    from r2med.evaluation.estimate import estimate_daily_use, estimate_stages
    from r2med.systems.build import System

    def run(llm_url: str | None) -> tuple[Sequence[StageEstimate], Sequence[StageEstimate]]:
        resources = options.open_resources({**context.params, "llm_url": llm_url})
        stage = System.from_spec(spec, resources).stage
        stages = estimate_stages(stage, size, vector_width)
        if queries_per_day is None:
            return stages, ()
        return stages, estimate_daily_use(stage, size, queries_per_day, vector_width)

    llm_url = context.params["llm_url"]
    try:
        return run(llm_url)
    except MissingError:
        if llm_url is not None:
            raise
        return run(_NO_SERVER)


def _estimate_answers(
    context: Context,
    llm: str,
    sizes: Sequence[TaskSize],
    systems: Sequence[str],
    k: int,
    samples: int,
) -> list[StageEstimate]:
    """Estimate answering with a language model; no server address has to be set."""
    from r2med.answer.prompt import DEFAULT, find_prompt
    from r2med.evaluation.estimate_answers import estimate_answering
    from r2med.judge.panel import open_model

    url = context.params["llm_url"] or _NO_SERVER
    resources = options.open_resources({**context.params, "llm_url": url})
    chat, prompt = open_model(llm, resources.remote, option="--answer-llm"), find_prompt(DEFAULT)
    return [
        estimate
        for size in sizes
        for estimate in estimate_answering(chat, size, systems, prompt, k=k, samples=samples)
    ]


def _estimate_judgements(
    context: Context,
    llm: str,
    sizes: Sequence[TaskSize],
    systems: int,
    depth: int,
    calibration: int,
    samples: int,
) -> list[StageEstimate]:
    """Estimate judging with a language model; no server address has to be set."""
    from r2med.evaluation.estimate_judging import estimate_judging
    from r2med.judge.panel import open_model

    url = context.params["llm_url"] or _NO_SERVER
    resources = options.open_resources({**context.params, "llm_url": url})
    chat = open_model(llm, resources.remote, option="--judge-llm")
    return [
        estimate_judging(chat, size, systems, depth=depth, calibration=calibration, samples=samples)
        for size in sizes
    ]


def _measure(item: TaskEntry | Path, root: Path | None, passages: int | None) -> TaskSize:
    """Return the size of a task, from its data if it is here, otherwise from published counts."""
    from r2med.evaluation.estimate import TaskSize
    from r2med.tasks.fetch.provenance import is_present
    from r2med.tasks.load import load_task

    if isinstance(item, Path):
        return TaskSize.measure(load_task(item), passages)
    if root is not None or not item.counts or is_present(item):
        return TaskSize.measure(load_task(item.name, root=root), passages)
    return TaskSize.measure(item, passages)
