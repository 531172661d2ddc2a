"""The `r2med` command: its commands under headings, groups of commands and their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from r2med.cli.main import told_apart
from r2med.errors import UsageError, nearest

_EVERYWHERE: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


@dataclass(frozen=True)
class Listed:
    """A command that is imported only when it is run: its heading, its place and its help."""

    heading: str
    target: str
    """The module in this package and the function or group in it, as in `eval:evaluate`."""
    help: str


def command_group(
    *, default: str = "--help", listed: Mapping[str, Listed] | None = None, **settings: Any
) -> typer.Typer:
    """A group that runs `default` when no command is named."""
    own = {"default": default, "listed": listed or {}}
    cls = type("Commands", (_Commands,), own)
    return typer.Typer(cls=cls, **{**_EVERYWHERE, "add_completion": False, **settings})


class _Commands(TyperGroup):
    default: str
    listed: Mapping[str, Listed]

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all commands, in the order of the help."""
        return [*self.listed, *(name for name in self.commands if name not in self.listed)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, imported if need be."""
        if cmd_name in self.listed and cmd_name not in self.commands:
            listed = self.listed[cmd_name]
            module, _, attribute = listed.target.partition(":")
            target = getattr(import_module(f"r2med.cli.{module}"), attribute)
            if not isinstance(target, typer.Typer):
                alone = typer.Typer(**_EVERYWHERE, add_completion=False)
                alone.command(cmd_name, hidden=not listed.heading)(target)
                target = alone
            self.commands[cmd_name] = typer.main.get_command(target)
            self.commands[cmd_name].name = cmd_name
        return self.commands.get(cmd_name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Run the default command when the first word is none of ours but an option."""
        known = {name for parameter in self.get_params(ctx) for name in parameter.opts}
        word = args[0].partition("=")[0] if args else ""
        own = word in known or self.default.startswith("-")
        if not ctx.resilient_parsing and (not args or (word.startswith("-") and not own)):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command; one that moved answers with its new name, others with the nearest."""
        word, path = args[0], ctx.command_path
        if self.get_command(ctx, word) is None and not ctx.resilient_parsing:
            shown = [*self.commands, *(name for name, each in self.listed.items() if each.heading)]
            if (renamed := RENAMED.get(f"{path} {word}")) is not None:
                raise UsageError(f"`{path} {word}` is now `{renamed}`.")
            # A group that lists things can show the one that was named.
            about = f", or try: {path} show {word}" if self.default == "list" else ""
            raise UsageError(
                f"{path} has no command {word!r}. {nearest(word, shown)}\nSee {path} --help{about}."
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, those that are listed each under its heading."""
        if not self.listed:
            super().format_commands(ctx, formatter)
            return
        longest = max(map(len, self.listed))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, one in self.listed.items():
            sections.setdefault(one.heading, []).append((f"{name:<{longest}}", one.help))
        for heading in filter(None, sections):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])

    def make_context(self, *args: Any, **settings: Any) -> Any:
        """Parse the words of the command line."""
        with told_apart():
            return super().make_context(*args, **settings)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with told_apart():
            return super().invoke(ctx)


_RUN, _UNDERSTAND, _DATA, _STORE = "Run", "Understand", "Data", "Store"
#: Every command under its heading; one without a heading is not in the main list.
COMMANDS = {
    "eval": Listed(_RUN, "eval:evaluate", "Run systems on tasks and show their scores."),
    "generate": Listed(_RUN, "generate:generate", "Have a model write for the queries of tasks."),
    "leaderboard": Listed(
        _UNDERSTAND, "leaderboard:leaderboard", "Rank published and measured systems."
    ),
    "compare": Listed(_UNDERSTAND, "compare:compare", "Is one system really better than another?"),
    "diagnose": Listed(_UNDERSTAND, "diagnose:diagnose", "Say where a system fails, and why."),
    "explore": Listed(_UNDERSTAND, "explore:explore", "See results and queries in a browser."),
    "report": Listed(_UNDERSTAND, "explore:report", "Write results as one HTML file."),
    "reproduce": Listed(_UNDERSTAND, "run:reproduce", "Run a published system beside its figures."),
    "plot": Listed(_UNDERSTAND, "plot:plot", "Draw a figure for screen or print."),
    "tasks": Listed(_DATA, "tasks:tasks", "List, fetch, verify and describe tasks."),
    "nano": Listed(_DATA, "nano:nano", "Build and judge Nano tasks."),
    "audit": Listed(_DATA, "audit:audit", "Did the evaluation leak into training data?"),
    "fetch": Listed(_DATA, "tasks:fetch", "The same as `r2med tasks fetch`."),
    "results": Listed(_STORE, "results:results", "List, show or export stored results."),
    "cache": Listed(_STORE, "info:cache", "Show or clear data and caches; never results."),
    "info": Listed(_STORE, "info:info", "Show versions, known systems and language models."),
    "run": Listed("", "run:run", "Run a command line of the reference scripts."),
    "analyze": Listed("", "info:analyze", "Print the terms that BM25 indexes a text by."),
}
#: Commands that moved, and what to type now.
RENAMED = {
    "r2med diff": "r2med compare A B --task TASK --queries",
    "r2med show": "r2med diagnose SYSTEM --task TASK --query ID",
    "r2med verify": "r2med tasks verify",
    "r2med profile": "r2med tasks profile",
    "r2med card": "r2med tasks card",
    "r2med exclusions": "r2med tasks exclusions",
    "r2med nano push": "hf upload OWNER/NAME DIR . --repo-type dataset",
}

app = command_group(name="r2med", listed=COMMANDS, add_completion=True)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from r2med.report.console import echo

        echo(f"r2med {version('r2med')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Does a retrieval system understand medicine, or does it only match words?

    Runs and measures systems on R2MED and NanoR2MED. `r2med COMMAND --help` tells more.

    A research instrument, never a clinical decision system.
    """


def usage_message(error: Exception) -> str | None:
    """What typer says of a command line that it cannot read; None for any other error."""
    unreadable: Any = typer.BadParameter.__mro__[2]
    if not isinstance(error, unreadable):
        return None
    context = getattr(error, "ctx", None)
    place = context.command_path if context is not None else "r2med"
    return f"{error.format_message()}\nSee {place} --help."
