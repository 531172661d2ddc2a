"""Tiny random rerankers on disk, one for each architecture behind the published names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    XLMRobertaConfig,
    XLMRobertaForSequenceClassification,
)

WORDS = [
    *("fever", "cough", "heart", "liver", "kidney", "pain", "acute", "chronic", "drug", "dose"),
    *("test", "blood", "pressure", "query", "document", ":", "which", "what", "treats", "causes"),
    *("the", "a", "of", "in", "patient", "renal", "failure", "anemia"),
]
SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 80,
    "initializer_range": 0.3,
}


def tokenizer(special: list[str], pair: str, **names: str) -> PreTrainedTokenizerFast:
    """Whole words; `pair` is the template that puts special tokens around two texts."""
    vocabulary = {word: place for place, word in enumerate([*special, *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=names["unk_token"]))
    words.normalizer = normalizers.Lowercase()
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    used = {token: vocabulary[token] for token in special}
    words.post_processor = processors.TemplateProcessing(
        single=pair.split(" $B")[0].replace(":0", ""),
        pair=pair,
        special_tokens=list(used.items()),
    )
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=64, **names)


def save_bert(folder: Path, labels: int = 2) -> Path:
    torch.manual_seed(1)
    tokens = tokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]"],
        "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )
    tokens.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    config = BertConfig(vocab_size=len(tokens), num_labels=labels, **SHAPE)
    return _saved(BertForSequenceClassification(config), tokens, folder)


def save_xlmr(folder: Path) -> Path:
    torch.manual_seed(2)
    tokens = tokenizer(
        ["<s>", "<pad>", "</s>", "<unk>"],
        "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0",
        pad_token="<pad>",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
    )
    config = XLMRobertaConfig(
        vocab_size=len(tokens), num_labels=1, pad_token_id=1, type_vocab_size=1, **SHAPE
    )
    return _saved(XLMRobertaForSequenceClassification(config), tokens, folder)


def save_llama(folder: Path) -> Path:
    """A base model without any padding token, as Llama-2 is."""
    torch.manual_seed(3)
    tokens = tokenizer(
        ["<unk>", "<s>", "</s>"],
        "<s>:0 $A:0 <s>:0 $B:0",
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
    )
    config = LlamaConfig(
        vocab_size=len(tokens), num_labels=1, num_key_value_heads=4, pad_token_id=None, **SHAPE
    )
    return _saved(LlamaForSequenceClassification(config), tokens, folder)


def save_lora(base: Path, folder: Path) -> Path:
    """An adapter with a classification head of its own, as rankllama's."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(4)
    model = LlamaForSequenceClassification.from_pretrained(base, num_labels=1)
    told = LoraConfig(
        task_type="SEQ_CLS", r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False
    )
    get_peft_model(model, told).save_pretrained(folder)
    return folder


def save_qwen(folder: Path) -> Path:
    """A causal model with Qwen3's marks; every byte is a token, yes and no are words."""
    torch.manual_seed(6)
    tokens = _bytes(["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["yes", "no"])
    config = Qwen3Config(
        vocab_size=len(tokens),
        num_key_value_heads=2,
        head_dim=8,
        **SHAPE | {"max_position_embeddings": 2048},
    )
    return _saved(Qwen3ForCausalLM(config), tokens, folder)


def save_gemma(folder: Path) -> Path:
    """A causal model with Gemma's marks."""
    torch.manual_seed(7)
    tokens = _bytes(["<pad>", "<eos>", "<bos>"], ["Yes", "No"])
    config = GemmaConfig(
        vocab_size=len(tokens),
        num_key_value_heads=1,
        head_dim=8,
        **SHAPE | {"max_position_embeddings": 2048},
    )
    return _saved(GemmaForCausalLM(config), tokens, folder)


def _bytes(special: list[str], words: list[str]) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*special, *alphabet])}
    tokens = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokens.add_special_tokens(special)
    tokens.add_tokens(words)
    return PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token=special[0])


def _saved(model: Any, tokens: PreTrainedTokenizerFast, folder: Path) -> Path:
    model.eval().save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder
