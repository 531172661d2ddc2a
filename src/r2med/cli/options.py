"""Options and arguments of the commands, each declared once and meaning the same everywhere.

Systems are arguments, tasks are `--task`; where tasks are the subject (`r2med tasks`, `r2med
nano`), they are the arguments. `--task` takes tasks, suites, All or folders, comma-separated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
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
#: Engines that run no model, and those that run one in this process.
_WITHOUT_MODEL = {"bm25", "fusion", "run", "candidates"}
_LOCAL = {"dense", "sparse", "late", "custom", "cross-encoder", "yes-no", "own", "own-code"}
#: Parameters of models that run here, and of those behind an address.
_OF_MODELS = ("device", "trust_remote_code", "batch_size")
_OF_LLMS = ("llm_url", "prompts", "fresh", "max_tokens", "max_cost", "concurrency")
#: Parameters that are conditions as they stand, and those that limit what models may use.
_ALLOWED = ("trust_remote_code", "strict", "device", "llm_url", "fresh")
_LIMITS = {"max_tokens": "tokens", "max_cost": "money", "concurrency": "concurrency"}
_TASKS = "Tasks, suites (full, nano, demo), All, or folders"


def _known(kind: str) -> Iterable[str]:
    """The names of all tasks, systems or metrics."""
    if kind == "systems":
        from r2med.systems.registry import entries

        return entries()
    if kind == "metrics":
        from r2med.measure import HEADLINE

        return HEADLINE
    from r2med.tasks.registry import all_entries, suites

    return [*(suite.name for suite in suites()), *(entry.name for entry in all_entries())]


def _completing(kind: str) -> Callable[[str], list[str]]:
    """Offer the known names that begin as the last one on the command line does."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in _known(kind) if name.startswith(last)]

    return complete


def _option(*names: str, help: str, words: str = "", **settings: Any) -> Any:
    """An option; known names of the kind `words` are offered where the shell completes it."""
    if words:
        settings["autocompletion"] = _completing(words)
    return typer.Option(*names, help=help, **settings)


def _argument(metavar: str, help: str, words: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, autocompletion=_completing(words))


_systems = partial(_argument, words="systems")
_TASK: Any = _option("--task", "-t", help=f"{_TASKS}; comma-separated.", words="tasks")
_TASK_ARGUMENTS: Any = _argument("TASK...", f"{_TASKS}.", "tasks")

System = Annotated[str, _systems("SYSTEM", "A system, e.g. bm25 or 'nv | rankllama@100'.")]
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
    Path | None, _option("--data-root", help="Folder with task data you have, as ROOT/<task>/...")
]
Results = Annotated[Path, _option("--results", help="Folder of stored results.")]
Metric = Annotated[str, _option("--metric", help="The metric shown.", words="metrics")]
Metrics = Annotated[
    str | None,
    _option("--metrics", help="Metrics shown, e.g. ndcg@10,recall@20,mrr.", words="metrics"),
]
By = Annotated[
    Literal["task", "scenario", "family"], _option("--by", help="Rows: task, scenario or family.")
]
Suite = Annotated[
    Literal["full", "nano", "demo", "local"] | None,
    _option("--suite", help="full (the default), nano, demo, or local for your own data."),
]
Kind = Annotated[
    Literal["base", "gar", "reranker"] | None,
    _option("--kind", help="Only base (retrieval alone), gar (expansion) or reranker."),
]
Only = Annotated[
    list[str] | None,
    _option("--only", help="Only these systems, parted by commas, in detail.", words="systems"),
]
Top = Annotated[
    int | None, _option("--top", min=1, help="Show only the first rows, and those measured here.")
]
Limit = Annotated[int, _option("--limit", min=1, help="Queries, or findings, shown.")]
Resamples = Annotated[
    int | None,
    _option("--resamples", min=100, help="Random draws; by default as many as the answer needs."),
]
Force = Annotated[bool, _option("--force", help="Do again what is stored; replace what is there.")]
Strict = Annotated[bool, _option("--strict", help="Fail where data is only noted as odd, or lost.")]
Json = Annotated[bool, _option("--json", help="Print JSON and nothing else.")]
Yes = Annotated[bool, _option("--yes", "-y", help="Do not ask.")]
Format = Annotated[
    Literal["table", "markdown", "latex", "csv", "json"] | None,
    _option("--format", help="table (the default), markdown, latex, csv or json."),
]
DryRun = Annotated[
    bool, _option("--dry-run", help="Only say what would be asked, and what it would cost.")
]
TokensPerSecond = Annotated[
    float | None,
    _option("--tokens-per-second", min=1e-9, help="With --dry-run: the pace of all models."),
]
Price = Annotated[
    float | None, _option("--price", min=0, help="With that: US dollars per hour of such hardware.")
]
Passages = Annotated[
    int | None,
    _option("--passages", min=1, help="With that: so many passages in place of each corpus."),
]
VectorWidth = Annotated[
    int | None,
    _option("--vector-width", min=1, help="With that: dimensions of a vector, for the disk."),
]
Dense = Annotated[
    str, _option("--dense", help="Encoder of the dense candidates; a profile may do with none.")
]
Sample = Annotated[
    int | None,
    _option("--sample", min=1, help="Take only so many of each task, for a quick try."),
]
Sweep = Annotated[
    Path | None,
    _option("--from", metavar="FILE.toml", help="Take systems, tasks and options from it."),
]

