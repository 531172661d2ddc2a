"""Tables at 80, 100 and 120 columns: they fit, no word is cut, and a long name costs one row."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

import r2med
from r2med.evaluation.explain import explain
from r2med.report.console import console
from r2med.report.drawing import draw
from r2med.report.table import SHORT_NAMES, Column, Grid, SystemName, score_cell
from r2med.results.evaluation import Evaluation
from tests.cli.running import run

LONG = "bm25-nano[b=0.75,k1=1.2,idf=lucene] + bm25-lucene"
WIDTHS = (80, 100, 120)


def drawn(grid: Grid, width: int) -> list[str]:
    out = io.StringIO()
    console(out, width).print(grid)
    return out.getvalue().splitlines()


def scores(name: str, count: int = 8) -> list[SystemName | Text | None]:
    return [SystemName(name), *(score_cell(0.5) for _ in range(count))]


def test_one_long_name_costs_only_its_own_row() -> None:
    columns = [Column("system", right=False), *(Column(f"T{n}") for n in range(8))]
    grid = Grid(columns, [scores("bm25"), scores(LONG), scores("dense")])

    lines = drawn(grid, 80)

    assert grid.width <= 80
    starts = [line.split()[0] for line in lines[2:]]
    assert starts[0] == "bm25" and starts[-1] == "dense" and 3 < len(starts) < 6
    assert all(len(line) <= 80 for line in lines)


def test_a_title_is_not_wrapped_by_a_narrow_table() -> None:
    title = "demo/biology · demo suite, edition 3, not comparable with published figures"

    assert drawn(Grid([Column("n")], [["1"]], title=title), 80)[0] == title


def test_columns_without_room_stand_in_another_table() -> None:
    titles = [f"my-task-number-{n}" for n in range(9)]
    grid = Grid([Column("system", right=False), *map(Column, titles)], [scores("bm25", 9)])

    lines = drawn(grid, 80)

    assert sum(line.startswith("bm25") for line in lines) == 3
    assert all(title in " ".join(lines) for title in titles)
    assert max(map(len, lines)) <= 80


def test_a_long_heading_is_broken_rather_than_given_a_table_of_its_own() -> None:
    names = [f"discharge-letters-and-questions-of-202{n}" for n in range(5)]
    columns = [Column("system", right=False), *(Column(SystemName(name)) for name in names)]
    grid = Grid(columns, [scores("bm25", 5)])

    lines = drawn(grid, 80)

    assert sum(line.startswith("bm25") for line in lines) == 1
    assert max(map(len, lines)) <= 80


def _below_best(evaluation: Evaluation) -> set[str]:
    verdicts = evaluation.verdicts(["demo/medqa-diag"], "ndcg@10")
    return {system for system, verdict in verdicts.items() if verdict.is_significant}


def test_a_system_on_few_of_the_tasks_takes_no_star_from_the_others(tmp_path: Path) -> None:
    tasks = ["demo/biology", "demo/medqa-diag"]
    results = r2med.evaluate_all(["bm25", "wordllama"], tasks, results=tmp_path)
    whole = _below_best(Evaluation(results))
    r2med.evaluate_all(["bm25-lucene"], ["demo/biology"], results=tmp_path)

    stored = Evaluation(r2med.list_results(tmp_path).results)

    assert _below_best(stored) == whole == {"wordllama"}


WORDS = st.text("abc-", min_size=1, max_size=20)
NAMES = st.lists(WORDS, min_size=1, max_size=8).map(" + ".join)


@given(st.lists(st.tuples(NAMES, st.floats(0, 1)), min_size=1, max_size=5), st.sampled_from(WIDTHS))
def test_no_word_of_a_name_is_ever_cut(rows: list[tuple[str, float]], width: int) -> None:
    cells = [[SystemName(name), score_cell(value)] for name, value in rows]

    lines = drawn(Grid([Column("system", right=False), Column("mean")], cells), width)

    assert all(len(line) <= width for line in lines)
    printed = " ".join(lines).split()
    assert all(word in printed for name, _ in rows for word in name.split())


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, str]]:
    """Every table of the commands at some width."""
    root = tmp_path_factory.mktemp("tables")
    results = r2med.evaluate_all(["bm25", "bm25-lucene", LONG], "demo", results=root)
    first = [result for result in results if result.system == "bm25"]
    values = {
        "eval 1": Evaluation(first),
        "eval 3": Evaluation(results),
        "eval 3 on one task": Evaluation(results[:3]),
        "compare 2": r2med.compare("bm25", LONG, results=root),
        "compare 3": r2med.compare("bm25", LONG, "bm25-lucene", results=root),
        "leaderboard": r2med.leaderboard("demo", results=root),
        "published": r2med.leaderboard(results=root),
        "diagnose": r2med.diagnose("bm25", "demo/biology", results=root),
        "page": explain("bm25", r2med.load_task("demo/biology"), "1", results=results),
    }
    commands = (
        ("tasks", "list"),
        ("tasks", "list", "--by", "family"),
        ("tasks", "verify", "demo/biology"),
        ("tasks", "profile", "nano"),
        ("results", "--results", str(root)),
        ("estimate", "hyde:gpt4 | bm25", "--task", "demo"),
        ("cache",),
    )

    def at(width: int) -> dict[str, str]:
        texts: dict[str, str] = {}
        for name, value in values.items():
            out = io.StringIO()
            draw(value, console(out, width))
            texts[name] = out.getvalue()
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            for words in commands:
                texts[" ".join(words)] = run(*words).out
        return texts

    return at


def test_every_table_fits_and_cuts_no_word(shown: Callable[[int], dict[str, str]]) -> None:
    """A word of a narrow table is a word of the widest, so none was broken to fit."""
    wide = {name: _words(text) for name, text in shown(400).items()}

    for width in WIDTHS:
        for name, text in shown(width).items():
            assert max(map(len, text.splitlines())) <= width, (name, width)
            assert _words(text) - wide[name] - SHORT_FORMS == set(), (name, width)


#: Words of layouts that only narrow terminals have.
SHORT_FORMS = {
    *("Biol", "Binf", "MedS", "Exam", "Diag", "Trea", "PMC", "IIYi", "Q", "A", "evidence", "case"),
    *("task", "means", "by", "family", "wider", "output", "shows", "the", "tasks"),
    *SHORT_NAMES,  # what they stand for
}


def _words(text: str) -> set[str]:
    sizes = r"\d[\d.,]* [kMG]?B\b"  # caches grow from one table to the next
    text = re.sub(sizes, "", text.replace(str(Path.cwd()), ""))
    return set(re.findall(r"[A-Za-z][\w-]*", text))


def test_numbers_with_and_without_a_mark_stand_below_each_other() -> None:
    lines = drawn(Grid([Column("n")], [["1.50*"], ["12.00 "]]), 80)

    assert lines[2:] == [" 1.50*", "12.00 "]
