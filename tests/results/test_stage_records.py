"""Records describe the stages of a system as fields, so that readers need no spec and no model."""

from __future__ import annotations

import pytest

import r2med
from r2med.results.record import Record
from r2med.results.stage_record import StageRecord, StageType, TextLimits


def stage(
    stage_type: StageType, *inputs: StageRecord, limits: TextLimits | None = None
) -> StageRecord:
    limits = limits or TextLimits()
    return StageRecord(stage_type, "name", "unit", "spec", 10, limits=limits, inputs=inputs)


SHORT = stage("retriever", limits=TextLimits(64, 128))
LONG = stage("retriever", limits=TextLimits(512, 512))
UNLIMITED = stage("retriever")


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        (SHORT, TextLimits(64, 128)),
        (UNLIMITED, TextLimits()),
        (stage("fusion", SHORT, LONG), TextLimits(512, 512)),
        (stage("fusion", SHORT, UNLIMITED), TextLimits()),
        (stage("expander", SHORT), TextLimits(document=128)),
        (stage("reranker", SHORT, limits=TextLimits(pair=512)), TextLimits(pair=512)),
    ],
)
def test_text_limits_are_those_of_the_last_model_that_reads_whole_texts(
    system: StageRecord, expected: TextLimits
) -> None:
    assert system.text_limits == expected


def test_a_stored_fusion_lists_its_members_in_order_of_execution() -> None:
    result = r2med.evaluate("bm25 + bm25-lucene[k1=1.2]", "demo/biology")

    stages = Record.from_json(result.record.to_json(), result.folder).stages

    assert [(each.type, each.name) for each in stages] == [
        ("retriever", "bm25"),
        ("retriever", "bm25-lucene"),
        ("fusion", "rrf"),
    ]
    assert stages[0].backend == "bm25"
    assert stages[0].published_as == "bm25"
    assert stages[1].settings["k1"] == 1.2
    assert stages[1].system == "bm25-lucene[k1=1.2]"


@pytest.mark.extra("light")
def test_a_dense_retriever_stores_the_tokens_it_reads() -> None:
    result = r2med.evaluate("wordllama[max_length=32]", "demo/biology")

    assert result.record.system.stage.text_limits == TextLimits(32, 32)


def test_one_system_has_one_key_on_all_tasks_and_settings_change_it() -> None:
    systems = ["bm25", "bm25[k1=0.9,b=0.4]", "bm25[k1=1.1]"]

    biology = [r2med.evaluate(spec, "demo/biology") for spec in systems]
    medqa = r2med.evaluate("bm25", "demo/medqa-diag")

    keys = [result.record.system.key for result in biology]
    assert keys[0] == keys[1] == medqa.record.system.key
    assert keys[2] != keys[0]
