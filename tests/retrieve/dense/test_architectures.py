"""Every architecture behind a registered name, against a few lines of independent code."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.models.encoding import SIDES, BatchEncoder, Form, Side
from r2med.retrieve.dense.retriever import Settings
from r2med.settings import parse_settings
from r2med.systems.registry import entries
from tests.retrieve.checkpoints import save_model, save_modules, sentences
from tests.retrieve.small_task import own_task

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

TEXTS = sentences()


@dataclass(frozen=True)
class Case:
    """A registered name on a tiny stand-in for its checkpoint, and how a reader would do it."""

    name: str
    architecture: str
    pooling: str
    limit: int
    options: tuple[tuple[str, str], ...] = ()
    prompt_counts: bool = True
    add_eos: bool = False
    padding: str = "right"
    modules: str = ""
    both_ways: bool = False

    def __str__(self) -> str:
        return self.name


CASES = [
    Case("contriever", "bert", "mean", 24, (("max_length", "24"),)),
    Case("bge", "bert", "cls", 24, (("max_length", "24"),)),
    Case("medcpt", "bert", "cls", 24, (("max_length", "24"),)),
    Case("bge-m3", "xlm-roberta", "cls", 24, (("max_length", "24"),)),
    Case("inst-l", "t5", "mean", 40, prompt_counts=False, modules="mean"),
    Case("bmr-410m", "gpt-neox", "last", 24, (("max_length", "24"),), add_eos=True),
    Case("bmr-2b", "gemma", "last", 24, (("max_length", "24"),), add_eos=True, padding="left"),
    Case("bmr-7b", "mistral", "last", 24, (("max_length", "24"),), add_eos=True, padding="left"),
    Case("e5", "mistral-eos", "last", 24, (("max_length", "24"),)),
    Case("e5", "mistral", "last", 24, (("max_length", "24"),), add_eos=True),
    Case("sfr", "mistral-eos", "last", 24, (("max_length", "24"),), padding="left"),
    Case("qwen3-0.6b", "qwen3", "last", 24, (("max_length", "24"),), padding="left"),
    Case("diver", "qwen3", "last", 24, (("max_length", "24"), ("protocol", "own")), padding="left"),
    Case("reasonembed-8b", "qwen3", "last", 24, (("max_length", "24"),), padding="left"),
    Case("reasonembed-llama", "llama", "last", 24, (("max_length", "24"),), padding="left"),
    Case("rader", "qwen2", "last", 24, (("max_length", "24"),), add_eos=True, padding="left"),
    Case(
        "gte-qwen2-7b",
        "qwen2",
        "last",
        24,
        (("max_length", "24"),),
        add_eos=True,
        padding="left",
        both_ways=True,
    ),
    Case("medembed-small", "bert", "cls", 40, modules="cls"),
    Case("biolord", "mpnet", "mean", 40, modules="mean"),
    Case("harrier", "gemma3", "last", 40, modules="last", padding="left"),
    Case(
        "grit",
        "mistral",
        "mean",
        24,
        (("max_length", "24"), ("query_max_length", "24")),
        prompt_counts=False,
        both_ways=True,
    ),
    Case(
        "reasonir",
        "llama",
        "mean",
        24,
        (("max_length", "24"),),
        prompt_counts=False,
        both_ways=True,
    ),
]


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    made: dict[tuple[str, str], Path] = {}

    def get(case: Case) -> Path:
        key = (case.architecture, case.modules)
        if key not in made:
            folder = tmp_path_factory.mktemp(case.architecture)
            save_model(folder, case.architecture)
            if case.modules:
                prompt = case.name != "inst-l"
                dense = 0 if prompt else 16
                save_modules(folder, pooling=case.modules, include_prompt=prompt, dense=dense)
            made[key] = folder
        return made[key]

    return get


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small are slowed by company."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def encoder_of(settings: Settings, side: Side) -> BatchEncoder:
    from r2med.retrieve.dense.transformer import build

    own = getattr(settings, f"{side}_checkpoint")
    return build(own or settings.checkpoint, settings, Resources(RunOptions(device="cpu")))


def ours(encoder: BatchEncoder, form: Form, batch: int) -> NDArray[np.float32]:
    inputs = encoder.inputs(TEXTS, form)
    rows = np.arange(len(TEXTS))
    parts = [rows[start : start + batch] for start in range(0, len(rows), batch)]
    return np.concatenate([encoder.encode(inputs, part) for part in parts])


def theirs(case: Case, folder: Path, form: Form) -> NDArray[np.float32]:
    """Plain transformers: pad on the side the model's authors do, run, pool."""
    told = {"padding_side": case.padding}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **told)
    config = transformers.AutoConfig.from_pretrained(folder)
    loader = transformers.T5EncoderModel if config.model_type == "t5" else transformers.AutoModel
    model = loader.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = [form.instruction + text for text in TEXTS]
    pair = ([""] * len(inputs), inputs) if form.pair else (inputs,)
    cut = {"truncation": True, "max_length": case.limit - case.add_eos}
    if case.add_eos:
        ids = [[*row, tokenizer.eos_token_id] for row in tokenizer(*pair, **cut)["input_ids"]]
        batch = tokenizer.pad({"input_ids": ids}, return_tensors="pt")
    else:
        batch = tokenizer(*pair, padding=True, return_tensors="pt", **cut)
    mask = batch["attention_mask"]
    with torch.no_grad():
        hidden = _hidden(model, batch, case.both_ways)
    if not case.prompt_counts and form.instruction:
        ids = tokenizer(form.instruction)["input_ids"]
        mask[:, : len(ids) - (ids[-1] == tokenizer.eos_token_id)] = 0
    pooled = _pooled(hidden, mask, case)
    if case.name == "inst-l":
        from safetensors.torch import load_file

        pooled = pooled @ load_file(folder / "2_Dense" / "model.safetensors")["linear.weight"].T
    if entries()[case.name].fields["normalize"]:
        pooled = pooled / pooled.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    vectors: NDArray[np.float32] = pooled.numpy()
    return vectors


