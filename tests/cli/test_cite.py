"""BibTeX of the tool, of the data and of works with published figures."""

from __future__ import annotations

import re

from r2med.results.published import works
from tests.cli.running import run


def test_the_tool_the_benchmark_and_every_work_are_cited_once() -> None:
    done = run("cite")

    keys = re.findall(r"@misc\{([^,]+),", done.out)
    assert len(keys) == len(set(keys)) == 2 + len(works())
    assert "author = {Lei Li and Xiao Zhou and Zheng Liu}" in done.out
    assert "eprint = {2505.14558}" in done.out
    assert done.out.count("{") == done.out.count("}")


def test_a_system_has_the_works_that_print_it() -> None:
    done = run("cite", "bm25")

    assert "work-r2med" in done.out
    assert len(re.findall("@misc", done.out)) < 2 + len(works())


def test_other_suites_are_cited_beside_the_benchmark_and_not_as_its_paper() -> None:
    for task, title in (("demo", "The demo suite of r2med"), ("nano", "NanoR2MED")):
        entries = run("cite", "bm25", "--task", task).out.split("\n\n")

        with_paper = [entry for entry in entries if "eprint = {2505.14558}" in entry]
        assert len(with_paper) == 1 and "R2MED: A Benchmark" in with_paper[0]
        assert any(title in entry for entry in entries)
