"""Result files of BrowseComp-Plus: both directions, other writers' shapes, malformed files."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.agents.browsecomp import read_results, write_results
from r2med.agents.trace import AgentStep, AgentTrace
from r2med.errors import DataError
from r2med.tasks.load import load_task
from r2med.tasks.task import Task
from tests.agents.conftest import DOCUMENTS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
IDS = st.sampled_from([*DOCUMENTS, "4711", "id, with [signs]", "ünï"])
ID_LISTS = st.lists(IDS, max_size=4, unique=True).map(tuple)
STEPS = st.one_of(
    st.builds(AgentStep, st.just("thought"), TEXTS),
    st.builds(AgentStep, st.just("search"), TEXTS, ID_LISTS, st.sampled_from(["search", "find"])),
    st.builds(AgentStep, st.just("tool"), TEXTS, ID_LISTS, st.just("get_document")),
)
ANSWERS = TEXTS.filter(bool).map(lambda text: AgentStep("answer", text))


@st.composite
def traces(draw: st.DrawFn) -> AgentTrace:
    steps = (*draw(st.lists(STEPS, max_size=5)), *draw(st.lists(ANSWERS, max_size=1)))
    calls = Counter(step.tool for step in steps if step.type in ("search", "tool"))
    listed = {name for step in steps for name in step.documents}
    stated = draw(st.dictionaries(st.sampled_from(["search", "open_page"]), st.integers(1, 9)))
    return AgentTrace(
        draw(TEXTS.filter(bool)),
        steps,
        draw(st.sampled_from(["completed", "incomplete", "failed"])),
        draw(st.integers(0, 3)),
        other_documents=tuple(name for name in draw(ID_LISTS) if name not in listed),
        stated_calls={} if stated == calls else stated,
        cited=draw(ID_LISTS),
        final_list=draw(ID_LISTS),
        confidence=draw(st.none() | st.floats(0, 1)),
        tokens=draw(st.none() | st.integers(0, 10**9)),
    )


@pytest.fixture(scope="module")
def demo() -> Task:
    return load_task("demo/biology")


@settings(max_examples=150)
@given(st.lists(traces(), min_size=1, max_size=3))
def test_what_is_written_is_read_again(demo: Task, written: list[AgentTrace]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_results(written, Path(folder), agent="a", task=demo)
        files = read_results(Path(folder))

    assert (list(files.traces), files.problems) == (written, ())


def result(**fields: Any) -> dict[str, Any]:
    """A file as the clients of BrowseComp-Plus write it."""
    return {
        "metadata": {"model": "m", "output_dir": "runs"},
        "query_id": "1",
        "tool_call_counts": {"search": 1},
        "usage": {"input_tokens": 900, "output_tokens": 70, "total_tokens": 970},
        "status": "completed",
        "retrieved_docids": ["gout-1", "other-1"],
        "result": [
            {
                "type": "reasoning",
                "tool_name": None,
                "arguments": None,
                "output": ["Toe.", "Beer."],
            },
            {
                "type": "tool_call",
                "tool_name": "search",
                "arguments": '{"query": "toe pain"}',
                "output": json.dumps(
                    [
                        {"docid": "gout-1", "score": 3.5, "snippet": "Urate"},
                        {"docid": "other-1", "snippet": "Beer"},
                    ]
                ),
            },
            {
                "type": "output_text",
                "tool_name": None,
                "arguments": None,
                "output": "Explanation: urate [gout-1].\nExact Answer: Gout\nConfidence: 80%",
            },
        ],
        **fields,
    }


def write(folder: Path, name: str, content: Any) -> None:
    folder.mkdir(exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text, encoding="utf-8")


def test_a_file_of_another_agent_becomes_a_trace(tmp_path: Path) -> None:
    write(tmp_path / "runs", "run_1.json", result())
    write(tmp_path / "runs", "run_1_eval.json", {"anything": 1})
    write(tmp_path / "runs", "evaluation_summary.json", {"Accuracy (%)": 10})

    [trace] = read_results(tmp_path / "runs").traces

    assert trace == AgentTrace(
        "1",
        (
            AgentStep("thought", "Toe.\nBeer."),
            AgentStep("search", "toe pain", ("gout-1", "other-1"), "search"),
            AgentStep(
                "answer", "Explanation: urate [gout-1].\nExact Answer: Gout\nConfidence: 80%"
            ),
        ),
        cited=("gout-1",),
        confidence=0.8,
        tokens=70,
    )


def test_a_short_file_is_read_with_its_stated_counts(tmp_path: Path) -> None:
    answer = [{"type": "output_text", "output": "Exact Answer: Gout"}]
    content = result(query_id=12, result=answer, tool_call_counts={"search": 5}, usage=None)
    write(tmp_path / "runs", "12.json", content)

    [trace] = read_results(tmp_path / "runs").traces

    assert (trace.query_id, trace.searches, trace.tokens) == ("12", 5, None)
    assert trace.documents == ("gout-1", "other-1")
    assert trace.first_search_with(["gout-1"]) is None


@pytest.mark.parametrize(
    "output",
    [
        {"results": [{"docid": "gout-1", "text": "..."}]},
        [{"docid": "gout-1"}],
        'Found: {"docid": "gout-1", "snippet": "..."} and more',
        "docid: gout-1\nUrate crystals",
    ],
)
def test_documents_are_found_in_the_outputs_of_other_tools(tmp_path: Path, output: Any) -> None:
    call = {"type": "tool_call", "tool_name": "find", "arguments": {"query": "toe"}}
    write(tmp_path / "runs", "run_1.json", result(result=[{**call, "output": output}]))

    [trace] = read_results(tmp_path / "runs").traces

    assert trace.steps == (AgentStep("search", "toe", ("gout-1",), "find"),)
    assert trace.answer == ""


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ([], "record"),
        ({k: v for k, v in result().items() if k != "query_id"}, "'query_id' is missing"),
        ({k: v for k, v in result().items() if k != "status"}, "'status' is missing"),
        (result(query_id=None), "'query_id'"),
        (result(status=3), "'status'"),
        (result(retrieved_docids="gout-1"), "'retrieved_docids'"),
        (result(retrieved_docids=[["a"]]), "'retrieved_docids[0]'"),
        (result(tool_call_counts={"search": "two"}), "'tool_call_counts.search'"),
        (result(result="Gout"), "'result'"),
        (result(result=[{"output": "Gout"}]), "'result[0].type'"),
        (result(r2med={"sample": "first"}), "'r2med.sample'"),
    ],
)
def test_a_malformed_file_is_named_with_its_field_and_the_others_are_read(
    tmp_path: Path, content: Any, field: str
) -> None:
    write(tmp_path / "runs", "run_good.json", result())
    write(tmp_path / "runs", "run_odd.json", content)

    files = read_results(tmp_path / "runs")

    assert len(files.traces) == 1
    [problem] = files.problems
    assert "run_odd.json" in problem and field in problem


def test_a_folder_without_a_readable_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "runs", "run_odd.json", result(status=3))

    with pytest.raises(DataError, match=r"run_odd\.json: field 'status' is 3, expected a text"):
        read_results(tmp_path / "runs")


def test_several_files_on_one_query_are_samples(tmp_path: Path) -> None:
    for name in ("run_a.json", "run_b.json"):
        write(tmp_path / "runs", name, result())

    assert [trace.sample for trace in read_results(tmp_path / "runs").traces] == [0, 1]


def test_an_exported_answer_states_citations_and_confidence_in_its_text(
    demo: Task, tmp_path: Path
) -> None:
    steps = (AgentStep("search", "x", ("biology-001",), "search"), AgentStep("answer", "Torpor"))
    trace = AgentTrace("1", steps, cited=("biology-001",), confidence=0.7)

    write_results([trace], tmp_path / "out", agent="mine", task=demo)

    [path] = (tmp_path / "out").iterdir()
    content = json.loads(path.read_text(encoding="utf-8"))
    assert path.name.startswith("run_") and content["query_id"] == "1"
    assert content["tool_call_counts"] == {"search": 1} and content["status"] == "completed"
    assert content["retrieved_docids"] == ["biology-001"]
    assert content["result"][-1]["type"] == "output_text"
    assert content["result"][-1]["output"] == "Torpor\n\nEvidence: [biology-001]\n\nConfidence: 70%"
    [document] = json.loads(content["result"][0]["output"])
    assert document == {"docid": "biology-001", "snippet": demo.document("biology-001")}
