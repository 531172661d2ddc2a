"""Tiny random checkpoints on disk, one for each architecture that a registered name stands on."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

WORDS = [
    "fever", "cough", "heart", "failure", "insulin", "renal", "biopsy", "patient", "with", "the",
    "of", "and", "acute", "chronic", "gene", "protein", "therapy", "dose", "why", "does",
]  # fmt: skip
MARKS = [*":,.?{}<>|/-", "\n"]


def sentences(count: int = 32, seed: int = 7) -> list[str]:
    """Texts of very different lengths; the first is empty."""
    chance = random.Random(seed)
    lengths = [0, 1, 60] + [chance.randint(1, 40) for _ in range(count - 3)]
    return [" ".join(chance.choices(WORDS, k=length)) for length in lengths]


def save_tokenizer(folder: Path, template: str) -> Any:
    """A word tokeniser whose template adds special tokens as the architecture's own does."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "<s>", "</s>", "[MASK]"]
    names = [*special, "Represent", "Given", "a", "Instruct", "Query", "passage", *WORDS, *MARKS]
    vocabulary = {name: place for place, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    pair = {"[CLS] $A [SEP]": "[CLS] $A [SEP] $B:1 [SEP]:1"}.get(template)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=template, pair=pair, special_tokens=[(name, vocabulary[name]) for name in special]
    )
    made: Any = PreTrainedTokenizerFast
    fast = made(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="</s>",
        bos_token="<s>",
        mask_token="[MASK]",
        model_max_length=48,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"]
        if pair
        else ["input_ids", "attention_mask"],
    )
    fast.save_pretrained(folder)
    return fast


def save_model(folder: Path, architecture: str) -> Path:
    """A model of a few thousand random weights, and its tokeniser."""
    import torch
    import transformers

    torch.manual_seed(len(architecture))
    kind, template, told = _ARCHITECTURES[architecture]
    config = getattr(transformers, f"{kind}Config")(vocab_size=64, **told)
    model = getattr(transformers, _CLASSES.get(kind, f"{kind}Model"))(config)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn_like(weights) * 0.05)
    model.save_pretrained(folder)
    save_tokenizer(folder, template)
    return folder


def save_modules(
    folder: Path, *, pooling: str, include_prompt: bool = True, dense: int = 0
) -> None:
    """Turn a plain checkpoint into one of sentence-transformers: pooling, dense, normalize."""
    import torch
    from safetensors.torch import save_file

    names = ["Transformer", "Pooling", *(["Dense"] if dense else []), "Normalize"]
    rows = [
        {"name": str(i), "path": f"{i}_{name}" if i else "", "type": _module(name)}
        for i, name in enumerate(names)
    ]
    width = json.loads((folder / "config.json").read_text())[
        "d_model" if "d_model" in (folder / "config.json").read_text() else "hidden_size"
    ]
    (folder / "modules.json").write_text(json.dumps(rows))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 40}')
    (folder / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"web_search_query": "Instruct : why Query : "}})
    )
    for row in rows[1:]:
        (folder / row["path"]).mkdir()
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps(
            {
                "word_embedding_dimension": width,
                "pooling_mode_cls_token": pooling == "cls",
                "pooling_mode_max_tokens": False,
                "pooling_mode_mean_sqrt_len_tokens": False,
                "pooling_mode_mean_tokens": pooling == "mean",
                "pooling_mode_lasttoken": pooling == "last",
                "include_prompt": include_prompt,
            }
        )
    )
    if dense:
        told = {"in_features": width, "out_features": dense, "bias": False}
        told["activation_function"] = "torch.nn.modules.linear.Identity"
        (folder / "2_Dense" / "config.json").write_text(json.dumps(told))
        save_file(
            {"linear.weight": torch.randn(dense, width)}, folder / "2_Dense" / "model.safetensors"
        )


def _module(name: str) -> str:
    return f"sentence_transformers.models.{name}"


_SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = {
    **_SMALL,
    "intermediate_size": 48,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}
_CLASSES = {"T5": "T5EncoderModel", "Gemma3Text": "Gemma3TextModel"}
_ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("Bert", "[CLS] $A [SEP]", {**_SMALL, "intermediate_size": 48}),
    "modernbert": (
        "ModernBert",
        "[CLS] $A [SEP]",
        {**_SMALL, "intermediate_size": 48, "pad_token_id": 0, "cls_token_id": 2},
    ),
    "xlm-roberta": (
        "XLMRoberta",
        "<s> $A </s>",
        {**_SMALL, "intermediate_size": 48, "pad_token_id": 0, "max_position_embeddings": 130},
    ),
    "t5": (
        "T5",
        "$A </s>",
        {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0},
    ),
    "gpt-neox": ("GPTNeoX", "$A", {**_SMALL, "intermediate_size": 48, "rotary_pct": 0.5}),
    "gemma": ("Gemma", "<s> $A", _DECODER),
    "gemma3": ("Gemma3Text", "<s> $A", {**_DECODER, "sliding_window": 64}),
    "mistral": ("Mistral", "<s> $A", _DECODER),
    "mistral-eos": ("Mistral", "<s> $A </s>", _DECODER),
    "llama": ("Llama", "<s> $A", _DECODER),
    "qwen2": ("Qwen2", "$A", {**_DECODER, "use_sliding_window": False}),
    "mpnet": ("MPNet", "<s> $A </s>", {**_SMALL, "intermediate_size": 48, "pad_token_id": 0}),
    "qwen3": ("Qwen3", "$A </s>", _DECODER),
}
