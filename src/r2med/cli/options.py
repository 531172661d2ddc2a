"""Options and arguments of the commands, each declared once so that it means the same everywhere.

Systems are arguments and tasks are `--task`, except in commands about tasks (`r2med tasks`, `r2med
nano`), where tasks are the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from r2med.cli.sweep import apply_sweep
from r2med.errors import MissingError, UsageError, nearest

if TYPE_CHECKING:
    from r2med.execution.resources import Resources
    from r2med.report.console import ProgressBar
    from r2med.report.formats import Format as FormatName

Choice = TypeVar("Choice", bound=str)
RESULTS = Path("r2med-results")
METRIC = "ndcg@10"
#: Headings of the help, in this order.
WHAT_TO_RUN, MODELS, LIMITS, OUTPUT = "What to run", "Models", "Limits", "Output"
HEADINGS = (WHAT_TO_RUN, MODELS, LIMITS, OUTPUT)
#: Backends that run no model, and those that run one in this process.
_WITHOUT_MODEL = {"bm25", "fusion", "run", "candidates"}
_LOCAL = {"dense", "sparse", "late", "custom", "cross-encoder", "yes-no", "own", "own-code"}
#: Parameters of local models, and of models behind a server.
_OF_MODELS = ("device", "trust_remote_code", "batch_size")
_OF_LLMS = ("llm_url", "prompts", "fresh", "max_tokens", "max_cost", "concurrency")
#: Parameters with the name of a run option, and limits on what models may use.
_ALLOWED = ("trust_remote_code", "strict", "device", "llm_url", "fresh")
_LIMITS = {"max_tokens": "tokens", "max_cost": "money", "concurrency": "concurrency"}
_TASKS = "Tasks, suites (full, nano, demo), All, or folders"


def _complete(names_of: str) -> Callable[[str], list[str]]:
    """Return a shell completion that completes the last name in a comma-separated list."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in _names(names_of) if name.startswith(last)]

    return complete


def _names(names_of: str) -> Iterable[str]:
    """Return the names of all tasks, systems or metrics."""
    if names_of == "systems":
        from r2med.systems.registry import entries

        return entries()
    if names_of == "metrics":
        from r2med.measure import HEADLINE

        return HEADLINE
    from r2med.tasks.registry import all_entries, suites

    return [*(suite.name for suite in suites()), *(entry.name for entry in all_entries())]


def option(
    *names: str, help: str, heading: str = WHAT_TO_RUN, complete: str = "", **settings: Any
) -> Any:
    """Declare an option under a heading of the help.

    `complete` is the type of values that the shell offers: tasks, systems or metrics.
    """
    if complete:
        settings["autocompletion"] = _complete(complete)
    return typer.Option(*names, help=help, rich_help_panel=heading, **settings)


_model_option = partial(option, heading=MODELS)
_limit_option = partial(option, heading=LIMITS)
_output_option = partial(option, heading=OUTPUT)


def _argument(metavar: str, help: str, complete: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, autocompletion=_complete(complete))


_systems = partial(_argument, complete="systems")
_TASK: Any = option("--task", "-t", help=f"{_TASKS}; comma-separated.", complete="tasks")
_TASK_ARGUMENTS: Any = _argument("TASK...", f"{_TASKS}.", "tasks")

System = Annotated[str, _systems("SYSTEM", "A system, e.g. bm25 or 'nv | rankllama@100'.")]
Systems = Annotated[list[str], _systems("SYSTEM...", "Systems, e.g. bm25 or 'bm25 + wordllama'.")]
AnySystems = Annotated[
    list[str] | None, _systems("SYSTEM...", "Systems, e.g. bm25 or 'bm25 + wordllama'.")
]
Stored = Annotated[
    list[str], _systems("SYSTEM...", "Stored systems, folders of stored results, or run files.")
]
Task = Annotated[str, _TASK]
AnyTask = Annotated[str | None, _TASK]
TaskArguments = Annotated[list[str], _TASK_ARGUMENTS]
AnyTaskArguments = Annotated[list[str] | None, _TASK_ARGUMENTS]
DataRoot = Annotated[
    Path | None,
    option("--data-root", help="Folder with your copy of the task data, as ROOT/<task>/..."),
]
Sample = Annotated[
    int | None, option("--sample", min=1, help="Use N queries per task, drawn with a fixed seed.")
]
Sweep = Annotated[
    Path | None,
    option(
        "--from",
        metavar="FILE.toml",
        callback=apply_sweep,
        is_eager=True,
        help="Read systems, tasks and options from a file.",
    ),
]
Model = Annotated[
    list[str] | None,
    option("--model", help="A custom model as package.module:Class; may be repeated."),
]
Suite = Annotated[
    Literal["full", "nano", "demo", "local"] | None,
    option("--suite", help="full (the default), nano, demo, or local for your own data."),
]
Kind = Annotated[
    Literal["base", "gar", "reranker"] | None,
    option("--kind", help="Only base (retrieval alone), gar (expansion) or reranker."),
]
Only = Annotated[
    list[str] | None,
    option("--only", help="Show only these systems, comma-separated.", complete="systems"),
]
Metric = Annotated[str, option("--metric", help="Metric to show.", complete="metrics")]
Judgements = Annotated[
    str,
    option("--judgements", help="benchmark, all, review (labels of people), or a judgement set."),
]
Metrics = Annotated[
    str | None,
    option("--metrics", help="Metrics to show, e.g. ndcg@10,recall@20,mrr.", complete="metrics"),
]
Resamples = Annotated[
    int | None,
    option(
        "--resamples", min=100, help="Random resamples; by default as many as the precision needs."
    ),
]
Force = Annotated[bool, option("--force", help="Recompute and overwrite stored results or files.")]
Strict = Annotated[bool, option("--strict", help="Treat data warnings as errors.")]

