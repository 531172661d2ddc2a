"""`r2med sensitivity`: how much does a score depend on wording?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.errors import DataError, UsageError
from r2med.report.console import progress
from r2med.report.formats import show


def sensitivity(
    context: typer.Context,
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="A system, e.g. e5.")],
    task: options.Task,
    against: Annotated[
        str | None,
        options.option("--compare-with", help="Another system, run under the same wordings."),
    ] = None,
    instructions: Annotated[
        Path | None,
        options.option(
            "--instructions",
            metavar="FILE",
            help="One paraphrase per line, with {kind} and {purpose}; by default eight of ours.",
        ),
    ] = None,
    reworded: Annotated[
        Path | None,
        options.option(
            "--reworded", metavar="FILE", help="Reworded queries as JSON lines with id and text."
        ),
    ] = None,
    reword_with: Annotated[
        str | None,
        options.option("--reword-with", metavar="LLM", help="A language model rewords queries."),
    ] = None,
    rewordings: Annotated[
        int, options.option("--rewordings", min=1, help="Wordings by the language model.")
    ] = 3,
    metric: options.Metric = options.METRIC,
    data_root: options.DataRoot = None,
    results: options.Results = options.RESULTS,
    device: options.Device = None,
    batch_size: options.BatchSize = None,
    llm_url: options.LlmUrl = None,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Run a system under other wordings of its instruction and of the queries.

    Shows the spread of the score, the queries whose score changes most, and with --compare-with
    whether the better of two systems depends on the wording. The corpus is encoded once.
    """
    from r2med.evaluation.rewording import read_rewordings, reword_queries
    from r2med.evaluation.sensitivity import measure_sensitivity
    from r2med.results.select import find_local_tasks
    from r2med.tasks.load import load_tasks

    output_format = options.format_of(form, as_json)
    paraphrases = None if instructions is None else _read_paraphrases(instructions)
    loaded = list(load_tasks(task, root=data_root, local_tasks=find_local_tasks(results)))
    if len(loaded) != 1:
        raise UsageError(f"--task {task}: {len(loaded)} tasks, expected one.")
    with progress() as bar, options.open_resources(context.params, bar) as resources:
        wordings = [] if reworded is None else read_rewordings(reworded, loaded[0])
        if reword_with is not None:
            wordings += reword_queries(loaded[0], reword_with, resources, count=rewordings)
        outcome = measure_sensitivity(
            system,
            loaded[0],
            against=against,
            instructions=paraphrases,
            rewordings=wordings,
            metric=metric,
            results=results,
            resources=resources,
        )
    show(outcome, output_format)


def _read_paraphrases(path: Path) -> list[str]:
    """Read one paraphrased instruction per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"--instructions {path} cannot be read: {problem}.") from None
    paraphrases = [line.strip() for line in lines if line.strip()]
    if not paraphrases:
        raise DataError(f"--instructions {path}: the file is empty, expected one per line.")
    return paraphrases
