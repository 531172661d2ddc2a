"""The encoders' registry: published protocols as data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from r2med.errors import UsageError
from r2med.retrieve.dense.retriever import Settings
from r2med.settings import parse_settings
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.tasks.registry import find_suite, find_task
from tests.cli.running import run
from tests.retrieve.small_task import own_task

PUBLISHED = [
    *("contriever", "medcpt", "inst-l", "inst-xl", "bmr-410m", "bmr-2b", "bmr-7b"),
    *("bge", "e5", "grit", "sfr", "nv"),
]
DENSE = [name for name, entry in entries().items() if entry.backend == "dense"]


def instructions(name: str, task: str) -> tuple[str, str]:
    settings = parse_settings(Settings, entries()[name].fields)
    on = own_task(entry=find_task(task))
    query, document = (settings.form(on, side) for side in ("query", "document"))
    return query.instruction, document.instruction


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_name_says_what_it_was_published_as(name: str) -> None:
    assert entries()[name].published_as == name


@pytest.mark.parametrize("name", DENSE)
def test_every_entry_can_be_read(name: str) -> None:
    assert parse_settings(Settings, entries()[name].fields)


LATER = [
    *("qwen3-0.6b", "qwen3-4b", "qwen3-8b", "reasonir", "diver", "reasonembed-8b"),
    *("reasonembed-4b", "reasonembed-llama", "rader", "gte-qwen2-7b", "inf-retriever"),
    *("medembed-small", "medembed-base", "medembed-large", "biolord", "splade-v3"),
    *("bge-m3-sparse", "bge-m3-multi", "reason-moderncolbert", "gte-moderncolbert"),
]


@pytest.mark.parametrize("name", LATER)
def test_an_encoder_of_later_works_says_where_its_settings_were_read(name: str) -> None:
    assert entries()[name].source


def test_licences_that_restrict_use_are_said_where_systems_are_listed() -> None:
    shown = " ".join(run("info", "systems").out.split())

    for name in ("nv", "sfr", "reasonir", "splade", "splade-v3", "reason-moderncolbert"):
        assert "not for commercial use" in entries()[name].licence
    assert "SPLADE-v3. Licence: CC BY-NC-SA 4.0: not for commercial use." in shown
    assert "Further protocols: own, reasonembed." in shown


def test_a_corrected_form_has_its_own_name() -> None:
    assert entries()["medcpt-dual"].published_as is None


@pytest.mark.parametrize(
    ("name", "task", "query", "document"),
    [
        (
            "inst-l",
            "Biology",
            "Represent the Biology post for retrieving relevant paragraphs: ",
            "Represent the Biology paragraph for retrieval: ",
        ),
        (
            "inst-xl",
            "MedQA-Diag",
            "Represent the Medical Exam for retrieving relevant paragraphs that help answer the "
            "exam: ",
            "Represent the Medical paragraph for retrieval: ",
        ),
        (
            "inst-l",
            "PMC-Treatment",
            "Represent the Clinical Case for retrieving relevant paragraphs that help answer the "
            "case: ",
            "Represent the Medical paragraph for retrieval: ",
        ),
        (
            "inst-l",
            "IIYi-Clinical",
            "Represent the Clinical Case for retrieving similar cases that help diagnose the "
            "case: ",
            "Represent the Clinical Case for retrieval: ",
        ),
        (
            "e5",
            "Medical-Sciences",
            "Instruct: Given a Medical Science post, retrieve relevant passages that help answer "
            "the post\nQuery: ",
            "",
        ),
        (
            "bmr-2b",
            "PMC-Clinical",
            "Given a Clinical Case, retrieve similar cases that help diagnose the case\nQuery: ",
            "Represent this passage\npassage: ",
        ),
        (
            "grit",
            "MedXpertQA-Exam",
            "<|user|>\nGiven a Medical Exam, retrieve relevant passages that help answer the exam\n"
            "<|embed|>\n",
            "<|embed|>\n",
        ),
        ("contriever", "Biology", "", ""),
    ],
)
def test_instructions_are_worded_after_the_task(
    name: str, task: str, query: str, document: str
) -> None:
    assert instructions(name, task) == (query, document)


def test_nano_and_demo_tasks_are_worded_as_the_task_they_stand_for() -> None:
    full = instructions("e5", "Biology")

    assert instructions("e5", "demo/biology") == full
    assert all(
        instructions("e5", nano.name)[0] == instructions("e5", nano.source)[0]
        for nano in find_suite("nano").entries
    )


def test_data_of_the_users_own_gets_a_plain_wording_unless_told() -> None:
    plain = parse_settings(Settings, entries()["e5"].fields)
    told = replace(plain, kind="Nursing question", purpose="find the guideline")

    assert "Given a Medical question, retrieve" in plain.form(own_task(), "query").instruction
    assert (
        told.form(own_task(), "query").instruction
        == "Instruct: Given a Nursing question, find the guideline\nQuery: "
    )


def test_braces_of_an_instruction_that_are_no_placeholder_stay() -> None:
    settings = replace(
        parse_settings(Settings, entries()["bge"].fields), query_instruction='{"a": {kind}}'
    )

    assert settings.form(own_task(), "query").instruction == '{"a": Medical question}'


def test_lengths_may_differ_by_side() -> None:
    settings = parse_settings(Settings, entries()["grit"].fields)

    assert settings.form(own_task(), "query").max_length == 512
    assert settings.form(own_task(), "document").max_length == 2048


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "bge[pooling=clss]",
            r"bge\[pooling=clss\]: expected one of model, cls, mean, last\.",
        ),
        ("bge[dtype=float64]", r"bge\[dtype=float64\]: expected one of auto, float32"),
        ("bge[max_length=-1]", r"max_length=-1\]: expected a whole number from 0"),
        ("bge[maxlength=5]", "has no option 'maxlength'. Did you mean .*'max_length'"),
        ("bge:PATH", "bge takes no argument"),
        ("dense", "the checkpoint is missing"),
    ],
)
def test_a_wrong_option_is_named_with_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        System.from_spec(text)


@pytest.mark.parametrize("name", DENSE)
def test_a_system_is_built_without_touching_its_checkpoint(name: str) -> None:
    assert System.from_spec(f"{name}[checkpoint=nobody/has-this]")