Model = Annotated[
    list[str] | None,
    _option("--model", help="A Python class as package.module:Class; may be repeated."),
]
TrustRemoteCode = Annotated[
    bool, _option("--trust-remote-code", help="Let code that comes with a checkpoint run.")
]
Device = Annotated[
    str | None, _option("--device", help="A torch device, e.g. cuda:0; the best one by default.")
]
BatchSize = Annotated[
    int | None,
    _option("--batch-size", min=1, help="Texts of 512 tokens taken at once; 8 by default."),
]
Engine = Annotated[
    str, _option("--engine", help="Where models run: local, processes[=N] or ray[=ADDRESS].")
]
WorkerTimeout = Annotated[
    float | None,
    _option("--worker-timeout", help="Seconds a worker may take for one piece of work."),
]
Verbose = Annotated[
    bool, _option("--verbose", "-v", help="Show the first texts as the models saw them.")
]
LlmUrl = Annotated[str | None, _option("--llm-url", help="An OpenAI-compatible server to ask.")]
Prompts = Annotated[Path | None, _option("--prompts", help="Folder of prompts of your own.")]
Fresh = Annotated[bool, _option("--fresh", help="Ask again for what was answered before.")]
MaxTokens = Annotated[
    int | None, _option("--max-tokens", help="Stop before more tokens are used in all.")
]
MaxCost = Annotated[
    float | None, _option("--max-cost", help="Stop before more US dollars are spent.")
]
Concurrency = Annotated[int | None, _option("--concurrency", help="Requests at the same time.")]


def out(help: str) -> Any:
    """The option `--out`: the file or folder that a command writes."""
    return typer.Option("--out", help=help)


def chosen(text: str, allowed: tuple[Choice, ...], option: str) -> Choice:
    """The word, when it is one of the allowed ones."""
    if text not in allowed:
        raise UsageError(f"{option} {text!r} is not known. {nearest(text, allowed)}")
    return allowed[allowed.index(text)]


def format_of(
    text: FormatName | None, as_json: bool, only: tuple[str, ...] = (), mode: str = ""
) -> FormatName:
    """The format that --format or --json asks for; `mode` has no other than `only`."""
    if as_json and text not in (None, "json"):
        raise UsageError(f"--json and --format {text}: choose one.")
    form: FormatName = "json" if as_json else text or "table"
    if only and form not in only:
        raise UsageError(f"--format {form}: {mode} is shown as {' or '.join(only)}.")
    return form


def is_typed(context: Any, name: str) -> bool:
    """Whether a parameter stands on the command line, not left to its default."""
    return getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"


def refuse_unread(context: typer.Context, mode: str, *names: str) -> None:
    """Refuse options and arguments that are typed though `mode` reads none of them."""
    unread = [
        parameter.opts[0] if parameter.opts[0].startswith("-") else str(parameter.metavar)
        for parameter in context.command.params
        if parameter.name in names and is_typed(context, parameter.name)
    ]
    if unread:
        one = len(unread) == 1
        raise UsageError(
            f"{', '.join(unread)} {'has' if one else 'have'} no effect {mode}; leave "
            f"{'it' if one else 'them'} out."
        )


def refuse_idle(context: typer.Context, systems: Sequence[str]) -> None:
    """Refuse options of models that none of the systems has."""
    from r2med.systems.registry import parts_of

    parts = [entry for system in systems for _, entry in parts_of(system)]
    engines = {entry.engine if entry else "" for entry in parts}
    if engines <= _WITHOUT_MODEL:
        refuse_unread(context, "on systems without a model", *_OF_MODELS)
    if engines <= _WITHOUT_MODEL | _LOCAL:
        refuse_unread(context, "on systems that ask no model behind an address", *_OF_LLMS)


def conditions(asked: Mapping[str, Any], bar: Bar | None = None) -> Conditions:
    """The conditions that the parameters of a command ask for, by their names.

    Limits that are not named come from the environment.
    """
    from r2med.report.console import notice, work_line
    from r2med.retrieve.conditions import Conditions

    allowed = {name: asked[name] for name in _ALLOWED if name in asked}
    if asked.get("prompts") is not None:
        allowed["prompts"] = Path(asked["prompts"])
        if not allowed["prompts"].is_dir():
            raise MissingError(f"--prompts {asked['prompts']}: there is no such folder.")
    if most := {_LIMITS[name]: asked[name] for name in _LIMITS if asked.get(name) is not None}:
        from r2med.remote.budget import Limits

        allowed["limits"] = replace(Limits.from_environment(), **most)
    engine, timeout = asked.get("engine", "local"), asked.get("worker_timeout")
    if engine != "local" or timeout is not None:
        from r2med.engine.processes import open_workers

        device = asked.get("device")
        allowed["workers"] = open_workers(engine, timeout=timeout, device=device, tell=notice)
    if asked.get("batch_size") is not None:
        allowed["batch_tokens"] = 512 * asked["batch_size"]
    if bar is not None:
        allowed["progress"] = work_line(bar)
    return Conditions(tell=notice, **allowed)