def _pooled(hidden: Any, mask: Any, case: Case) -> Any:
    if case.pooling == "cls":
        return hidden[:, 0]
    if case.pooling == "last" and case.padding == "left":
        return hidden[:, -1]
    if case.pooling == "last":
        return torch.stack([row[int(m.sum()) - 1] for row, m in zip(hidden, mask, strict=True)])
    rows = zip(hidden, mask.bool(), strict=True)
    return torch.stack([row[m].mean(0) if m.any() else row[0] * 0 for row, m in rows])


def _hidden(model: Any, batch: Any, both_ways: bool) -> Any:
    if not both_ways:
        return model(**batch).last_hidden_state
    module = importlib.import_module(type(model).__module__)
    names = [name for name in vars(module) if name.endswith("causal_mask")]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(
                module, name, lambda **_: batch["attention_mask"][:, None, None, :].bool()
            )
        return model(**batch).last_hidden_state


@pytest.mark.parametrize("case", CASES, ids=str)
def test_embeddings_equal_those_of_independent_code(
    case: Case, checkpoints: Callable[[Case], Path]
) -> None:
    folder = checkpoints(case)
    options = {"checkpoint": str(folder), "dtype": "float32", **dict(case.options)}
    settings = parse_settings(Settings, entries()[case.name].override(options).fields)
    encoder = encoder_of(settings, "query")

    for side in SIDES:
        form = settings.form(own_task(), side)
        expected = theirs(case, folder, form)
        for batch in (1, 32):
            np.testing.assert_allclose(ours(encoder, form, batch), expected, atol=1e-5)


def test_the_dual_medcpt_uses_another_checkpoint_for_queries(tmp_path: Path) -> None:
    articles, queries = (save_model(tmp_path / name, "bert") for name in ("a", "q"))
    weights = transformers.AutoModel.from_pretrained(queries)
    with torch.no_grad():
        weights.embeddings.word_embeddings.weight.mul_(2)
    weights.save_pretrained(queries)
    options = {
        "query_checkpoint": str(queries),
        "document_checkpoint": str(articles),
        "max_length": "24",
    }
    settings = parse_settings(Settings, entries()["medcpt-dual"].override(options).fields)
    case = Case("medcpt", "bert", "cls", 24)

    for side, folder in zip(SIDES, (queries, articles), strict=True):
        form = settings.form(own_task(), side)
        vectors = ours(encoder_of(settings, side), form, 32)
        np.testing.assert_allclose(vectors, theirs(case, folder, form), atol=1e-5)
