"""`r2med plot`: figures for papers, slides and reading."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import UsageError, need
from r2med.report.console import echo, notice
from r2med.storage import write_file

if TYPE_CHECKING:
    from r2med.report.plots.theme import Theme
    from r2med.results.leaderboard import Leaderboard
    from r2med.results.standings import Standing

#: Systems that a heatmap or a plot of means shows unless --top says otherwise.
_MOST_ROWS = 30


def plot(
    context: typer.Context,
    figure: Annotated[
        Literal["heatmap", "means", "cost", "dates", "body-systems", "overlap", "wins", "history"],
        typer.Argument(help="heatmap, means, cost, dates, body-systems, overlap, wins or history."),
    ],
    file: Annotated[Path, options.out("The file to write: .svg, .pdf or .png.")],
    systems: options.AnySystems = None,
    theme: Annotated[
        Literal["light", "dark"], options.option(help="light or dark.", heading=options.OUTPUT)
    ] = "light",
    paper: Annotated[
        bool,
        options.option(
            "--paper",
            help="Draw for one column of a paper: no title in the plot, caption in the terminal.",
            heading=options.OUTPUT,
        ),
    ] = False,
    suite: options.Suite = None,
    task: options.AnyTask = None,
    kind: options.Kind = None,
    metric: options.Metric = options.METRIC,
    top: options.Top = None,
    spent: Annotated[
        Literal["seconds", "tokens", "money", "parameters"] | None,
        options.option(
            help="Unit of cost: seconds (latency), tokens, money, or active parameters."
        ),
    ] = None,
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
) -> None:
    """Draw a figure from published figures and stored results.

    Of a suite: heatmap (systems by tasks), means (with intervals), cost (quality against cost),
    dates (quality against date), body-systems (your results by body system).
    Of systems and tasks: overlap (score against lexical overlap), wins (A minus B per query),
    history (every stored score over time).
    """
    from r2med.report.plots.theme import ENDINGS, LIBRARIES, caption_of, find_theme, picture

    need(*LIBRARIES, extra="plots")
    if file.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {file}: expected a file that ends in .svg, .pdf or .png.")
    look = find_theme(theme)
    of_systems = figure in ("overlap", "wins", "history")
    unread = ["suite", "kind", "top"] if of_systems else []
    unread += ["data_root"] if not of_systems and figure != "body-systems" else []
    unread += ["top"] if figure == "cost" else ["spent"]
    unread += ["metric"] if figure == "overlap" else []
    unread += ["data_root"] if figure == "history" else []
    refuse_unread(context, f"on this figure ({figure})", *unread)
    if of_systems:
        chart = _of_systems(figure, systems or [], task, metric, results, data_root, look)
    elif systems:
        raise UsageError(f"plot {figure} takes no systems; choose with --suite, --kind, --top.")
    else:
        from r2med.report.plots import boards
        from r2med.results.leaderboard import leaderboard

        board = leaderboard(
            suite, task=task, metric=metric, kind=kind, results=results, tell=notice
        )
        board = replace(board, rows=tuple(map(_hide_folders, board.rows)))
        if figure == "body-systems":
            chart = _body_systems(board, top or _MOST_ROWS, data_root, look)
        else:
            chart = boards.draw(board, figure, look, top=top or _MOST_ROWS, by=spent or "seconds")
        if figure == "cost":
            from r2med.results.frontier import describe_dominated

            unit = spent or "seconds"
            points = boards.cost_points(board, unit)
            if sentence := describe_dominated(points, boards.COST_AXES[unit].unit):
                notice(sentence)
    write_file(file, picture(chart, look, file.suffix.lower(), for_paper=paper))
    echo(f"wrote {file}")
    if paper:
        echo(f"Caption: {caption_of(chart)}")


def _body_systems(board: Leaderboard, top: int, root: Path | None, theme: Theme) -> Any:
    from r2med.report.plots.body_systems import body_system_strip
    from r2med.results.body_systems import score_board_by_body_system

    scores = score_board_by_body_system(board, top=top, root=root)
    return body_system_strip(
        scores, f"{board.suite.title}: {board.metric} × 100 by body system", theme
    )


def _hide_folders(row: Standing) -> Standing:
    """Return the row without local folders in the system's name, because plots are shared."""
    from r2med.explore.sharing import without_folders

    return replace(row, system=without_folders(row.system))


def _history(systems: list[str], task: str | None, metric: str, folder: Path, theme: Theme) -> Any:
    from r2med.explore.sharing import without_folders
    from r2med.report.plots.history import history
    from r2med.results.history import collect_history
    from r2med.results.select import ResultSet
    from r2med.tasks.load import task_names
    from r2med.tasks.registry import resolve

    result_set = ResultSet.open(folder, notice)
    local_tasks = result_set.local_tasks
    tasks = task_names(resolve(task, local_tasks), local_tasks) if task else ()
    points = collect_history(result_set, systems, tasks, metric)
    points = [replace(point, system=without_folders(point.system)) for point in points]
    return history(points, metric, theme)


def _of_systems(
    figure: str,
    systems: list[str],
    task: str | None,
    metric: str,
    folder: Path,
    root: Path | None,
    theme: Theme,
) -> Any:
    from r2med.explore.sharing import without_folders
    from r2med.report.plots.queries import overlap, wins
    from r2med.results.compare import compare
    from r2med.results.diagnosis.diagnose import Scene, diagnose_ranking
    from r2med.results.select import ResultSet
    from r2med.tasks.load import load_tasks

    if figure == "history":
        return _history(systems, task, metric, folder, theme)
    if figure == "wins":
        if len(systems) != 2:
            raise UsageError("plot wins needs two systems, e.g. plot wins bm25 bm25-lucene.")
        sources: dict[str, Any] = {"results": folder, "root": root, "tell": notice}
        comparison = compare(*systems, task=task, metric=metric, **sources)
        names = tuple(map(without_folders, comparison.systems))
        return wins(replace(comparison, systems=names), theme)
    if not systems or task is None:
        raise UsageError("plot overlap needs a system and --task, e.g. plot overlap bm25 -t demo.")
    result_set, diagnoses = ResultSet.open(folder, notice), []
    for loaded in load_tasks(task, root=root, local_tasks=result_set.local_tasks):
        scene = Scene(loaded)
        for system in systems:
            ranking = result_set.find_ranking(system, loaded, notice)
            diagnosis = diagnose_ranking(ranking, loaded, scene=scene)
            diagnoses.append(replace(diagnosis, system=without_folders(diagnosis.system)))
    return overlap(diagnoses, theme)
