"""Options and arguments of the commands, each declared once and meaning the same everywhere.

Systems are arguments, tasks are `--task`; where tasks are the subject (`r2med tasks`, `r2med
nano`), they are the arguments. `--task` takes tasks, suites, All or folders, comma-separated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer

from r2med.errors import MissingError, UsageError, nearest

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from r2med.report.formats import Format as FormatName
    from r2med.retrieve.conditions import Conditions

Choice = TypeVar("Choice", bound=str)
RESULTS = Path("r2med-results")
METRIC = "ndcg@10"
Grouping = Literal["task", "scenario", "family"]
GROUPINGS: tuple[Grouping, ...] = ("task", "scenario", "family")
_MODELS = "Models"
#: Engines that run no model, and those that run one in this process.
_WITHOUT_MODEL = {"bm25", "fusion", "run", "candidates"}
_OF_MODELS = ("device", "trust_remote_code", "batch_size")
_LOCAL = {
    *("dense", "sparse", "late", "custom", "cross-encoder", "yes-no", "own", "own-code"),
}
_LANGUAGE_MODELS = "Language models"
_TASKS = "Tasks, suites (full, nano, demo), All, or folders"


def chosen(text: str, allowed: tuple[Choice, ...], option: str) -> Choice:
    """The word, when it is one of the allowed ones."""
    if text not in allowed:
        raise UsageError(f"{option} {text!r} is not known. {nearest(text, allowed)}")
    return allowed[allowed.index(text)]


def _starting(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Offer the names that begin as the word on the command line does; none where they fail."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


def _task_names() -> list[str]:
    from r2med.tasks.registry import all_entries, suites

    return [*(suite.name for suite in suites()), *(entry.name for entry in all_entries())]


def _system_names() -> list[str]:
    from r2med.systems.registry import entries

    return list(entries())


def _metric_names() -> list[str]:
    from r2med.measure import HEADLINE

    return list(HEADLINE)


def _words(*allowed: str) -> Callable[[str], list[str]]:
    return _starting(lambda: allowed)


_TASK: Any = typer.Option(
    "--task", "-t", help=f"{_TASKS}; comma-separated.", autocompletion=_starting(_task_names)
)
_TASK_ARGUMENTS: Any = typer.Argument(
    metavar="TASK...", help=f"{_TASKS}.", autocompletion=_starting(_task_names)
)
_SYSTEMS: Any = typer.Argument(
    metavar="SYSTEM...",
    help="Systems, e.g. bm25 or 'bm25 + wordllama'.",
    autocompletion=_starting(_system_names),
)

System = Annotated[
    str,
    typer.Argument(
        metavar="SYSTEM",
        help="A system, e.g. bm25 or 'nv | rankllama@100'.",
        autocompletion=_starting(_system_names),
    ),
]
Systems = Annotated[list[str], _SYSTEMS]
AnySystems = Annotated[list[str] | None, _SYSTEMS]
Stored = Annotated[
    list[str],
    typer.Argument(
        metavar="SYSTEM...",
        help="Stored systems, folders of stored results, or run files.",
        autocompletion=_starting(_system_names),
    ),
]
Task = Annotated[str, _TASK]
AnyTask = Annotated[str | None, _TASK]
TaskArguments = Annotated[list[str], _TASK_ARGUMENTS]
AnyTaskArguments = Annotated[list[str] | None, _TASK_ARGUMENTS]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder with task data you have, as ROOT/<task>/..."),
]
Results = Annotated[Path, typer.Option("--results", help="Folder of stored results.")]
Metric = Annotated[
    str,
    typer.Option("--metric", help="The metric shown.", autocompletion=_starting(_metric_names)),
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics",
        help="Metrics shown, e.g. ndcg@10,recall@20,mrr.",
        autocompletion=_starting(_metric_names),
    ),
]
By = Annotated[
    str,
    typer.Option("--by", help="Rows: task, scenario or family.", autocompletion=_words(*GROUPINGS)),
]
Suite = Annotated[
    str | None,
    typer.Option(
        "--suite",
        help="full (the default), nano, demo, or local for your own data; --task chooses it too.",
        autocompletion=_words("full", "nano", "demo", "local"),
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        help="Only base (retrieval alone), gar (expansion) or reranker.",
        autocompletion=_words("base", "gar", "reranker"),
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option(
        "--only",
        metavar="SYSTEM",
        help="Only this system, with how its figures differ; may be repeated.",
        autocompletion=_starting(_system_names),
    ),
]
Top = Annotated[
    int | None,
    typer.Option("--top", min=1, help="Show only the first rows, and those measured here."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Queries shown.")]
Resamples = Annotated[
    int | None,
    typer.Option(
        "--resamples",
        min=100,
        help="Random draws; by default as many as the answer needs.",
    ),
]
Force = Annotated[
    bool, typer.Option("--force", help="Do again what is stored; replace what is there.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail where data is only noted as odd, or lost.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="table (the default), markdown, latex, csv or json.",
        autocompletion=_words("table", "markdown", "latex", "csv", "json"),
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only say what would be asked, and what it would cost.")
]
TokensPerSecond = Annotated[
    float | None,
    typer.Option(
        "--tokens-per-second",
        min=1e-9,
        help="With --dry-run: reckon the work of all models at this pace, from published figures.",
    ),
]
Price = Annotated[
    float | None,
    typer.Option("--price", min=0, help="With that: US dollars per hour of such hardware."),
]
Passages = Annotated[
    int | None,
    typer.Option("--passages", min=1, help="With that: so many passages in place of each corpus."),
]
VectorWidth = Annotated[
    int | None,
    typer.Option("--vector-width", min=1, help="With that: dimensions of a vector, for the disk."),
]
Dense = Annotated[
    str,
    typer.Option("--dense", help="Encoder of the dense candidates; none leaves BM25 alone."),
]

Model = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        help="A Python class as package.module:Class; may be repeated.",
        rich_help_panel=_MODELS,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Let code that comes with a checkpoint run.",
        rich_help_panel=_MODELS,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="A torch device, e.g. cuda:0; the best one by default.",
        rich_help_panel=_MODELS,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show the first texts as the models saw them.",
        rich_help_panel=_MODELS,
    ),
]

Engine = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where models run: local, processes[=N] or ray[=ADDRESS].",
        rich_help_panel=_MODELS,
        autocompletion=_words("local", "processes", "ray"),
    ),
]
WorkerTimeout = Annotated[
    float | None,
    typer.Option(
        "--worker-timeout",
        help="Seconds a worker may take for one piece of work.",
        rich_help_panel=_MODELS,
    ),
]

BatchSize = Annotated[
    int | None,
    typer.Option(
        "--batch-size",
        min=1,
        help="Texts of 512 tokens that a model takes at once, more of shorter ones; 8 by default.",
        rich_help_panel=_MODELS,
    ),
]
Sample = Annotated[
    int | None,
    typer.Option("--sample", min=1, help="Take only so many of each task, for a quick try."),
]
Sweep = Annotated[
    Path | None,
    typer.Option("--from", metavar="FILE.toml", help="Take systems, tasks and options from it."),
]

LlmUrl = Annotated[
    str | None,
    typer.Option(
        "--llm-url",
        help="An OpenAI-compatible server to ask.",
        rich_help_panel=_LANGUAGE_MODELS,
    ),
]
Prompts = Annotated[
    Path | None,
    typer.Option(
        "--prompts", help="Folder of prompts of your own.", rich_help_panel=_LANGUAGE_MODELS
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Ask again for what was answered before.",
        rich_help_panel=_LANGUAGE_MODELS,
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        help="Stop before more tokens are used in all.",
        rich_help_panel=_LANGUAGE_MODELS,
    ),
]
MaxCost = Annotated[
    float | None,
    typer.Option(
        "--max-cost",
        help="Stop before more US dollars are spent.",
        rich_help_panel=_LANGUAGE_MODELS,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        "--concurrency", help="Requests at the same time.", rich_help_panel=_LANGUAGE_MODELS
    ),
]


def format_of(
    text: str | None, as_json: bool, only: tuple[str, ...] = (), mode: str = ""
) -> FormatName:
    """The format that --format or --json asks for; `mode` has no other than `only`."""
    from r2med.report.formats import FORMATS

    if as_json and text not in (None, "json"):
        raise UsageError(f"--json and --format {text}: choose one.")
    form = chosen("json" if as_json else text or "table", FORMATS, "--format")
    if only and form not in only:
        raise UsageError(f"--format {form}: {mode} is shown as {' or '.join(only)}.")
    return form


def refuse_unread(context: typer.Context, mode: str, *names: str) -> None:
    """Refuse options that were given on the command line though `mode` reads none of them."""
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in names
        and getattr(context.get_parameter_source(parameter.name), "name", "") == "COMMANDLINE"
    ]
    if given:
        one = len(given) == 1
        raise UsageError(
            f"{', '.join(given)} {'has' if one else 'have'} no effect {mode}; leave "
            f"{'it' if one else 'them'} out."
        )


def refuse_idle(context: typer.Context, systems: Sequence[str]) -> None:
    """Refuse options of models that none of the systems has."""
    from r2med.systems.registry import entries, registered
    from r2med.systems.spec import Unit, parse

    engines: set[str] = set()
    parts: list[Any] = [registered(parse(system)) for system in systems]
    while parts:
        part = parts.pop()
        if isinstance(part, Unit):
            entry = entries().get(part.name)
            engines.add(entry.engine if entry else "")
        else:
            parts += [*part.fused, *part.stages]
    if engines <= _WITHOUT_MODEL:
        refuse_unread(context, "on systems without a model", *_OF_MODELS)
    if engines <= _WITHOUT_MODEL | _LOCAL:
        asking = ("llm_url", "prompts", "fresh", "max_tokens", "max_cost", "concurrency")
        refuse_unread(context, "on systems that ask no model behind an address", *asking)


def out(help: str) -> Any:
    """The option `--out`: the file or folder that a command writes."""
    return typer.Option("--out", help=help)


def conditions(
    bar: Bar | None = None,
    *,
    strict: bool = False,
    trust_remote_code: bool = False,
    device: str | None = None,
    llm_url: str | None = None,
    prompts: Path | None = None,
    fresh: bool = False,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    concurrency: int | None = None,
    engine: str = "local",
    worker_timeout: float | None = None,
    batch_size: int | None = None,
) -> Conditions:
    """The conditions that the options ask for; limits not given come from the environment."""
    from dataclasses import replace

    from r2med.report.console import notice, work_line
    from r2med.retrieve.conditions import Conditions

    if prompts is not None and not prompts.is_dir():
        raise MissingError(f"--prompts {prompts}: there is no such folder.")
    options = {"tokens": max_tokens, "money": max_cost, "concurrency": concurrency}
    chosen_limits: dict[str, Any] = {k: v for k, v in options.items() if v is not None}
    limits = None
    if chosen_limits:
        from r2med.remote.budget import Limits

        limits = replace(Limits.from_environment(), **chosen_limits)
    workers = None
    if engine != "local" or worker_timeout is not None:
        from r2med.engine.workers import open_workers

        workers = open_workers(engine, timeout=worker_timeout, device=device, tell=notice)
    plain = Conditions(
        trust_remote_code=trust_remote_code,
        strict=strict,
        device=device,
        llm_url=llm_url,
        limits=limits,
        fresh=fresh,
        prompts=prompts,
        tell=notice,
        workers=workers,
    )
    if batch_size is not None:
        plain = replace(plain, batch_tokens=512 * batch_size)
    return plain if bar is None else replace(plain, progress=work_line(bar))


def with_own_models(systems: Sequence[str] | None, models: Sequence[str] | None) -> list[str]:
    """All systems, those of --model among them; none at all is a UsageError."""
    named = [*(systems or ()), *(f"model:{target}" for target in models or ())]
    if not named:
        raise UsageError("no system is given. Name one, as in `r2med eval bm25`, or use --model.")
    return named
