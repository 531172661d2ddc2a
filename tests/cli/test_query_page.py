"""diagnose --query: one query's whole page, from stored results or run anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import r2med
from tests.cli.running import run
from tests.llm_server import LLMServer, running_llm_server, says
from tests.tasks.writing import Written, write_r2med

TASK = "demo/biology"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    pytest.importorskip("aiohttp")
    with running_llm_server() as running:
        monkeypatch.setenv("R2MED_LLM_URL", running.url)
        running.reply = lambda body: "A passage about sympathetic vasoconstriction."
        yield running


def given_system(text: str = "torpor lowers the set point in the cold") -> str:
    """A system whose generations were made elsewhere."""
    ids = r2med.load_task(TASK).queries.ids.to_pylist()
    rows = [{"id": query_id, "hy_doc": text} for query_id in ids]
    Path("given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return "hyde:qwen-7b[generations=given.jsonl] | bm25"


def page(system: str, *options: str, task: str = TASK) -> str:
    shown = run("diagnose", system, "--task", task, "--query", "1", *options)
    assert shown.code == 0, shown.err
    return shown.out


def test_the_page_tells_the_query_the_generation_and_what_moved_and_why() -> None:
    shown = page(given_system(), "--run")

    assert "it flew off an hour" in shown
    assert "torpor lowers the set point in the cold" in shown
    assert "▲ from" in shown
    assert "gained  " in shown and "torpor" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_shares_of_terms_tell_the_query_from_the_text_that_was_searched_with() -> None:
    system = given_system()
    run("eval", system, "--task", TASK)

    for options in ((), ("--run",)):
        shown = " ".join(page(system, *options).split())
        told = json.loads(page(system, *options, "--json"))

        [first, *_] = told["top"]
        searched = told["searched"][first["document_id"]]
        assert searched > first["coverage"]
        assert (
            f"{100 * first['coverage']:.0f} % of the query's terms, "
            f"{100 * searched:.0f} % of the expanded query's" in shown
        )


def test_a_query_with_all_positives_found_tells_how_many_documents_are_unjudged() -> None:
    task = "demo/medqa-diag"
    run("eval", "bm25", "--task", task)
    told = json.loads(run("diagnose", "bm25", "--task", task, "--json").out)
    queries = told["tasks"][0]["queries"]
    query = next(query for query in queries if query["outcome"] == "all found")

    shown = run("diagnose", "bm25", "--task", task, "--query", query["query_id"])

    assert query["holes"]
    assert f"all found ({query['holes']} of the top 10 are unjudged)" in shown.out


def test_an_expander_before_a_fusion_is_run_too() -> None:
    system = given_system().replace("| bm25", "| (bm25 + bm25-lucene)")

    told = json.loads(page(system, "--run", "--json"))

    assert all(each["first_stage_rank"] for each in told["positives"])
    assert told["expansion"]["samples"][0]["answer"].startswith("torpor")
    assert told["changes"] == {}


def test_samples_that_are_fused_are_run_as_in_an_evaluation(server: LLMServer) -> None:
    system = "hyde:qwen-7b[n=2,combine=fuse] | bm25"
    passages = iter(["sympathetic vasoconstriction in the cold", "torpor of a small bird"] * 99)
    server.reply = lambda body: next(passages)
    run("eval", system, "--task", TASK)

    stored, anew = (json.loads(page(system, *given, "--json")) for given in ((), ("--run",)))

    ranks = [
        {each["document_id"]: each["rank"] for each in told["positives"]} for told in (stored, anew)
    ]
    assert ranks[0] == ranks[1] and stored["top"] == anew["top"]
    assert anew["changes"] == {}


def test_a_stored_label_is_run_as_its_system() -> None:
    run("eval", f"think={given_system()}", "--task", TASK)

    assert "torpor lowers the set point in the cold" in page("think", "--run")


def test_a_stored_result_is_explained_with_its_generations_and_no_model(server: LLMServer) -> None:
    run("eval", "hyde:qwen-7b | bm25", "bm25", "--task", TASK)
    asked = len(server.seen)

    shown = page("hyde:qwen-7b | bm25")

    assert "A passage about sympathetic vasoconstriction." in shown
    assert "in the first stage alone" in shown
    assert "gained " in shown
    assert len(server.seen) == asked


def test_generations_that_are_gone_are_said_to_be(server: LLMServer) -> None:
    run("eval", "hyde:qwen-7b | bm25", "--task", TASK)
    run("cache", "clear", "expansions", "--yes")

    shown = " ".join(page("hyde:qwen-7b | bm25").split())

    assert "the texts are not stored any more; --run calls the model" in shown


def test_a_system_without_results_is_run_only_when_asked(server: LLMServer) -> None:
    failed = run("diagnose", "hyde:qwen-7b | bm25", "--task", TASK, "--query", "1")

    assert failed.code == 1
    assert "Or run this one query with --run." in failed.err
    assert not server.seen
    assert "sympathetic" in page("hyde:qwen-7b | bm25", "--run")
    assert len(server.seen) == 1


def test_an_agent_s_trace_is_given_step_by_step(server: LLMServer) -> None:
    server.script += [says("Nerves? <search>digital nerve"), says("<answer>vasoconstriction")]

    shown = page("search-r1:qwen-7b | bm25", "--run")

    assert "thinks" in shown and "Nerves?" in shown
    assert "searches" in shown and "digital nerve" in shown
    assert "reads" in shown
    assert "1 search" in shown and "stopped because it answered" in shown
    assert len(server.seen) == 2


def test_text_of_a_model_cannot_steer_the_terminal() -> None:
    shown = page(given_system("\x1b[31mred\x07 [bold]not markup[/bold] \u202eturned"), "--run")

    assert not set(shown) & set("\x1b\x07\u202e")
    assert "[bold]not markup[/bold]" in shown


def test_the_page_as_json_holds_both_ranks_and_the_terms() -> None:
    told = json.loads(page(given_system(), "--run", "--json"))

    positive = told["positives"][0]
    assert positive["rank"] and positive["first_stage_rank"]
    changes = told["changes"][positive["document_id"]]
    assert {"term", "before", "after"} == changes[0].keys()
    assert told["expansion"]["samples"][0]["answer"].startswith("torpor")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["hyde:qwen-7b | bm25", "--query", "99", "--run"], "--query '99': no such query"),
        (["bm25", "--query", "1", "--run"], "--run needs an expander and a retriever"),
        (["bm25", "--run"], "without --query"),
    ],
)
def test_wrong_usage_is_said_in_words(arguments: list[str], complaint: str) -> None:
    failed = run("diagnose", *arguments, "--task", TASK)

    assert failed.code == 2
    assert complaint in failed.err


def test_a_document_has_one_rank_stored_and_run() -> None:
    documents = tuple((f"d{number:02}", "one text for all") for number in range(30))
    folder = str(
        write_r2med(Path("tied"), Written(documents, (("1", "text"),), (("1", "d10", 1),)))
    )
    Path("same.jsonl").write_text(json.dumps({"id": "1", "hy_doc": "text"}) + "\n")
    run("eval", "bm25", "--task", folder)

    anew = json.loads(
        page("hyde:gpt4[generations=same.jsonl] | bm25", "--run", "--json", task=folder)
    )
    stored = json.loads(page("bm25", "--json", task=folder))

    assert anew["positives"][0]["first_stage_rank"] == stored["positives"][0]["rank"] == 20


def test_a_fusion_s_page_shows_each_member_s_rank_the_generation_and_the_prompt(
    server: LLMServer,
) -> None:
    fusion = "(hyde:qwen-7b | bm25) + bm25-lucene"
    run("eval", fusion, "--task", TASK)
    sent = [seen.body["messages"][0]["content"] for seen in server.seen]

    shown = " ".join(page(fusion).split())
    told = json.loads(page(fusion, "--json"))

    assert "members: hyde:qwen-7b | bm25 " in shown and "; bm25-lucene " in shown
    assert "A passage about sympathetic vasoconstriction." in shown
    assert "prompt as sent" in shown
    assert told["expansion"]["prompt"] in sent
    assert " ".join(told["expansion"]["prompt"].split()) in shown
    ranks = told["members"]["bm25-lucene"]
    assert set(ranks) == {each["document_id"] for each in told["positives"]}
    assert len(server.seen) == len(sent)


def test_no_prompt_is_shown_for_generations_made_elsewhere() -> None:
    run("eval", given_system(), "--task", TASK)

    assert "prompt as sent" not in page(given_system())
