"""The page of a leaderboard, with a headline about significance, and its figures as SVG."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from r2med.errors import MissingError, nearest, need
from r2med.explore.library import Snapshot
from r2med.explore.pages.overlap import chart_systems, overlap_figure
from r2med.explore.parameters import Parameters
from r2med.explore.render import Axis, Link, plural, points, render
from r2med.measure.metrics import HEADLINE
from r2med.measure.verdicts import LOW_COVERAGE, describe_skipped
from r2med.number_format import format_p_equation, format_percent, join_words
from r2med.report.table import task_label
from r2med.results.answers import describe_answers, mark_answers
from r2med.results.leaderboard import GAIN_TITLES, Leaderboard
from r2med.results.published import works
from r2med.results.standings import ORIGINS, Standing
from r2med.results.store import LOCAL
from r2med.systems.registry import KIND_TITLES, KINDS

FIGURES = ("means.svg", "cost.svg", "dates.svg")
#: Rows of a figure.
_DRAWN = 40
#: Rows that are shown at first, and how many more may follow without asking.
_FIRST, _FEW = 50, 10
#: Pixels of one bracket, and systems that a sentence names.
_LETTER, _NAMED = 10, 3
#: Difference of one shade from the baseline.
_SHADE_STEP = 0.05


@dataclass(frozen=True)
class View:
    """The filters and the order of a leaderboard page; every field is part of the address."""

    suite: str
    metric: str = "ndcg@10"
    kind: str | None = None
    family: str | None = None
    origin: str | None = None
    """Show only rows of this origin: published, later or measured; None shows all."""
    source: str | None = None
    """Show only the rows with figures from this work."""
    clean: str | None = None
    """With "yes", leave out the tasks that overlap with declared training data."""
    search: str | None = None
    sort: str = "mean"
    """The column to sort by: mean, system, gain, or the name of a task."""
    order: str = "down"
    rows: str | None = None
    """With "all", show every row, even if there are many."""
    baseline: str | None = None
    """The measured system that cells are coloured against; None colours each task separately."""

    @classmethod
    def of(cls, values: Parameters, snapshot: Snapshot) -> View:
        """Read a view from an address; without a suite, that of the stored results."""
        suite = values.word("suite", snapshot.suites) or snapshot.suite
        entries = snapshot.suites[suite].entries
        allowed: dict[str, Collection[str]] = {
            "kind": KINDS,
            "family": {entry.family for entry in entries},
            "origin": ORIGINS,
            "source": works(),
            "clean": ("yes",),
            "sort": ("mean", "system", "gain", *(entry.name for entry in entries)),
            "order": ("up", "down"),
            "rows": ("all",),
        }
        chosen = {name: word for name in allowed if (word := values.word(name, allowed[name]))}
        search = values.text("search", longest=200)
        measured = {result.system for result in snapshot.results}
        baseline = values.word("baseline", measured)
        return cls(suite, values.metric(), search=search, baseline=baseline, **chosen)

    @property
    def parts(self) -> dict[str, str | None]:
        """The parameters of the address; values equal to the default are None."""
        values = {
            view_field.name: (getattr(self, view_field.name), view_field.default)
            for view_field in fields(self)
        }
        return {name: None if value == plain else value for name, (value, plain) in values.items()}

    def board(self, snapshot: Snapshot) -> Leaderboard:
        """Return the leaderboard of this view, before `shown_board` filters and sorts its rows."""
        return snapshot.board(
            self.suite,
            metric=self.metric,
            kind=self.kind,
            family=self.family,
            without_flagged=self.clean is not None,
        )


Bracket = tuple[int, bool, bool, bool]
"""A piece of the line that joins rows of one letter: its x position, whether it continues above,
whether it continues below, and whether the row has the letter."""


def leaderboard_page(snapshot: Snapshot, view: View, link: Link, *, inline: bool = False) -> str:
    """Return the page of one view of a leaderboard.

    The overlap chart reads the data of all tasks, which takes long for a large suite. By default
    the browser loads it later; with `inline` it is part of the page.
    """
    board = view.board(snapshot)
    return render(
        "leaderboard.html",
        link,
        page="leaderboard",
        title=f"{board.suite.title} leaderboard, {board.metric}",
        headline=headline(board),
        **table_values(board, view),
        gain_titles=GAIN_TITLES,
        works={source.id: source.name for row in board.rows for source in row.sources},
        families=list(dict.fromkeys(task.family for task in board.suite.entries)),
        kinds=KIND_TITLES,
        metrics=sorted({*HEADLINE, view.metric}),
        snapshot=snapshot,
        overlap=overlap_figure(snapshot, board, link) if inline else "",
        draws_overlap=not inline and _has_overlap(snapshot, board),
        steps=next_steps(board, link),
    )


def next_steps(board: Leaderboard, link: Link) -> list[tuple[str, str, str]]:
    """Return links to further pages: an address, the question it answers, and its content."""
    steps = []
    systems = chart_systems(board)
    # Several versions of a system are rows of one spec; the pages show the first of them.
    measured = [row for row in reversed(board.rows) if row.origin == "measured"]
    first_rows = {row.system: row for row in measured}
    if systems is not None:
        best, rival = (first_rows[system] for system in systems)
        compared = link("compare", scope=board.suite.name, system=systems, metric=board.metric)
        question = f"Is {best.name} really better than {rival.name}?"
        steps.append((compared, question, "Query by query, with tests"))
        if best.values:
            task = min(best.values, key=best.values.__getitem__)
            hint = f"{task_label(task)}, {points(best.values[task])}: queries and causes"
            question = f"Where does {best.name} fail most?"
            steps.append((link("task", task=task, system=best.system), question, hint))
    question = "What would it find if I typed this?"
    steps.append((link("try"), question, "Any question, two systems side by side"))
    return [(href, question, hint) for href, question, hint in steps if href is not None]


def _has_overlap(snapshot: Snapshot, board: Leaderboard) -> bool:
    """Return whether two systems were measured on a task whose data is here."""
    has_data = any(snapshot.library.has_data(task.name) for task in board.tasks)
    return has_data and chart_systems(board) is not None


def check_figure(name: str) -> str:
    """Return the name of a figure; MissingError for any other name."""
    if name not in FIGURES:
        raise MissingError(f"No figure is named {name[:60]!r}. {nearest(name, FIGURES)}")
    return name


def draw_figure(board: Leaderboard, name: str, theme: str) -> str:
    """Draw one of the figures of `r2med plot` as SVG, on light or dark paper."""
    check_figure(name)
    from r2med.report.plots.theme import LIBRARIES, find_theme, picture

    need(*LIBRARIES, extra="plots")
    from r2med.report.plots import boards

    look = find_theme("dark" if theme == "dark" else "light")
    chart = boards.draw(board, name.removesuffix(".svg"), look, top=_DRAWN)
    return picture(chart, look).decode()


def table_values(board: Leaderboard, view: View) -> dict[str, Any]:
    """Return the values of the table of a view, by the names that `board.html` uses."""
    matching = shown_board(board, view)
    few = view.rows or len(matching.rows) <= _FIRST + _FEW
    chosen = matching.rows if few else replace(matching, top=_FIRST).shown
    rows = [*board.add_details(chosen[: 2 * _FIRST]), *chosen[2 * _FIRST :]]
    shades = [(task, _shade_of(board, task.name, view.baseline)) for task in board.tasks]
    brackets = _brackets(rows) if view.sort == "mean" else []
    means = [row for row in board.rows if row.mean is not None]
    measured = [row for row in board.rows if row.origin == "measured"]
    ends = [row.mean or 0.0 for row in means]
    ends += [
        end
        for row in (*means, *rows)
        if row.interval
        for end in (row.interval.low, row.interval.high)
    ]
    return {
        "board": board,
        "view": view,
        "rows": [
            (
                row,
                [lines[index] for lines in brackets if index in lines],
                [shade(row.values.get(task.name)) for task, shade in shades],
            )
            for index, row in enumerate(rows)
        ],
        "bracket_width": _LETTER * len(brackets),
        "axis": Axis.around(ends),
        "gains": any(row.gain is not None for row in board.rows),
        "mark_answers": mark_answers,
        "answer_notes": [note for row in rows if (note := describe_answers(row.name, row.answers))],
        "shows_judged": any(row.judged is not None for row in rows),
        "low_coverage": LOW_COVERAGE,
        "skipped": _describe_skipped(board),
        "measured": measured,
        "baselines": _choose_baselines(measured, view.baseline),
        "mixed": len({row.origin for row in board.rows}) > 1,
        "hidden": len(board.rows) - len(matching.rows),
        "below": len(matching.rows) - len(rows),
    }


def _choose_baselines(measured: Sequence[Standing], chosen: str | None) -> list[Standing]:
    """Return the measured rows that shades can be compared with: the best ones and `chosen`."""
    lower_rows = [row for row in measured[_FIRST:] if row.system == chosen]
    return [*measured[:_FIRST], *lower_rows]


def _describe_skipped(board: Leaderboard) -> str:
    skipped = max((row.skipped for row in board.rows), default=0)
    return describe_skipped(skipped) if skipped else ""


def _shade_of(board: Leaderboard, task: str, baseline: str | None) -> Callable[[float | None], str]:
    """Return a function from a score on a task to the CSS class that shades its cell."""
    values = [row.values[task] for row in board.rows if task in row.values]
    low, high = min(values, default=0.0), max(values, default=1.0)
    rows = [row for row in board.rows if row.system == baseline and row.origin == "measured"]
    reference = rows[0].values.get(task) if rows else None

    def shade(value: float | None) -> str:
        if value is None:
            return "h-1"
        if reference is not None:
            steps = min(4, round(abs(value - reference) / _SHADE_STEP + 0.5))
            if abs(value - reference) < _SHADE_STEP / 5:
                return "h0"
            return f"{'better' if value > reference else 'worse'}{steps}"
        return f"h{min(8, int(9 * (value - low) / (high - low))) if high > low else 4}"

    return shade


def headline(board: Leaderboard) -> str:
    """Return the headline: the best system, how certain that is, and the number of systems."""
    ranked = [row for row in board.rows if row.mean is not None]
    if not ranked:
        return _describe_incomplete(board)
    best = ranked[0]
    counts = {word: sum(row.origin == word for row in ranked) for word in ORIGINS}
    of = join_words(f"{n} {word}" for word, n in counts.items() if n)
    title = {"demo": "the Demo suite", LOCAL: "your data"}.get(board.suite.name, board.suite.title)
    first = f"leads the {of} systems" if len(ranked) > 1 else f"is the only {of[2:]} system"
    text = f"{best.name} {first} on {title}, with {with_interval(best)}"
    if board.suite.name == LOCAL:
        text += f" over {plural(best.aggregates.queries or 0, 'query', 'queries')}"
    return f"{text}. {_level_with(best, ranked)}".strip()


def _describe_incomplete(board: Leaderboard) -> str:
    """Describe the coverage of a board on which no system has all tasks; empty without rows."""
    if not board.rows:
        return ""
    most = max(len(row.values) for row in board.rows)
    systems = plural(len(board.rows), "system is", "systems are")
    return (
        f"{systems} measured on up to {most} of {plural(len(board.tasks), 'task')}; a mean and "
        "a rank need all of them."
    )


def with_interval(row: Standing) -> str:
    """Return the mean of a row with its 95 % interval, as text."""
    sure = row.interval
    doubt = f" (95 % interval {points(sure.low)} to {points(sure.high)})" if sure else ""
    return f"{points(row.mean)}{doubt}"


def _level_with(best: Standing, ranked: Sequence[Standing]) -> str:
    """Describe which systems do not differ significantly from the best one."""
    lettered = [row for row in ranked if row.letters]
    if best.letters and len(lettered) > 1:
        rivals = [row for row in lettered if row is not best]
        equals = [row for row in rivals if set(row.letters) & set(best.letters)]
        correction = f", corrected over all {best.tests} pairs" if best.tests > 1 else ""
        if not equals:
            p = max(best.corrected_p.get(row.system, 1.0) for row in rivals)
            most = "" if len(rivals) == 1 else "at most "
            return _describe_winner(lettered, f"({most}{format_p_equation(p)}{correction})")
        names = join_words(row.name for row in equals)
        if len(equals) > _NAMED:
            names = f"{len(equals)} of {len(lettered) - 1} measured systems"
        p = min(best.corrected_p.get(row.system, 1.0) for row in equals)
        least = "" if len(equals) == 1 else "at least "
        certainty = f"({least}{format_p_equation(p)}{correction})"
        return f"It does not differ significantly from {names} {certainty}."
    first = next((row for row in ranked if row.origin == "measured"), None)
    if best.origin == "measured" or first is None:
        return ""
    behind = (best.mean or 0.0) - (first.mean or 0.0)
    measured = f"The best measured here is {first.name}, {points(first.mean)}"
    return f"{measured}: {points(behind)} points behind."


def _describe_winner(tested: Sequence[Standing], certainty: str) -> str:
    """Describe the first row as the best one, with caution where few documents are judged."""
    unjudged = [row for row in tested if row.judged is not None and row.judged < LOW_COVERAGE]
    if not unjudged:
        return f"It is significantly better than every other measured system {certainty}."
    names = join_words(row.name for row in unjudged)
    if len(unjudged) > _NAMED:
        names = f"{len(unjudged)} of {len(tested)} measured systems"
    return (
        f"It scores higher than every other measured system on the judged documents {certainty}. "
        f"Less than {format_percent(LOW_COVERAGE)} of the first 10 documents of {names} are "
        "judged, so unjudged documents may decide."
    )


def shown_board(board: Leaderboard, view: View) -> Leaderboard:
    """Filter and sort the rows of a board by a view; rows without a value come last."""
    words = (view.search or "").lower().split()
    rows = [
        row
        for row in board.rows
        if view.origin in (None, row.origin)
        and (view.source is None or view.source in {source.id for source in row.sources})
        and all(word in f"{row.name} {row.system}".lower() for word in words)
    ]
    down = view.order == "down"

    def place(row: Standing) -> tuple[bool, float]:
        value = {"mean": row.mean, "gain": row.gain, **row.values}.get(view.sort)
        return value is None, -(value or 0) if down else value or 0

    if view.sort == "system":
        rows.sort(key=lambda row: row.name.lower(), reverse=down)
    else:
        rows.sort(key=place)
    return replace(board, rows=tuple(rows))


def _brackets(rows: Sequence[Standing]) -> list[dict[int, Bracket]]:
    """Return for each letter the line beside the rows that share it, as pieces by row index."""
    brackets: list[dict[int, Bracket]] = []
    for letter in sorted({letter for row in rows for letter in row.letters}):
        indices = [index for index, row in enumerate(rows) if letter in row.letters]
        if len(indices) > 1:
            first, last = indices[0], indices[-1]
            x = _LETTER * len(brackets) + _LETTER // 2
            joined = range(first, last + 1)
            brackets.append({at: (x, at > first, at < last, at in indices) for at in joined})
    return brackets
