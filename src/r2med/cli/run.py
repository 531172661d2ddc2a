"""`r2med run`: takes the reference scripts' command lines as they stand."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli.options import RESULTS, DataRoot, Results, Task
from r2med.errors import UsageError, nearest

MODES = ("eval_retrieval", "eval_reranker", "generate_hydoc")
RERANKERS = ("bge-reranker", "monobert", "rankllama")
METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")

#: What each mode cannot do without.
_NEEDED = {
    "eval_retrieval": ("retriever_name",),
    "eval_reranker": ("retriever_name", "reranker_name"),
    "generate_hydoc": ("gar_method", "gar_llm"),
}


def run(
    mode: Annotated[
        str, typer.Option("--mode", help="eval_retrieval, eval_reranker or generate_hydoc.")
    ],
    task: Task,
    retriever_name: Annotated[
        str | None, typer.Option("--retriever_name", help="The first stage, e.g. bm25 or nv.")
    ] = None,
    reranker_name: Annotated[
        str | None,
        typer.Option("--reranker_name", help="bge-reranker, monobert or rankllama."),
    ] = None,
    recall_k: Annotated[
        int, typer.Option("--recall_k", help="How many documents are reranked.")
    ] = 10,
    gar_method: Annotated[
        str | None,
        typer.Option("--gar_method", help="hyde, query2doc, lamer, search-o1 or search-r1."),
    ] = None,
    gar_llm: Annotated[
        str | None, typer.Option("--gar_llm", help="The language model, e.g. gpt4.")
    ] = None,
    data_root: DataRoot = None,
    results: Results = RESULTS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the equivalent command.")
    ] = False,
) -> None:
    """Run a command line of the reference scripts, and show its equivalent here.

    The equivalent command goes to standard error, its scores to standard output.
    """
    from r2med.report.console import notice_console

    call = ReferenceCall(mode, retriever_name, reranker_name, recall_k, gar_method, gar_llm)
    command = _command(call.mode, call.system, gar_method, gar_llm, task, data_root, results)
    notice_console().print(f"$ {shlex.join(command)}", soft_wrap=True)
    if not dry_run:
        from r2med.cli.app import app

        app(command[1:], prog_name="r2med", standalone_mode=False)


def _command(
    mode: str,
    system: str,
    method: str | None,
    llm: str | None,
    task: str,
    data_root: Path | None,
    results: Path,
) -> list[str]:
    if mode == "generate_hydoc":
        command = ["r2med", "generate", str(method), "--llm", str(llm), "--task", task]
    else:
        command = ["r2med", "eval", system, "--task", task]
        if results != RESULTS:
            command += ["--results", str(results)]
    return command + (["--data-root", str(data_root)] if data_root else [])


@dataclass(frozen=True)
class ReferenceCall:
    """The options of the reference's run.py; only those that a mode needs must be there."""

    mode: str
    retriever_name: str | None = None
    reranker_name: str | None = None
    recall_k: int = 10
    gar_method: str | None = None
    gar_llm: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the reference would refuse, and say what is missing."""
        _one_of("--mode", self.mode, MODES)
        for option in _NEEDED[self.mode]:
            if not getattr(self, option):
                raise UsageError(f"--mode {self.mode} needs --{option}.")
        if self.reranker_name:
            _one_of("--reranker_name", self.reranker_name, RERANKERS)
        if self.gar_method:
            _one_of("--gar_method", self.gar_method, METHODS)
        if bool(self.gar_method) != bool(self.gar_llm):
            lacking = "--gar_llm" if self.gar_method else "--gar_method"
            raise UsageError(f"{lacking} is missing: a method and a model go together.")
        if self.recall_k < 1:
            raise UsageError(f"--recall_k {self.recall_k}: expected a number from 1.")

    @property
    def system(self) -> str:
        """The text of the same system here; the reference's rerankers rank without expansion."""
        if self.mode == "eval_reranker":
            return f"{self.retriever_name} | {self.reranker_name}@{self.recall_k}"
        if self.gar_method:
            return f"{self.gar_method}:{self.gar_llm} | {self.retriever_name}"
        return str(self.retriever_name)


def _one_of(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{option} {value!r} is not known. {nearest(value, allowed)}")
