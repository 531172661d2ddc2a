"""`r2med run`: takes the reference scripts' command lines as they stand."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli.options import RESULTS, DataRoot, Results, Task


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
    from r2med.systems.reference import ReferenceCall

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
