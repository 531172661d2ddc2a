"""Evaluating: what is stored is reused, what changed is run again, what is damaged is redone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.errors import MissingError, UsageError
from r2med.remote.budget import Limits
from tests.llm_server import running_llm_server

TASK = "demo/medqa-diag"


def copied(task: str, folder: Path) -> Path:
    """A folder of one's own with the files of a demo task."""
    from r2med.tasks.fetch.provenance import data_folder
    from r2med.tasks.registry import find_task

    folder.mkdir()
    for file in data_folder(find_task(task)).glob("*.jsonl"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


def test_a_result_holds_metrics_scores_and_run() -> None:
    task = r2med.load_task(TASK)
    result = r2med.evaluate("bm25", task)

    assert 0 < result.metrics["ndcg@10"] < 1
    assert len(result.scores) == len(task.queries)
    assert result.scores["ndcg@10"].mean() == pytest.approx(result.metrics["ndcg@10"])
    assert len(result.run) == len(task.queries)
    assert result.seconds["search"] > 0


def test_lists_give_lists_task_by_task() -> None:
    results = r2med.evaluate_all(["bm25", "bm25-nano"], [TASK, "demo/biology"])

    assert [(result.task, result.system) for result in results] == [
        (TASK, "bm25"),
        (TASK, "bm25-nano"),
        ("demo/biology", "bm25"),
        ("demo/biology", "bm25-nano"),
    ]


def test_a_finished_result_is_reused_until_forced() -> None:
    first = r2med.evaluate("bm25", TASK)
    again = r2med.evaluate("bm25", TASK)
    forced = r2med.evaluate("bm25", TASK, force=True)

    assert (first.reused, again.reused, forced.reused) == (False, True, False)
    assert again.metrics == first.metrics == forced.metrics


def test_the_same_system_written_otherwise_is_the_same_result() -> None:
    first = r2med.evaluate("bm25[k1=1.2,b=0.5]", TASK)

    assert r2med.evaluate("( bm25[ b=0.5, k1=1.2 ] )", TASK).folder == first.folder


def test_a_changed_option_or_changed_data_is_another_result(tmp_path: Path) -> None:
    folder = copied(TASK, tmp_path / "mine")
    first = r2med.evaluate("bm25", folder)
    option = r2med.evaluate("bm25[k1=1.2]", folder)
    judgements = folder / "qrels.jsonl"
    judgements.write_text("\n".join(judgements.read_text().splitlines()[1:]))

    changed = r2med.evaluate("bm25", folder)

    assert len({first.folder, option.folder, changed.folder}) == 3
    assert not changed.reused


@pytest.mark.parametrize("name", ["result.json", "run.parquet", "scores.parquet"])
def test_a_damaged_result_is_named_and_redone(name: str) -> None:
    first = r2med.evaluate("bm25", TASK)
    (first.folder / name).write_bytes(b"damaged")
    told: list[str] = []

    again = r2med.evaluate("bm25", TASK, warn=told.append)

    assert not again.reused
    assert again.metrics == first.metrics
    assert any(name in message for message in told)


def test_a_new_cutoff_is_measured_from_the_stored_run() -> None:
    r2med.evaluate("bm25", TASK)

    wider = r2med.evaluate("bm25", TASK, metrics=["ndcg@20"])

    assert wider.metrics["ndcg@20"] == pytest.approx(wider.scores["ndcg@20"].mean())
    assert r2med.evaluate("bm25", TASK, metrics=["ndcg@20"]).reused


def test_the_record_says_what_ran() -> None:
    result = r2med.evaluate("bm25", TASK)

    record = json.loads((result.folder / "result.json").read_text())

    assert record["schema"] == 1
    assert record["task"]["hash"] == r2med.load_task(TASK).hash
    assert record["system"]["published_as"] == "bm25"
    assert record["system"]["ties"] == "trec"
    assert record["versions"]["r2med"]


def test_fusing_is_indifferent_to_the_order_of_its_members() -> None:
    one = r2med.evaluate("bm25 + bm25-nano", TASK)
    other = r2med.evaluate("bm25-nano + bm25", TASK)

    assert one.metrics == other.metrics


def test_unknown_systems_options_and_tasks_are_refused_with_what_is_near() -> None:
    with pytest.raises(UsageError, match="'bm25'"):
        r2med.evaluate("bm52", TASK)
    with pytest.raises(UsageError, match=r"no option 'k'.*'k1'"):
        r2med.evaluate("bm25[k=1]", TASK)
    with pytest.raises(UsageError, match="medqa-diag"):
        r2med.evaluate("bm25", "demo/medqadiagg")
    with pytest.raises(MissingError, match="r2med fetch"):
        r2med.evaluate("bm25", "MedQA-Diag")


def test_a_model_that_nothing_answers_to_is_refused_before_anything_runs() -> None:
    with pytest.raises(UsageError, match=r"LLM 'gpt44' is not known. Did you mean 'gpt4'"):
        r2med.evaluate_all(["bm25", "hyde:gpt44 | bm25"], TASK)

    assert not list(Path("r2med-results").rglob("result.json"))


def test_data_the_user_has_is_taken_as_the_registered_task(tmp_path: Path) -> None:
    copied(TASK, tmp_path / "MedQA-Diag")
    told: list[str] = []

    result = r2med.evaluate("bm25", "MedQA-Diag", root=tmp_path, warn=told.append)

    assert (result.task, result.suite) == ("MedQA-Diag", "full")
    assert any("manifest" in message for message in told)


def test_options_reach_systems_given_as_text(tmp_path: Path) -> None:
    task = r2med.load_task(TASK)
    query, document = task.queries.ids[0].as_py(), task.corpus.ids[0].as_py()
    lines = f"{query} Q0 {document} 1 1.0 x\nnobody Q0 {document} 1 1.0 x\n"
    (tmp_path / "run.trec").write_text(lines, encoding="utf-8")
    spec = f"run:{tmp_path / 'run.trec'}"
    heard: list[str] = []

    with pytest.raises(r2med.R2MedError, match="nobody"):
        r2med.evaluate(spec, TASK, resources=r2med.Resources(r2med.RunOptions(strict=True)))
    r2med.evaluate(spec, TASK, resources=r2med.Resources(warn=heard.append))

    assert any("nobody" in message for message in heard)


def letters(texts: list[str]) -> list[list[float]]:
    """A model: how often each text has some letters."""
    return [[float(text.lower().count(letter)) for letter in "abcdefgh"] for text in texts]


def test_a_model_is_evaluated_directly_and_told_to_have_no_identity(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = r2med.evaluate(letters, TASK)
    several = r2med.evaluate_all([letters, "bm25"], TASK)

    assert (result.system, [each.system for each in several]) == ("letters", ["letters", "bm25"])
    assert "letters: the model has no `identity`, so its embeddings are not cached" in caplog.text


def test_a_reranker_alone_is_told_what_must_stand_before_it() -> None:
    class Reranker:
        def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
            return [0.0 for _ in pairs]

    with pytest.raises(UsageError, match=r"needs one before it, as in .*'bm25 \| mine'.*models="):
        r2med.evaluate(Reranker(), TASK)


@pytest.mark.parametrize("systems", [3, object(), ["bm25", 3]])
def test_what_is_neither_text_nor_system_nor_model_is_refused(systems: Any) -> None:
    with pytest.raises(UsageError, match=r"is not a model: expected .* see docs/your-model.md"):
        r2med.evaluate_all(systems, TASK)


def test_a_suite_and_names_with_commas_are_lists_of_tasks() -> None:
    suite = r2med.evaluate_all("bm25", "demo")
    named = r2med.evaluate_all("bm25", ["demo/biology,demo/medqa-diag"])

    assert len(suite) == len({result.task for result in suite}) == 8
    assert [result.task for result in named] == ["demo/biology", "demo/medqa-diag"]


def test_an_option_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'metric'"):
        r2med.evaluate("bm25", TASK, metric=["ndcg@5"])  # type: ignore[call-arg]


def test_metrics_that_were_asked_for_before_are_kept() -> None:
    r2med.evaluate("bm25", TASK, metrics=["recall@20"])
    r2med.evaluate("bm25", TASK, metrics=["ndcg@7"])
    again = r2med.evaluate("bm25", TASK, metrics=["mrr"])
    forced = r2med.evaluate("bm25", TASK, force=True)

    for result in (again, forced):
        assert {"recall@20", "ndcg@7", "mrr"} <= set(result.metrics)
        assert {"recall@20", "ndcg@7", "mrr"} <= set(result.scores.to_arrow().column_names)


def test_a_metric_deeper_than_the_run_carries_a_word() -> None:
    told: list[str] = []

    r2med.evaluate_all("bm25", ["demo/biology", TASK], metrics=["recall@1000"], warn=told.append)
    r2med.evaluate("bm25@1000", TASK, metrics=["recall@1000"], warn=told.append)

    assert told == [
        "bm25: recall@1000 is measured on lists of 100 documents; documents below rank 100 count "
        "as not found. Ask for deeper lists with @, as in bm25@1000."
    ]


def test_a_name_is_stored_in_its_registered_spelling() -> None:
    first = r2med.evaluate("BM25", TASK)

    assert first.system == "bm25"
    assert r2med.evaluate("bm25", TASK).folder == first.folder


def test_two_specs_of_one_system_are_one_result_that_knows_both() -> None:
    plain, written_out = r2med.evaluate_all(["bm25", "bm25[k1=0.9]"], TASK)
    again = r2med.evaluate_all(["bm25", "bm25[k1=0.9]"], TASK)

    assert plain.folder == written_out.folder and plain.system == written_out.system == "bm25"
    assert written_out.record.system.other_specs == ("bm25[k1=0.9]",)
    assert written_out.record.key == plain.record.key
    assert [result.reused for result in again] == [True, True]


def test_every_option_that_differs_gets_a_result_of_its_own() -> None:
    plain, changed = r2med.evaluate_all(["bm25", "bm25[unmatched=drop]"], TASK)

    assert plain.record.key != changed.record.key


@pytest.mark.parametrize("tasks", [3, None, ["demo/biology", 3]])
def test_what_is_no_task_is_told_what_was_expected(tasks: Any) -> None:
    with pytest.raises(UsageError, match="is not a task: expected a name"):
        r2med.evaluate_all("bm25", tasks)


def test_one_evaluation_opens_a_model_once() -> None:
    pytest.importorskip("aiohttp")
    systems = ["hyde:qwen-7b | bm25", "hyde:qwen-7b | bm25 | pointwise:qwen-7b@2"]
    one_by_one = Limits(concurrency=1)

    with running_llm_server() as server:
        resources = r2med.Resources(r2med.RunOptions(llm_url=server.url, limits=one_by_one))
        r2med.evaluate_all(systems, ["demo/biology", "demo/pmc-clinical"], resources=resources)

        models = {body["temperature"] for body in server.bodies}
        assert len(models) == 2
        assert len({seen.port for seen in server.seen}) == len(models)


def test_a_label_is_shown_everywhere_and_decides_nothing() -> None:
    plain = r2med.evaluate("bm25-lucene", TASK)

    mine = r2med.evaluate("mine=bm25-lucene", TASK)
    again = r2med.evaluate("bm25-lucene", TASK, metrics=["ndcg@7"])
    other = r2med.evaluate("bm25", TASK)

    assert mine.reused and mine.folder == plain.folder == again.folder
    assert (mine.system, mine.name, again.name) == ("bm25-lucene", "mine", "mine")
    assert r2med.compare("mine", "bm25", task=TASK).systems == ("mine", "bm25")
    assert r2med.compare("other=bm25-lucene", other, task=TASK).systems == ("mine", "bm25")
    board = r2med.leaderboard("demo")
    assert {row.name for row in board.rows} >= {"mine", "bm25"}
    assert r2med.diagnose("mine", TASK).system == "mine"


def test_two_systems_of_one_label_are_refused_together_and_told_apart_when_stored() -> None:
    with pytest.raises(UsageError, match="label 'mine' is given twice"):
        r2med.evaluate_all(["mine=bm25", "mine=bm25-nano"], TASK)
    r2med.evaluate("mine=bm25", TASK)
    r2med.evaluate("mine=bm25-nano", TASK)

    with pytest.raises(UsageError, match="label 'mine' names 2 systems: bm25, bm25-nano"):
        r2med.diagnose("mine", TASK)
    names = {row.name for row in r2med.leaderboard("demo").rows}
    assert names == {"mine: bm25", "mine: bm25-nano"}
