"""All methods against a scripted server: what is asked, what is kept, what falls back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.errors import LimitError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.expand import generations
from r2med.expand.answers import Expansion
from r2med.expand.expander import Expander, Finder, LiveGenerations, Method
from r2med.expand.generations import (
    StoredGenerations,
    generations_path,
    read_generations,
    read_traces,
)
from r2med.remote.budget import Limits
from r2med.results.cost import cost_of
from r2med.results.evaluation import Evaluation
from r2med.results.record import Result
from r2med.results.store import read_result
from r2med.retrieve.bm25 import Bm25Retriever
from r2med.settings import parse_settings
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.tasks.reading.lines import lines
from r2med.tasks.task import Task
from tests.expand.conftest import QUERIES, write
from tests.llm_server import (
    EMPTY,
    MALFORMED_TAGS,
    REFUSING,
    UNCLOSED_THOUGHT,
    LLMServer,
    cut,
    fails,
    garbled,
    running_llm_server,
    says,
)

QUICK = Limits(concurrency=1, timeout=10, backoff=0.001)


def finder(task: Task, text: str) -> Finder:
    retriever = parse_settings(Bm25Retriever, entries()[text].fields)
    return Finder(task, retriever, retriever.identity)


def expander(method: str, resources: Resources, **options: str) -> Expander:
    entry = entries()[method].override({"llm": "qwen-7b", **options})
    return Expander(parse_settings(Method, entry.fields), resources, finder)


def bound(
    task: Task, at: LLMServer, method: str, **options: str
) -> StoredGenerations | LiveGenerations:
    resources = Resources(RunOptions(llm_url=at.url, limits=QUICK))
    return expander(method, resources, **options).bind(task)


def expand(task: Task, server: LLMServer, method: str = "hyde", **options: str) -> Expansion:
    return bound(task, server, method, **options).expand()


def evaluate(task: Task, server: LLMServer, spec: str, **more: Any) -> Result:
    system = System.from_spec(spec, Resources(RunOptions(llm_url=server.url, limits=QUICK)))
    return r2med.evaluate(system, task, **more)


def test_hyde_asks_once_a_query_and_searches_with_what_was_written(
    task: Task, server: LLMServer
) -> None:
    server.script += [says("urate"), says("ferritin"), says("ascorbic acid")]

    result = evaluate(task, server, "hyde:qwen-7b | bm25")

    assert len(server.seen) == 3
    assert result.metrics["ndcg@10"] == 1.0
    facts = result.record.facts["hyde:qwen-7b"]
    assert facts["first_lexical"] == "urate"
    assert facts["generations_from"] == "live"
    assert facts["calls"] == 3


def test_what_was_answered_is_never_asked_again(task: Task, server: LLMServer) -> None:
    first = expand(task, server)

    again = expand(task, server)

    assert len(server.seen) == 3
    assert again.variants == first.variants
    assert again.facts()["cached"] == 3


def test_a_warm_cache_shows_what_the_calls_did_cost(task: Task, server: LLMServer) -> None:
    cold = cost_of([evaluate(task, server, "hyde:qwen-7b | bm25")])

    warm = cost_of([evaluate(task, server, "hyde:qwen-7b | bm25", force=True)])

    assert len(server.seen) == 3
    assert cold.query_tokens and warm.query_tokens == cold.query_tokens
    assert warm.query_seconds > 0 and warm.query_cached


def test_an_evaluation_binds_its_expander_once(
    task: Task, server: LLMServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = generations_path(folder, "hyde", "qwen-7b")
    write(target, [{"id": query_id, "hy_doc": "urate"} for query_id in QUERIES])
    opened: list[Path] = []

    def counted(path: Path) -> Iterator[tuple[int, bytes]]:
        opened.append(path)
        return lines(path)

    monkeypatch.setattr(generations, "lines", counted)

    evaluate(task, server, "(hyde:qwen-7b | bm25) + bm25-nano | rrf")

    assert opened == [target]


def test_half_a_character_from_a_server_is_searched_with_and_kept(
    task: Task, server: LLMServer
) -> None:
    server.reply = lambda body: "urate \ud83d"

    result = evaluate(task, server, "hyde:qwen-7b | bm25")

    facts = result.record.facts["hyde:qwen-7b"]
    assert facts["first_lexical"].startswith("urate ")
    assert read_generations(Path(facts["generations_kept"]))["1"].samples[0].raw == "urate ?"


def test_an_empty_answer_in_a_file_is_searched_with_as_in_the_published_runs(
    task: Task, server: LLMServer, folder: Path
) -> None:
    file = generations_path(folder, "hyde", "qwen-7b")
    write(file, [{"id": q, "hy_doc": "" if q == "1" else "gout"} for q in QUERIES])

    heard: list[str] = []
    result = evaluate(task, server, "hyde:qwen-7b | bm25", warn=heard.append)

    facts = result.record.facts["hyde:qwen-7b"]
    assert (facts["first_lexical"], facts["first_dense"]) == ("", [QUERIES["1"], ""])
    assert (facts["empty"], facts["fallen_back"]) == (1, 0)
    assert any("1 generations in" in message and "are empty" in message for message in heard)
    assert [score for _, score in result.run.ranking("1")] == [0, 0, 0]


def test_text_that_only_sounds_like_a_refusal_is_searched_with(
    task: Task, server: LLMServer
) -> None:
    text = "I cannot exclude gout: urate crystals in the joint decide."
    server.reply = lambda body: text

    expansion = expand(task, server)

    assert expansion.fallen_back == 0
    assert {form.lexical for form in expansion.variants[0]} == {text}


def test_a_stored_result_needs_no_server(task: Task, server: LLMServer, tmp_path: Path) -> None:
    made = evaluate(task, server, "hyde:qwen-7b | bm25", results=tmp_path / "results")
    asked = len(server.seen)

    again = evaluate(task, server, "hyde:qwen-7b | bm25", results=tmp_path / "results")

    assert len(server.seen) == asked
    assert again.folder == made.folder


def test_other_prompts_are_another_system(task: Task, server: LLMServer, tmp_path: Path) -> None:
    (tmp_path / "hyde").mkdir()
    (tmp_path / "hyde" / "question.toml").write_text('user = "In short: {query}"')
    ours = bound(task, server, "hyde")
    resources = Resources(RunOptions(llm_url=server.url, limits=QUICK, prompts=tmp_path))

    theirs = expander("hyde", resources).bind(task)
    theirs.expand()

    assert theirs.identity != ours.identity
    asked = {body["messages"][0]["content"] for body in server.bodies}
    assert asked == {f"In short: {query}" for query in QUERIES.values()}


def test_query2doc_shows_its_examples_and_keeps_the_query(task: Task, server: LLMServer) -> None:
    server.reply = lambda body: "W"

    expansion = expand(task, server, "query2doc")

    query = QUERIES["1"]
    form = expansion.variants[0][0]
    assert form.lexical == f"{query}{query} W"
    assert [part.text for part in form.dense] == [f"{query}[SEP]W"]
    assert "alliinase" in server.bodies[0]["messages"][0]["content"]


def test_lamer_reads_what_a_search_found(task: Task, server: LLMServer) -> None:
    expand(task, server, "lamer", passages="1", words="2")

    third = server.bodies[2]["messages"][0]["content"]
    assert "1. Bleeding gums ..." in third
    assert "mostly wrong" in third


@pytest.mark.parametrize("method", ["search-o1", "search-r1"])
def test_an_agent_s_trace_is_kept_and_its_answer_is_searched_with(
    task: Task, server: LLMServer, method: str
) -> None:
    def reply(body: dict[str, Any]) -> str:
        told = body["messages"]
        if len(told) == 1:
            both = "<search>urate</search>", "<|begin_search_query|> urate <|end_search_query|>"
            return f"Think. {both[method == 'search-o1']}"
        return "<answer>urate crystals</answer>" if method == "search-r1" else "urate crystals"

    server.reply = reply

    expansion = expand(task, server, method)

    assert len(server.seen) == 6
    assert {form.lexical for form in expansion.variants[0]} == {"urate crystals"}
    kept = Path(str(expansion.facts()["generations_kept"]))
    traces = read_traces(kept)
    assert [trace.searches for trace in traces["1"]] == [("urate",)]
    assert traces["1"][0].steps[2].documents == ("gout",)
    assert set(read_generations(kept)) == set(QUERIES)


def test_an_agent_that_was_interrupted_goes_on_where_it_was(task: Task, server: LLMServer) -> None:
    server.reply = lambda body: (
        "<search>urate</search>" if len(body["messages"]) == 1 else "<answer>gout</answer>"
    )
    short = Resources(RunOptions(llm_url=server.url, limits=Limits(tokens=1100, concurrency=1)))

    with pytest.raises(LimitError, match="All answers received so far are stored"):
        expander("search-r1", short, max_tokens="100").bind(task).expand()
    before = len(server.seen)
    expand(task, server, "search-r1", max_tokens="100")

    assert 0 < before < 6
    assert len(server.seen) == 6


def test_malformed_tags_do_not_stop_an_agent(task: Task, server: LLMServer) -> None:
    server.script += [MALFORMED_TAGS] * 9

    expansion = expand(task, server, "search-r1")

    assert len(expansion.queries) == 3
    assert all(query.traces[0].malformed for query in expansion.queries)


def test_trouble_on_the_wire_is_survived(task: Task, server: LLMServer) -> None:
    server.script += [fails(429, retry_after="0"), fails(500), cut(), garbled(), says("urate")]

    expansion = expand(task, server)

    assert [sample.answer for sample in expansion.queries[0].samples] == ["urate"]
    assert expansion.fallen_back == 0


def test_refused_and_empty_generations_fall_back_to_the_query_and_are_told(
    task: Task, server: LLMServer
) -> None:
    server.script += [REFUSING, EMPTY, says("ascorbic acid")]
    heard: list[str] = []

    result = evaluate(task, server, "hyde:qwen-7b | bm25", warn=heard.append)

    facts = result.record.facts["hyde:qwen-7b"]
    assert (facts["refused"], facts["empty"], facts["fallen_back"]) == (1, 1, 2)
    assert facts["first_lexical"] == QUERIES["1"]
    assert any("2 of 3 queries have no usable generation" in message for message in heard)


def test_a_refusal_stays_one_in_a_file(task: Task, server: LLMServer, folder: Path) -> None:
    server.script += [REFUSING, says("ferritin"), says("ascorbic acid", finish="length")]
    live = expand(task, server)
    kept = Path(str(live.facts()["generations_kept"]))

    replayed = expand(task, server, generations=str(kept))

    assert replayed.variants == live.variants
    assert replayed.facts()["truncated"] == 1


def test_an_unclosed_thought_is_used_whole_and_counted_as_cut(
    task: Task, server: LLMServer
) -> None:
    server.script += [UNCLOSED_THOUGHT]

    expansion = expand(task, server, llm="qwq-32b")

    assert expansion.variants[0][0].lexical.startswith("<think> The patient")
    assert expansion.facts()["truncated"] == 1


@pytest.mark.parametrize("method", ["hyde", "query2doc", "lamer"])
def test_of_a_reasoning_model_every_method_uses_the_stripped_answer(
    task: Task, server: LLMServer, method: str
) -> None:
    server.reply = lambda body: "<think>Could be gout.</think>\n\nUrate."

    expansion = expand(task, server, method, llm="qwq-32b")

    form = expansion.variants[0][0]
    assert form.lexical == "Urate."
    assert [part.text for part in form.dense] == [QUERIES["1"], "Urate."]


def test_samples_are_asked_for_one_by_one_and_averaged(task: Task, server: LLMServer) -> None:
    server.script += [says(f"text {place}") for place in range(6)]

    expansion = expand(task, server, n="2")

    assert len(server.seen) == 6
    assert expansion.variants[0][0].lexical == "text 0 text 3"
    assert len({body["seed"] for body in server.bodies}) == 2


def test_fused_samples_are_searched_apart(task: Task, server: LLMServer) -> None:
    right, wrong = ["urate", "ferritin", "ascorbic"], ["ferritin", "urate", "urate"]
    server.script += [says(text) for text in right + wrong]

    result = evaluate(task, server, "hyde:qwen-7b[n=2,combine=fuse] | bm25-lucene")

    ranking = [document for document, _ in result.run.ranking("1")]
    assert set(ranking) == {"gout", "iron"}


def test_the_default_file_is_told_and_asks_no_model(
    task: Task, server: LLMServer, folder: Path
) -> None:
    expansion = expand(task, server)
    kept = Path(str(expansion.facts()["generations_kept"]))
    target = generations_path(folder, "hyde", "qwen-7b")
    target.parent.mkdir(parents=True)
    target.write_bytes(kept.read_bytes())
    heard: list[str] = []
    asked = len(server.seen)

    for _ in range(2):
        result = evaluate(task, server, "hyde:qwen-7b | bm25", warn=heard.append)

    assert len(server.seen) == asked
    assert sum("are read from" in message for message in heard) == 2
    assert result.record.facts["hyde:qwen-7b"]["generations_from"] == str(target)


def test_a_new_file_in_the_folder_never_meets_the_result_of_a_live_run(
    task: Task, server: LLMServer, folder: Path
) -> None:
    live = evaluate(task, server, "hyde:qwen-7b | bm25")
    target = generations_path(folder, "hyde", "qwen-7b")
    target.parent.mkdir(parents=True)
    rows = [f'{{"id": "{query_id}", "hy_doc": "urate"}}\n' for query_id in QUERIES]
    target.write_text("".join(rows))

    from_file = evaluate(task, server, "hyde:qwen-7b | bm25")

    assert from_file.folder != live.folder


def test_rerankers_see_the_original_query(task: Task, server: LLMServer) -> None:
    seen: list[str] = []

    class Reranker:
        identity = "sees"

        def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
            seen.extend(query for query, _ in pairs)
            return [0.0 for _ in pairs]

    resources = Resources(RunOptions(llm_url=server.url, limits=QUICK))
    system = System.from_spec(
        "hyde:qwen-7b | bm25 | mine@2", resources, models={"mine": Reranker()}
    )

    r2med.evaluate(system, task)

    assert set(seen) == set(QUERIES.values())


def test_temperature_and_seed_of_a_method_are_sent_and_change_the_identity(
    task: Task, server: LLMServer
) -> None:
    plain = bound(task, server, "hyde")
    changed = bound(task, server, "hyde", temperature="1.5", seed="7", n="2")
    changed.expand()

    assert {body["temperature"] for body in server.bodies} == {1.5}
    assert {body["seed"] for body in server.bodies} == {7, 8}
    assert changed.identity["llm"] != plain.identity["llm"]


def test_answers_of_any_server_are_reused_on_another_address(task: Task, server: LLMServer) -> None:
    first = bound(task, server, "hyde", server="any")
    first.expand()
    asked = len(server.bodies)

    with running_llm_server() as other:
        again = bound(task, other, "hyde", server="any")
        again.expand()
        elsewhere = bound(task, other, "hyde")

        assert not other.bodies
    assert asked > 0
    assert again.identity == first.identity != elsewhere.identity


def test_samples_are_fused_with_the_constant_of_the_suite(task: Task, server: LLMServer) -> None:
    server.reply = lambda body: "urate"
    spec = "hyde:qwen-7b[n=2,combine=fuse] | bm25"

    own, nano = (
        evaluate(replace(task, suite=suite), server, spec).run.ranking("1")
        for suite in (None, "nano")
    )

    assert own[0][1] == pytest.approx(2 / 61)
    assert nano[0][1] == pytest.approx(2 / 101)  # as `a + b` does on NanoR2MED


def test_scores_of_fused_samples_and_their_variance_are_stored_and_shown(
    task: Task, server: LLMServer
) -> None:
    answers = ["urate", "ferritin", "ascorbic acid", "ferritin", "ferritin", "ferritin"]
    server.script += map(says, answers)

    result = evaluate(task, server, "hyde:qwen-7b[n=2,combine=fuse] | bm25")

    samples = read_result(result.folder).record.samples
    assert samples is not None
    first, second = (sample["ndcg@10"] for sample in samples.metrics)
    assert first == 1.0 > second
    assert samples.variance["ndcg@10"] == pytest.approx((first - second) ** 2 / 2)
    shown = " ".join(str(Evaluation([result])).split())
    assert f"of its 2 samples alone 100.00, {100 * second:.2f} (standard deviation" in shown
    [record] = Evaluation([result]).to_json()
    assert record["samples"]["variance"] == samples.variance


def test_samples_that_are_averaged_have_no_scores_of_their_own(
    task: Task, server: LLMServer
) -> None:
    assert evaluate(task, server, "hyde:qwen-7b[n=2] | bm25").record.samples is None
