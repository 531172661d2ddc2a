"""Options without effect are refused, before anything is read, asked or written."""

from __future__ import annotations

import json

import pytest

from tests.cli.running import run


@pytest.mark.parametrize(
    ("command", "options", "mode"),
    [
        ("eval bm25 --json", "--by family", "on JSON"),
        ("eval bm25", "--max-cost 5", "on systems that ask no model"),
        ("eval wordllama", "--llm-url http://127.0.0.1:9/v1", "on systems that ask no model"),
        ("eval bm25+bm25-nano", "--device cuda:0", "on systems without a model"),
        ("compare a b", "--limit 3", "without --queries"),
        ("compare a b --queries", "--resamples 200", "with --queries"),
        ("compare a b --queries --json", "--limit 3", "on JSON, which has every query"),
        ("compare a b --protocols", "--metric mrr", "with --protocols"),
        ("diagnose bm25 -t demo", "--run", "without --query"),
        ("diagnose bm25 -t demo --json", "--limit 5", "on JSON"),
        ("diagnose bm25 -t demo/biology --query 1", "--out x.parquet", "with --query"),
        ("diagnose bm25 -t demo/biology --query 1", "--fresh", "without --run"),
        ("generate hyde --write-prompts here", "--llm gpt4", "with --write-prompts"),
        ("generate hyde --llm gpt4", "--engine processes", "on hyde: it searches nothing"),
        ("diagnose bm25 -t demo/biology --query 1", "--engine ray", "without --run"),
        ("tasks list --json", "--by family", "on JSON"),
        ("tasks fetch --from x.zip", "--generations", "with --from"),
        ("nano build demo/biology --out o", "--seed 7", "with --fill source"),
        ("audit train.jsonl --self demo", "--against corpus", "with --self"),
        ("audit train.jsonl --exclusions list.jsonl", "--ngram 9", "with --exclusions"),
        ("audit train.jsonl --task demo", "--threshold 0.5", "without --neighbours"),
        ("plot overlap bm25 -t demo --out x.svg", "--metric mrr", "no effect on this figure"),
    ],
)
def test_an_option_without_effect_is_refused_by_name(command: str, options: str, mode: str) -> None:
    if command.startswith("plot"):
        pytest.importorskip("vl_convert")

    refused = run(*command.split(), *options.split())

    assert (refused.code, refused.out) == (2, "")
    assert options.split()[0] in refused.err
    assert mode in refused.err and "no effect" in refused.err


def test_an_argument_without_effect_is_refused_by_the_name_that_help_gives_it() -> None:
    refused = run("audit", "train.jsonl", "--self", "demo")

    assert (refused.code, refused.out) == (2, "")
    assert "TRAIN... has no effect with --self" in refused.err


@pytest.mark.extra("light")
def test_an_option_that_one_of_several_systems_reads_is_taken() -> None:
    done = run("eval", "bm25", "wordllama", "-t", "demo/biology", "--device", "cpu", "--json")

    assert [row["system"] for row in json.loads(done.out)] == ["bm25", "wordllama"]
