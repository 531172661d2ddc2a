"""Models are data: the published ones, the user's own, and any on a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import DataError, MissingError, UsageError
from r2med.paths import home_folder
from r2med.remote.budget import Price
from r2med.remote.chat import Remote
from r2med.remote.registry import find_llm, llms
from tests.remote.asking import open_chat

PUBLISHED = [
    "qwen-7b",
    "qwen-32b",
    "qwen-72b",
    "llama-70b",
    "r1-qwen-32b",
    "r1-llama-70b",
    "huatuo-o1-70b",
    "qwq-32b",
    "qwen3-32b",
    "gpt4",
    "o3-mini",
    "qwen-3b-ins",
    "qwen-7b-ins",
]


def test_every_published_model_has_its_name() -> None:
    assert [name for name, llm in llms().items() if llm.published_as == name] == PUBLISHED


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sampling(name: str) -> None:
    llm = find_llm(name)

    hosted = {
        "gpt4": {"temperature": 0.8, "top_p": 0.8},
        "o3-mini": {},
    }
    local = {"temperature": 0.7, "seed": 42, "max_tokens": 10240}
    sent = {key: value for key, value in llm.parameters().items() if key not in llm.extra}
    assert sent == hosted.get(name, local)


def test_which_models_reason_and_how_their_answer_is_marked() -> None:
    reasoning = {name: llm.stripping for name, llm in llms().items() if llm.reasoning}

    assert reasoning == {
        "r1-qwen-32b": "think",
        "r1-llama-70b": "think",
        "huatuo-o1-70b": "final-response",
        "qwq-32b": "think",
        "qwen3-32b": "think",
        "qwen-3b-ins": "answer",
        "qwen-7b-ins": "answer",
        "reasonrank-7b": "think",
        "reasonrank-32b": "think",
        "rank1-7b": "think",
        "rank-r1-7b": "think",
        "grouprank-7b": "none",
        "grouprank-32b": "none",
    }


def test_every_price_has_a_source() -> None:
    for llm in llms().values():
        assert (llm.price_in is None) == (llm.price_out is None)
        assert llm.price_in is None or llm.price_source


def test_a_mistyped_name_gets_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match=r"'qwen-7c' is not known. Did you mean.*'qwen-7b'"):
        find_llm("qwen-7c")


def test_a_file_of_ones_own_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_LLM_CONFIG", "nowhere.toml")

    with pytest.raises(UsageError, match=r"R2MED_LLM_CONFIG=nowhere.toml: file not found"):
        llms()


def test_a_model_without_a_server_says_what_to_give() -> None:
    with pytest.raises(MissingError, match=r"qwen-7b needs a server.*--llm-url or R2MED_LLM_URL"):
        Remote().chat("qwen-7b")


def test_any_name_is_a_model_of_the_server_in_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("R2MED_LLM_URL", "localhost:8000")

    with open_chat("me/My-Model") as chat:
        identity = chat.identity

    assert identity["model"] == "me/My-Model"
    assert identity["server"] == {"kind": "openai-compatible", "url": "http://localhost:8000/v1"}


@pytest.mark.parametrize("where", ["variable", "home"])
def test_a_file_of_ones_own_adds_and_changes_models(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.toml" if where == "variable" else home_folder() / "llms.toml"
    path.write_text(
        '[mine]\nmodel = "me/M"\nurl = "http://gpu:1/v1"\ntemperature = 0\nprice_in = 1\n'
        'price_out = 2\n[qwen-7b]\nurl = "http://gpu:2/v1"\n',
        encoding="utf-8",
    )
    if where == "variable":
        monkeypatch.setenv("R2MED_LLM_CONFIG", str(path))

    mine, qwen = find_llm("mine"), find_llm("qwen-7b")

    assert (mine.model, mine.temperature, mine.price_out) == ("me/M", 0.0, 2.0)
    assert (qwen.model, qwen.url) == ("Qwen/Qwen2.5-7B-Instruct", "http://gpu:2/v1")


@pytest.mark.parametrize(
    ("content", "error", "told"),
    [
        ("[m]\napi_key = 'sk'", UsageError, "keys do not belong in files"),
        (
            "[m]\ntemprature = 1",
            UsageError,
            "the setting 'temprature' does not exist. Did you mean",
        ),
        ("[m]\ntemperature = 'hot'", UsageError, r"\[temperature=hot\]: expected a number from 0"),
        ("[m]\nstripping = 'all'", UsageError, "expected one of none, think, "),
        ("[m]\nextra = 'x'", UsageError, "extra is 'x', expected a table"),
        ("[m]\nextra = [1]", UsageError, r"extra is \[1\], expected a table"),
        ("[m]\nextra = {day = 2024-01-01}", UsageError, "extra cannot be sent as JSON"),
        ("[m]\nextra = {p = nan}", UsageError, "extra cannot be sent as JSON"),
        ("[m]\nextra = {model = 'other'}", UsageError, "extra sets 'model'"),
        ("[m", DataError, "is not TOML"),
        ("model = 'x'", DataError, "outside of a table"),
    ],
)
def test_a_wrong_file_is_explained(
    content: str,
    error: type[Exception],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "my.toml"
    path.write_text(content, encoding="utf-8")
    monkeypatch.setenv("R2MED_LLM_CONFIG", str(path))

    with pytest.raises(error, match=told) as caught:
        llms()

    assert "my.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (
            {"temprature": "1"},
            "the setting 'temprature' does not exist. Did you mean 'temperature'",
        ),
        ({"temperature": "hot"}, r"qwen-7b\[temperature=hot\]: expected a number"),
        ({"max_tokens": "0"}, "expected a whole number from 1"),
        ({"reasoning": "maybe"}, "expected true or false"),
        ({"extra": "x"}, "extra is a table and cannot be an option"),
    ],
)
def test_a_wrong_option_is_explained(option: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        find_llm("qwen-7b").override(option)


def test_options_change_what_is_sent_and_the_identity() -> None:
    changed = find_llm("qwen-7b").override({"temperature": "none", "max_tokens": "5"})

    assert changed.parameters() == {"seed": 42, "max_tokens": 5}


def test_the_guide_lists_every_model(repository: Path) -> None:
    guide = (repository / "docs" / "llms.md").read_text(encoding="utf-8")

    missing = [n for n, llm in llms().items() if f"`{n}`" not in guide or llm.model not in guide]

    assert not missing


def test_another_model_under_a_registered_name_has_no_price_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[gpt4]\nmodel = "gpt-9"\n[claude]\nmodel = "c"\nprice_in = 1\nprice_out = 2\n')
    before = find_llm("gpt4").price
    monkeypatch.setenv("R2MED_LLM_CONFIG", str(path))

    assert before is not None
    assert find_llm("gpt4").price is None
    assert find_llm("claude").price == Price(1.0, 2.0)
