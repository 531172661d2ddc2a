"""The `r2med` command: its subcommands under headings, command groups and their defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from r2med.cli.main import convert_interrupts
from r2med.cli.sweep import SWEEP
from r2med.errors import UsageError, nearest

_SETTINGS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


@dataclass(frozen=True)
class CommandEntry:
    """A command that is imported only when it runs."""

    heading: str
    """Heading in the main help; empty for a hidden command."""
    target: str
    """The module in this package and its function or group, such as `eval:evaluate`."""
    help: str


class Command(TyperCommand):
    """A command with the option --offline, whose help shows options under headings."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params.append(_offline_option())

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the arguments, then of the options under each heading."""
        from r2med.cli.options import HEADINGS, OUTPUT, WHAT_TO_RUN

        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                heading = "Arguments"
            elif parameter.name == "help":
                heading = OUTPUT
            else:
                heading = getattr(parameter, "rich_help_panel", None) or WHAT_TO_RUN
            sections.setdefault(heading, []).append(record)
        for heading in ("Arguments", *HEADINGS):
            if heading in sections:
                with formatter.section(heading):
                    formatter.write_dl(sections[heading])


def _offline_option() -> TyperOption:
    def switch(context: Any, parameter: Any, value: bool) -> None:
        if value and not context.resilient_parsing:
            from r2med.offline import go_offline

            go_offline()

    return TyperOption(
        param_decls=["--offline"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        default=False,
        callback=switch,
        help="Refuse every connection that leaves this machine.",
        rich_help_panel="Limits",
    )


class CommandApp(typer.Typer):
    """A typer application whose commands are `Command`s."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[..., Any]:
        """Register a function as a command."""
        return super().command(name, **{"cls": Command, **settings})


def command_group(
    *,
    default: str = "--help",
    takes_arguments: bool = False,
    entries: Mapping[str, CommandEntry] | None = None,
    **settings: Any,
) -> CommandApp:
    """Create a group that runs `default` if no command is named.

    With `takes_arguments`, a first word that is not a command is an argument of the default one.
    """
    attributes = {
        "default": default,
        "takes_arguments": takes_arguments,
        "entries": entries or {},
    }
    cls = type("Commands", (_CommandGroup,), attributes)
    return CommandApp(cls=cls, **{**_SETTINGS, "add_completion": False, **settings})


