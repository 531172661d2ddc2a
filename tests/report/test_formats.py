"""One value in five formats: what each promises."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.text import Text

from r2med.report.console import visible
from r2med.report.formats import Format, Page, latex
from r2med.report.table import Column, Grid, SystemName, score_cell
from tests.cli.running import run

LINES = st.text(st.characters(blacklist_categories=("Cc", "Cs", "Zl", "Zp"))).map(str.strip)


def page_of(*rows: list[object], best: bool = False) -> Page:
    page = Page()
    columns = [Column("name", right=False), Column("value", best=best)]
    page.print(Grid(columns, rows))  # type: ignore[arg-type]
    return page


@given(st.text())
def test_any_text_is_latex_that_compiles(text: str) -> None:
    """Every special character is escaped, and no character is one that pdflatex lacks."""
    left = re.sub(r"\\(text[a-z]+|ldots)\{\}|\\[&%$#_{}]|\$\^?\\[A-Za-z]+\$|\$-\$", "", latex(text))

    assert not set(left) & set("\\%$#_^~&")
    assert left.count("{") == left.count("}") == len(re.findall(r"\{[\[\]]\}", left))
    assert all(character < "\u0100" for character in left)


def test_letters_of_other_scripts_are_written_by_name_or_without_marks() -> None:
    assert latex("β-blocker, ≥ 5 µg, š") == "beta-blocker, $\\geq$ 5 $\\mu$g, s"


@given(LINES, LINES)
def test_markdown_cells_read_back_as_the_texts_they_were(name: str, value: str) -> None:
    """By an independent reader of Markdown, whatever the texts hold."""
    page = page_of([name, value])

    cells = _cells(MarkdownIt("js-default").parse(page.to_markdown()))

    shown = [" ".join(visible(text).split()) for text in (name, value)]
    assert [" ".join(cell.split()) for cell in cells] == ["name", "value", *shown]


def _cells(tokens: list[Token]) -> list[str]:
    """The texts of inline elements, without their markup."""
    return [
        "".join(child.content for child in token.children or ())
        for token in tokens
        if token.type == "inline"
    ]


def test_the_best_is_bold_and_a_star_is_a_superscript() -> None:
    page = page_of(
        ["a", score_cell(0.5)],
        ["b", score_cell(0.75)],
        ["ceiling", score_cell(0.9, style="dim")],
        ["c", Text("-1.25*")],
        best=True,
    )

    written = page.to_latex()

    assert "b & \\textbf{75.00} \\\\" in written
    assert "a & 50.00 \\\\" in written and "ceiling & 90.00 \\\\" in written
    assert "c & $-$1.25$^{*}$ \\\\" in written
    assert "| b | **75.00** |" in page.to_markdown()


def test_names_of_systems_are_code_in_markdown_and_escaped_in_latex() -> None:
    page = page_of([SystemName("hyde:gpt4[n=4] | bm25"), score_cell(0.5)])

    assert "| `hyde:gpt4[n=4] \\| bm25` | 50.00 |" in page.to_markdown()
    assert "hyde:gpt4{[}n=4{]} \\textbar{} bm25 & 50.00" in page.to_latex()


def test_a_caption_has_all_that_stands_above_the_table() -> None:
    page = Page()
    page.print("A = bm25\nB = wordllama", style="bold")
    page.print("on Demo suite")
    page.print("One row per task")
    page.print(Grid([Column("system", right=False)], [["a"]]))

    written = page.to_latex()

    assert "\\caption{A = bm25; B = wordllama; on Demo suite; One row per task.}" in written


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """What each command prints in each format."""
    folder = tmp_path_factory.mktemp("formats")
    where = ("--results", str(folder))
    tasks = ("--task", "demo/biology,demo/medqa-diag")
    commands: dict[str, tuple[str, ...]] = {
        "eval": ("eval", "bm25", "bm25-lucene", *tasks, *where),
        "compare": ("compare", "bm25", "bm25-lucene", *tasks, *where),
        "compare --queries": ("compare", "bm25", "bm25-lucene", *tasks, *where, "--queries"),
        "leaderboard": ("leaderboard", "--suite", "demo", *where),
        "reproduce": ("reproduce", "bm25", "--task", "Biology", *where),
        "diagnose": ("diagnose", "bm25", "--task", "demo/biology", *where),
        "profile": ("tasks", "profile", "demo/biology", "demo/medqa-diag", "--dense", "none"),
        "profile of no data": ("tasks", "profile", "NanoBiology"),
    }
    return {
        (name, form): run(*words, "--format", form).out
        for name, words in commands.items()
        for form in get_args(Format)
    }


def test_every_command_speaks_every_format(outputs: dict[tuple[str, str], str]) -> None:
    for (name, form), text in outputs.items():
        assert text.strip(), (name, form)
        if form == "json":
            json.loads(text)
        elif form == "csv":
            rows = list(csv.reader(io.StringIO(text)))
            assert len({len(row) for row in rows}) == 1, name
        elif form == "latex":
            for table in re.findall(r"\\begin\{table\}.*?\\end\{table\}", text, re.S):
                _assert_whole(table)
        elif form == "markdown":
            assert any(token.type == "table_open" for token in _tokens(text)), name


def _tokens(text: str) -> list[Token]:
    return MarkdownIt("js-default").parse(text)


def _assert_whole(table: str) -> None:
    """As many cells in each row as there are columns."""
    sides = re.search(r"\\begin\{tabular\}\{([lr]+)\}", table)
    assert sides is not None
    for row in re.findall(r"^(.*) \\\\$", table, re.M):
        if not row.startswith("\\multicolumn"):
            assert len(re.findall(r"(?<!\\)&", row)) == len(sides[1]) - 1, row


def test_what_is_read_is_times_100_and_data_is_0_to_1(
    outputs: dict[tuple[str, str], str],
) -> None:
    (first, *_) = json.loads(outputs["eval", "json"])
    score = first["metrics"]["ndcg@10"]
    (row, *_) = csv.DictReader(io.StringIO(outputs["eval", "csv"]))

    assert 0 < score < 1 and float(row["ndcg@10"]) == score
    for form in ("table", "markdown", "latex"):
        assert f"{100 * score:.2f}" in outputs["eval", form]


def test_a_page_says_nothing_of_the_run_that_printed_it(
    outputs: dict[tuple[str, str], str],
) -> None:
    """Every later run finds the results stored: the terminal says so, a page does not."""
    rerun = {form: outputs["eval", form] for form in ("markdown", "latex")}

    assert all("--force" not in text and "not run now" not in text for text in rerun.values())


def test_short_names_that_fit_a_page_of_latex_are_explained(tmp_path: Path) -> None:
    common = ("--results", str(tmp_path))
    run("eval", "bm25", "bm25-lucene", "--task", "demo", *common)
    for words in (("eval", "bm25", "bm25-lucene", "--task", "demo"), ("leaderboard",)):
        written = run(*words, *common, "--format", "latex").out

        head = next(line for line in written.splitlines() if "mean &" in line)
        assert "Biol &" in head and "Diag" in head and "Biology" not in head
        assert "Biol: Biology, Binf: Bioinformatics" in written


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs pdflatex")
def test_tables_of_eight_tasks_fit_a_portrait_page_of_latex(tmp_path: Path) -> None:
    common = ("--task", "demo", "--results", str(tmp_path / "results"), "--format", "latex")
    several = run("eval", "bm25", "bm25-lucene", *common).out
    one = run("eval", "bm25", *common).out
    compared = run("compare", "bm25", "bm25-lucene", *common).out
    published = run("leaderboard", "--top", "9", *common[2:]).out
    head = "\\documentclass[a4paper]{article}\\usepackage{booktabs,graphicx}\\begin{document}"
    pages = "\n".join([head, several, one, compared, published, "\\end{document}"])
    (tmp_path / "page.tex").write_text(pages)

    command = ["pdflatex", "-interaction=nonstopmode", "page.tex"]
    log = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "Overfull" not in log


def test_only_the_best_of_a_column_is_bold(outputs: dict[tuple[str, str], str]) -> None:
    """A comparison has no best: its stars say what is significant."""
    assert "textbf" not in outputs["compare", "latex"] and "^{*}" in outputs["compare", "latex"]


@pytest.mark.parametrize("tasks", ["demo/pmc-treatment", "demo/biology,demo/pmc-treatment"])
def test_how_much_was_judged_has_neither_best_nor_stars(tmp_path: Path, tasks: str) -> None:
    systems = ("bm25", "bm25-lucene", "bm25[k1=0,b=0]")
    common = ("--task", tasks, "--results", str(tmp_path), "--format", "latex")

    quality = run("eval", *systems, "--metrics", "ndcg@10", *common).out
    judged = run("eval", *systems, "--metrics", "judged@10", *common).out

    assert "textbf" in quality and "^{*}" in quality
    assert "judged@10" in judged and "textbf" not in judged and "^{*}" not in judged


def test_json_and_another_format_exclude_each_other() -> None:
    for words in (("eval", "bm25"), ("compare", "a", "b"), ("diagnose", "bm25", "-t", "demo")):
        refused = run(*words, "--json", "--format", "csv")

        assert (refused.code, refused.out) == (2, "")
        assert "--json and --format csv: choose one" in refused.err
