"""`r2med nano`: build compact tasks, give them candidates, test their fidelity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.nano.building import Built
    from r2med.nano.fidelity import Fidelity

nano = typer.Typer(
    help="Build Nano tasks, add candidates, check that they are faithful.",
    no_args_is_help=True,
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
DataRoot = Annotated[
    Path | None,
    typer.Option(help="Folder with task data you have, as ROOT/<task>/corpus.jsonl ..."),
]


@nano.command()
def build(
    tasks: Annotated[
        str,
        typer.Argument(
            metavar="TASK|PATH", help="Tasks, suites or folders; comma-separated, a split each."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The folder to make.")],
    queries: Annotated[int, typer.Option(help="At most so many queries.")] = 200,
    documents: Annotated[int, typer.Option(help="Size of the pool.")] = 10_000,
    fill: Annotated[
        str,
        typer.Option(help="Unjudged documents: source (as published), random or hard."),
    ] = "source",
    seed: Annotated[int, typer.Option(help="Decides the random fill.")] = 20260524,
    hard_from: Annotated[
        str, typer.Option(help="The retriever whose rankings give the hard fill.")
    ] = "bm25-nano",
    positives_cap: Annotated[
        int | None, typer.Option(help="At most so many positives a query; no limit as published.")
    ] = None,
    layout: Annotated[str, typer.Option(help="both, hub or r2med.")] = "both",
    data_root: DataRoot = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail where positives are lost.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the Nano task in a folder that is not empty.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make a Nano task of any task, by the published recipe.

    The same input gives the same bytes.
    """
    from r2med.cli.options import chosen
    from r2med.nano.building import LAYOUTS
    from r2med.nano.building import build as build_folder
    from r2med.nano.folder import check_free
    from r2med.nano.pool import FILLS, Recipe
    from r2med.report.console import notice
    from r2med.tasks.load import load_tasks

    recipe = Recipe(
        queries, documents, chosen(fill, FILLS, "--fill"), seed, hard_from, positives_cap
    )
    form = chosen(layout, LAYOUTS, "--layout")
    check_free(out, force=force)
    loaded = list(load_tasks(tasks, root=data_root))
    built = build_folder(loaded, out, recipe, layout=form, force=force, strict=strict, tell=notice)
    if as_json:
        typer.echo(json.dumps([_built_json(one) for one in built], indent=2))
        return
    for one in built:
        report = one.pool.report
        typer.echo(
            f"{one.split}: {report.queries:,} queries, {report.documents:,} documents "
            f"({report.positive_documents:,} positive, {report.judged_negative_documents:,} judged "
            f"non-positive, {report.fill_documents:,} fill), {report.positives:,} positives"
        )
    typer.echo(f"written to {out}; next: r2med nano candidates {out}")


@nano.command()
def candidates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `nano build` made.")],
    dense: Annotated[
        str, typer.Option(help="The encoder of the dense subset, e.g. minilm or wordllama.")
    ] = "harrier",
    force: Annotated[bool, typer.Option("--force", help="Replace candidates there are.")] = False,
    as_json: Json = False,
) -> None:
    """Add the bm25, dense and reranking_hybrid subsets, as published.

    Top 500 of each member; reciprocal rank fusion with k = 100, cut at 100;
    where those hold no positive, one is appended at rank 101.
    """
    from r2med.nano.building import add_candidates
    from r2med.report.console import notice
    from r2med.retrieve.conditions import Conditions

    conditions = Conditions(tell=notice)
    made = add_candidates(folder, dense, force=force, conditions=conditions)
    if as_json:
        rows = {
            split: {
                "bm25": len(found.bm25),
                found.dense_config: len(found.dense),
                "reranking_hybrid": len(found.hybrid),
                "safeguards": dict(found.safeguards),
            }
            for split, found in made.items()
        }
        typer.echo(json.dumps(rows, indent=2))
        return
    for split, found in made.items():
        typer.echo(
            f"{split}: bm25, {found.dense_config} and reranking_hybrid for {len(found.hybrid):,} "
            f"queries; {len(found.safeguards):,} with a safeguard at rank 101"
        )
    typer.echo(f"next: r2med tasks profile {folder}")


@nano.command()
def fidelity(
    full: Annotated[str, typer.Argument(metavar="TASK", help="The full task, as in results.")],
    nano_task: Annotated[
        str | None,
        typer.Argument(metavar="[NANO]", help="Its Nano form; a registered task knows its own."),
    ] = None,
    metric: Annotated[str, typer.Option(help="What the systems are ranked by.")] = "ndcg@10",
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    resamples: Annotated[int, typer.Option(min=100, help="Draws of the bootstrap.")] = 1_000,
    as_json: Json = False,
) -> None:
    """Do systems rank alike on a full task and its Nano form?

    Kendall's tau and Spearman's rho over all systems with stored results on
    both, with bootstrap intervals over queries.
    """
    from dataclasses import asdict

    from r2med.measure import parse_metric
    from r2med.nano.fidelity import fidelity as compare
    from r2med.report.console import notice
    from r2med.results.lookup import stored_results

    names = _fidelity_names(full, nano_task)
    stored = stored_results(results, notice)
    found = compare(*names, stored, metric=str(parse_metric(metric)), resamples=resamples)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2))
    else:
        _show_fidelity(found)


def _fidelity_names(full: str, nano_task: str | None) -> tuple[str, str]:
    """Names as results have them: of a task, of a folder, or as given."""
    from r2med.errors import UsageError
    from r2med.tasks.load import task_names
    from r2med.tasks.registry import find_suite

    def stored_name(text: str) -> str:
        try:
            return task_names([text])[0]
        except UsageError:
            return text

    name = stored_name(full)
    if nano_task is not None:
        return name, stored_name(nano_task)
    for entry in find_suite("nano").entries:
        if entry.source == name:
            return name, entry.name
    raise UsageError(
        f"{full} has no registered Nano form: name yours, as in "
        f"r2med nano fidelity {full} 'DIR#SPLIT'."
    )


def _show_fidelity(found: Fidelity) -> None:
    from r2med.report.console import console
    from r2med.report.profile_table import fidelity_tables

    out = console()
    for part in fidelity_tables(found):
        out.print(part)


def _built_json(one: Built) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "split": one.split,
        "folder": str(one.folder),
        "source": one.source.name,
        "report": asdict(one.pool.report),
        "notices": list(one.notices),
    }