Device = Annotated[
    str | None, _model_option("--device", help="Torch device, e.g. cuda:0; the best by default.")
]
BatchSize = Annotated[
    int | None,
    _model_option("--batch-size", min=1, help="Texts of 512 tokens per batch; 8 by default."),
]
TrustRemoteCode = Annotated[
    bool, _model_option("--trust-remote-code", help="Allow code that comes with a checkpoint.")
]
Engine = Annotated[
    str, _model_option("--engine", help="Where models run: local, processes[=N] or ray[=ADDRESS].")
]
Dense = Annotated[
    str, _model_option("--dense", help="Encoder of the dense candidates; none for a profile.")
]
Llm = Annotated[str | None, _model_option("--llm", help="Language model, e.g. smollm2 or gpt4.")]
RequiredLlm = Annotated[str, _model_option("--llm", help="Language model, e.g. smollm2 or gpt4.")]
_JUDGE: Any = option("--judge", help="A language model, e.g. gpt4; may be repeated: a panel votes.")
Judges = Annotated[list[str], _JUDGE]
AnyJudges = Annotated[list[str] | None, _JUDGE]
Samples = Annotated[int, option("--samples", min=1, help="Answers per question and model.")]
Rubric = Annotated[
    str | None,
    option("--rubric", help="Rubric, by name or TOML file; by default chosen by the task."),
]
SetName = Annotated[
    str | None, option("--set", help="Name of the set; by default made of model and settings.")
]
Depth = Annotated[int, option("--depth", min=1, help="Documents per query and system.")]
CalibrationSize = Annotated[
    int, option("--calibration", min=0, help="Judged pairs to check the judge on.")
]
K = Annotated[int, option("--k", min=1, help="Documents per question or search.")]
LlmUrl = Annotated[
    str | None, _model_option("--llm-url", help="Address of an OpenAI-compatible server.")
]
Prompts = Annotated[Path | None, _model_option("--prompts", help="Folder with your prompts.")]
Fresh = Annotated[bool, _model_option("--fresh", help="Ignore cached answers.")]

MaxTokens = Annotated[
    int | None, _limit_option("--max-tokens", help="Stop before using more tokens in total.")
]
MaxCost = Annotated[
    float | None, _limit_option("--max-cost", help="Stop before spending more US dollars.")
]
Concurrency = Annotated[
    int | None, _limit_option("--concurrency", help="Requests sent at the same time.")
]
WorkerTimeout = Annotated[
    float | None,
    _limit_option("--worker-timeout", help="Seconds a worker may take for one piece of work."),
]