class _CommandGroup(TyperGroup):
    default: str
    takes_arguments: bool
    entries: Mapping[str, CommandEntry]

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands in the order of the help."""
        return [*self.entries, *(name for name in self.commands if name not in self.entries)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, importing its module if necessary."""
        if cmd_name in self.entries and cmd_name not in self.commands:
            entry = self.entries[cmd_name]
            module, _, attribute = entry.target.partition(":")
            target = getattr(import_module(f"r2med.cli.{module}"), attribute)
            if not isinstance(target, typer.Typer):
                single = CommandApp(**_SETTINGS, add_completion=False)
                single.command(cmd_name, hidden=not entry.heading)(target)
                target = single
            self.commands[cmd_name] = typer.main.get_command(target)
            self.commands[cmd_name].name = cmd_name
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Run the default command if the first word is an option of that command."""
        group_options = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        word = args[0].partition("=")[0] if args else ""
        is_group_option = word in group_options or self.default.startswith("-")
        if word == "--mode" and "run" in self.entries:
            raise UsageError(f"{word} is an option of `r2med run`: r2med run {' '.join(args)}")
        is_option = word.startswith("-")
        is_argument = self.takes_arguments and not is_option and word not in self.commands
        needs_default = not args or is_argument or (is_option and not is_group_option)
        if needs_default and not ctx.resilient_parsing:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; an unknown name is answered with the nearest one."""
        word, path = args[0], ctx.command_path
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing:
            visible = [name for name, entry in self.entries.items() if entry.heading]
            # A group that lists things can show the one that was named.
            hint = f", or try: {path} show {word}" if self.default == "list" else ""
            raise UsageError(
                f"{path} has no command {word!r}. {nearest(word, [*self.commands, *visible])}\n"
                f"See {path} --help{hint}."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, each under its heading."""
        if not self.entries:
            super().format_commands(ctx, formatter)
            return
        width = max(map(len, self.entries))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entries.items():
            sections.setdefault(entry.heading, []).append((f"{name:<{width}}", entry.help))
        for heading, rows in sections.items():
            if heading:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Parse the command line."""
        with convert_interrupts():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with convert_interrupts():
            return super().invoke(ctx)


_RUN, _UNDERSTAND, _DATA, _STORE = "Run", "Understand", "Data", "Store"
#: Every command under its heading; a command without a heading is not in the main list.
COMMANDS = {
    "eval": CommandEntry(_RUN, "eval:evaluate", "Run systems on tasks and show their scores."),
    "estimate": CommandEntry(
        _RUN, "estimate:estimate", "Estimate cost, time, disk and memory before running."
    ),
    "generate": CommandEntry(
        _RUN, "generate:generate", "Generate query expansions without searching."
    ),
    "run": CommandEntry(_RUN, "run:run", "Run a command line of the R2MED reference scripts."),
    "serve": CommandEntry(
        _RUN, "serve:serve", "Let outside agents search a task, over HTTP and MCP."
    ),
    "leaderboard": CommandEntry(
        _UNDERSTAND, "leaderboard:leaderboard", "Rank published and measured systems."
    ),
    "compare": CommandEntry(
        _UNDERSTAND, "compare:compare", "Test whether one system is better than another."
    ),
    "score": CommandEntry(
        _UNDERSTAND, "score:score", "Measure a run file against a judgements file."
    ),
    "cite": CommandEntry(
        _UNDERSTAND, "cite:cite", "Print BibTeX of the tool, the data and published figures."
    ),
    "sensitivity": CommandEntry(
        _UNDERSTAND, "sensitivity:sensitivity", "Show how much a score depends on wording."
    ),
    "power": CommandEntry(
        _UNDERSTAND, "power:power", "Show which differences the queries of a task can detect."
    ),
    "diagnose": CommandEntry(
        _UNDERSTAND, "diagnose:diagnose", "Show where a system fails and why."
    ),
    "agents": CommandEntry(
        _UNDERSTAND, "agents:agents", "Score agents: evidence, cost, answers and confidence."
    ),
    "explore": CommandEntry(
        _UNDERSTAND, "explore:explore", "Browse results and queries in a web browser."
    ),
    "report": CommandEntry(_UNDERSTAND, "explore:report", "Write results as one HTML file."),
    "reproduce": CommandEntry(
        _UNDERSTAND, "run:reproduce", "Compare your results with a published system's."
    ),
    "plot": CommandEntry(_UNDERSTAND, "plot:plot", "Draw a figure for screen or print."),
    "answer": CommandEntry(
        _UNDERSTAND, "answer:answer", "Test whether better retrieval gives better answers."
    ),
    "build": CommandEntry(_DATA, "build:build", "Make a benchmark from questions and documents."),
    "judge": CommandEntry(_DATA, "judge:judge", "Judge unjudged results with language models."),
    "review": CommandEntry(_DATA, "review:review", "Review judgements: people label pairs."),
    "tasks": CommandEntry(_DATA, "tasks:tasks", "List, download, verify and describe tasks."),
    "nano": CommandEntry(_DATA, "nano:nano", "Build Nano tasks and check how faithful they are."),
    "audit": CommandEntry(_DATA, "audit:audit", "Check training data for leaked test data."),
    "fetch": CommandEntry(_DATA, "tasks:fetch", "The same as `r2med tasks fetch`."),
    "results": CommandEntry(_STORE, "results:results", "List, show, delete or export results."),
    "cache": CommandEntry(_STORE, "info:cache", "Show or clear data and caches, never results."),
    "info": CommandEntry(_STORE, "info:info", "Show versions, systems and language models."),
    "analyze": CommandEntry("", "info:analyze", "Print the terms that BM25 indexes a text by."),
}

app = command_group(name="r2med", entries=COMMANDS, add_completion=True)


def _print_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version

        from r2med.report.console import echo

        echo(f"r2med {version('r2med')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Does a retrieval system understand medicine, or does it only match words?

    Runs and measures systems on R2MED and NanoR2MED. See `r2med COMMAND --help`.

    For research only, not for clinical decisions.
    """


def usage_message(error: Exception) -> str | None:
    """Return the message for a command line that typer cannot parse; None for other errors."""
    if not isinstance(error, _CLICK_ERROR):
        return None
    context, parameter = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None:
        return f"{error.format_message()}\nSee r2med --help."
    message = f"{error.format_message()}\nSee {context.command_path} --help."
    sweep = context.meta.get(SWEEP)
    if sweep is not None and parameter is not None:
        source = context.get_parameter_source(parameter.name)
        if getattr(source, "name", "") == "DEFAULT_MAP":
            return f"{sweep.path}: {message}"
    return message


#: The base of all parse errors. Recent typer versions bundle click, so it cannot be imported from
#: one fixed module; it is the class above `UsageError` in the bases of `BadParameter`.
_CLICK_ERROR: Any = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)
