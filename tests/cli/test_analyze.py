"""The analyze command prints what is indexed."""

from __future__ import annotations

import json

from tests.cli.running import run


def test_terms_are_printed_in_order() -> None:
    assert run("analyze", "The patient's HbA1c was 7.5%").out == "patient hba1c 7.5\n"


def test_the_analyses_differ_and_json_is_a_list() -> None:
    done = run("analyze", "Sjögren", "--analyzer", "nano", "--json")

    assert json.loads(done.out) == ["sj", "gren"]


def test_an_unknown_analysis_is_refused_with_what_is_known() -> None:
    done = run("analyze", "text", "--analyzer", "lucen")

    assert done.code == 2
    assert "lucene" in done.err