Results = Annotated[Path, _output_option("--results", help="Folder of stored results.")]
Twins = Annotated[
    bool,
    _output_option(
        "--twins", help="Also show scores with judgements inherited by unjudged duplicates."
    ),
]
Intervals = Annotated[
    bool,
    _output_option("--intervals", help="Show every score with its 95 % interval, task by task."),
]
By = Annotated[
    Literal["task", "scenario", "family", "body-system"],
    _output_option("--by", help="Rows of the table: task, scenario, family or body-system."),
]
Top = Annotated[
    int | None,
    _output_option("--top", min=1, help="Show only the first N rows, and your own results."),
]
Limit = Annotated[
    int, _output_option("--limit", min=1, help="Number of queries or findings shown.")
]
Json = Annotated[bool, _output_option("--json", help="Print JSON and nothing else.")]
Format = Annotated[
    Literal["table", "markdown", "latex", "csv", "json"] | None,
    _output_option("--format", help="table (the default), markdown, latex, csv or json."),
]
Verbose = Annotated[
    bool, _output_option("--verbose", "-v", help="Show the first texts as the models saw them.")
]
Partial = Annotated[bool, option("--partial", help="Accept rows without a label.")]
QueueSize = Annotated[int, option("--size", min=1, help="Items in the queue.")]
Reviewer = Annotated[str, option("--reviewer", help="Name under which labels are stored.")]
Port = Annotated[
    int | None, _output_option("--port", min=0, max=65535, help="Port; by default a free one.")
]
OpenBrowser = Annotated[
    bool, _output_option("--open/--no-open", help="Open the page in your browser.")
]
Yes = Annotated[bool, _output_option("--yes", "-y", help="Do not ask for confirmation.")]


def out(help: str) -> Any:
    """Declare `--out`: the file or folder that a command writes."""
    return _output_option("--out", help=help)


def check_choice(text: str, allowed: tuple[Choice, ...], option: str) -> Choice:
    """Return the text if it is allowed; otherwise raise a UsageError that names the nearest."""
    if text not in allowed:
        raise UsageError(f"{option} {text!r} is not known. {nearest(text, allowed)}")
    return allowed[allowed.index(text)]


def format_of(
    text: FormatName | None, as_json: bool, only: tuple[str, ...] = (), mode: str = ""
) -> FormatName:
    """Return the output format from --format and --json; `only` are the formats of `mode`."""
    if as_json and text not in (None, "json"):
        raise UsageError(f"--json and --format {text}: choose one.")
    form: FormatName = "json" if as_json else text or "table"
    if only and form not in only:
        raise UsageError(f"--format {form}: {mode} is shown as {' or '.join(only)}.")
    return form


def is_typed(context: Any, name: str) -> bool:
    """Return whether a parameter was typed on the command line, not read from a sweep file."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def refuse_unread(context: typer.Context, mode: str, *names: str) -> None:
    """Raise UsageError if the user typed options or arguments that `mode` ignores."""
    unread = [
        parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.metavar)
        for parameter in context.command.params
        if parameter.name in names and is_typed(context, parameter.name)
    ]
    if len(unread) == 1:
        raise UsageError(f"{unread[0]} has no effect {mode}; leave it out.")
    if unread:
        raise UsageError(f"{', '.join(unread)} have no effect {mode}; leave them out.")


def refuse_unused_model_options(context: typer.Context, systems: Sequence[str]) -> None:
    """Raise UsageError for options that apply to models which none of the systems runs."""
    from r2med.systems.registry import parts_of

    parts = [entry for system in systems for _, entry in parts_of(system)]
    backends = {entry.backend if entry else "" for entry in parts}
    if backends <= _WITHOUT_MODEL:
        refuse_unread(context, "on systems without a model", *_OF_MODELS)
    if backends <= _WITHOUT_MODEL | _LOCAL:
        refuse_unread(context, "on systems that ask no model behind an address", *_OF_LLMS)


def open_resources(parameters: Mapping[str, Any], bar: ProgressBar | None = None) -> Resources:
    """Create the resources of a command from its parameters.

    Limits that the user does not set come from the environment.
    """
    from r2med.execution.options import RunOptions
    from r2med.execution.resources import Resources, ignore_progress
    from r2med.report.console import notice, work_line

    allowed = {name: parameters[name] for name in _ALLOWED if name in parameters}
    if parameters.get("prompts") is not None:
        allowed["prompts"] = Path(parameters["prompts"])
        if not allowed["prompts"].is_dir():
            raise MissingError(f"--prompts {parameters['prompts']}: the folder does not exist.")
    if most := {
        _LIMITS[name]: parameters[name] for name in _LIMITS if parameters.get(name) is not None
    }:
        from r2med.remote.budget import Limits

        allowed["limits"] = replace(Limits.from_environment(), **most)
    if parameters.get("batch_size") is not None:
        allowed["batch_tokens"] = 512 * parameters["batch_size"]
    workers = None
    engine, timeout = parameters.get("engine", "local"), parameters.get("worker_timeout")
    if engine != "local" or timeout is not None:
        from r2med.execution.processes import open_workers

        device = parameters.get("device")
        workers = open_workers(engine, timeout=timeout, device=device, warn=notice)
    progress = ignore_progress if bar is None else work_line(bar)
    return Resources(RunOptions(**allowed), warn=notice, progress=progress, workers=workers)
