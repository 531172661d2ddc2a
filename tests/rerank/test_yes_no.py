"""Language models as rerankers score as a few lines of plain transformers code do."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from r2med.errors import DataError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.rerank.cross_encoder import YesNoSettings, build
from r2med.rerank.scores import Candidates
from r2med.settings import parse_settings
from r2med.systems.registry import entries

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from tests.rerank import tiny  # noqa: E402

QWEN = ("qwen3-reranker-0.6b", "qwen3-reranker-4b", "qwen3-reranker-8b")
SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".'
)
QUESTION = (
    "Given a query A and a passage B, determine whether the passage contains an answer to the "
    "query by providing a prediction of either 'Yes' or 'No'."
)


def candidates() -> list[Candidates]:
    """Texts of very different lengths, some beyond what is read; one document is empty."""
    draw = random.Random(5)
    texts = [" ".join(draw.choices(tiny.WORDS, k=k)) for k in (1, 3, 9, 20, 60)]
    names = [f"d{n}" for n in range(6)]
    queries = ("fever?", " ".join(draw.choices(tiny.WORDS, k=40)))
    return [Candidates(f"q{n}", query, names, [*texts, ""]) for n, query in enumerate(queries)]


def scored(name: str, folder: Path, batch_tokens: int = 4096, **options: str) -> Any:
    options = {"checkpoint": str(folder), "dtype": "float32", **options}
    settings = parse_settings(YesNoSettings, entries()[name].override(options).fields)
    reranker = build(name, settings, Resources(RunOptions(batch_tokens=batch_tokens)))
    return np.concatenate(reranker.rerank(candidates()).scores)


def pairs() -> list[tuple[str, str]]:
    return [(one.query, document) for one in candidates() for document in one.documents]


def last_logits(folder: Path, rows: list[list[int]], *, side: str) -> Any:
    """The logits after the last token of each row, all rows in one padded batch."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = AutoTokenizer.from_pretrained(folder, padding_side=side)
    batch = tokens.pad({"input_ids": rows}, padding=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**batch).logits
    ends = [-1 if side == "left" else len(row) - 1 for row in rows]
    return torch.stack([logits[n, end] for n, end in enumerate(ends)])


def qwen_rows(tokens: Any, limit: int) -> list[list[int]]:
    """As the model card does: the middle is one text, cut to what the frame leaves."""
    instruct = "Given a web search query, retrieve relevant passages that answer the query"
    before = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
    after = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    start, end = (tokens.encode(text, add_special_tokens=False) for text in (before, after))
    middles = [f"<Instruct>: {instruct}\n<Query>: {q}\n<Document>: {d}" for q, d in pairs()]
    cut = limit - len(start) - len(end)
    return [start + tokens(m, truncation=True, max_length=cut).input_ids + end for m in middles]


def gemma_rows(tokens: Any, limit: int) -> list[list[int]]:
    def ids(text: str) -> list[int]:
        return list(tokens(text, add_special_tokens=False).input_ids)

    rows = []
    for query, document in pairs():
        first = [tokens.convert_tokens_to_ids("<bos>"), *ids(f"A: {query}")[: limit * 3 // 4]]
        second = (ids("\n") + ids(f"B: {document}"))[: limit - len(first)]
        rows.append(first + second + ids("\n") + ids(QUESTION))
    return rows


@pytest.mark.parametrize(("side", "batch_tokens"), [("left", 1), ("right", 4096)])
def test_qwen3_rerankers_give_the_probability_of_yes_against_no(
    tmp_path: Path, side: str, batch_tokens: int
) -> None:
    folder = tiny.save_qwen(tmp_path / "qwen")
    tokens = AutoTokenizer.from_pretrained(folder)
    logits = last_logits(folder, qwen_rows(tokens, 600), side=side)
    columns = [tokens.convert_tokens_to_ids(word) for word in ("no", "yes")]
    plain = torch.softmax(logits[:, columns], dim=1)[:, 1].numpy()

    log_odds = scored(QWEN[0], folder, batch_tokens, max_length="600")

    assert plain.std() > 0.001
    np.testing.assert_allclose(1 / (1 + np.exp(-log_odds)), plain, atol=1e-5)


@pytest.mark.parametrize(("side", "batch_tokens"), [("left", 4096), ("right", 1)])
def test_bge_reranker_gemma_is_the_logit_of_yes(
    tmp_path: Path, side: str, batch_tokens: int
) -> None:
    folder = tiny.save_gemma(tmp_path / "gemma")
    tokens = AutoTokenizer.from_pretrained(folder)
    logits = last_logits(folder, gemma_rows(tokens, 160), side=side)
    plain = logits[:, tokens.convert_tokens_to_ids("Yes")].numpy()

    found = scored("bge-reranker-gemma", folder, batch_tokens, max_length="160")

    np.testing.assert_allclose(found, plain, atol=1e-5)


def test_the_named_rerankers_read_what_their_cards_say() -> None:
    named = {name: entries()[name] for name in (*QWEN, "bge-reranker-gemma")}

    assert [each.fields["max_length"] for each in named.values()] == [8192, 8192, 8192, 1024]
    assert [named[name].fields["checkpoint"] for name in QWEN] == [
        f"Qwen/Qwen3-Reranker-{size}" for size in ("0.6B", "4B", "8B")
    ]


def test_an_instruction_of_the_users_own_is_read(tmp_path: Path) -> None:
    folder = tiny.save_qwen(tmp_path / "qwen")

    other = scored(QWEN[0], folder, instruction="Given a case, retrieve similar cases")

    assert np.abs(other - scored(QWEN[0], folder)).max() > 1e-3


def test_a_model_without_the_answer_as_one_token_is_refused(tmp_path: Path) -> None:
    folder = tiny.save_gemma(tmp_path / "gemma")

    with pytest.raises(DataError, match="'yes' is not a single token of this model"):
        scored(QWEN[0], folder)


def test_a_limit_that_leaves_no_room_for_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="max_length=100 leaves no space"):
        scored(QWEN[0], tiny.save_qwen(tmp_path / "qwen"), max_length="100")
