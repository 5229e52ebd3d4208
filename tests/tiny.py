"""A tiny random language model with a byte tokenizer, made in milliseconds: for tests that need a real forward pass."""

from __future__ import annotations

import torch
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from semspec.engine.half import HalfLinear
from semspec.engine.lean import make_lean
from semspec.engine.prepacked import PrepackedLinear
from semspec.engine.replace import replace
from semspec.engine.transformers import TransformersEngine, placed


def byte_tokenizer(extra_merges: bool = False) -> PreTrainedTokenizerFast:
    """Every byte a token, `<eos>` the last; `extra_merges` adds a few merges, so that vocabularies differ."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "a"), ("Ċ", "Ċ")] if extra_merges else []
    words = [*alphabet, *("".join(m) for m in merges)]
    tokenizer = Tokenizer(BPE(vocab={w: i for i, w in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<eos>")


def tiny_engine(
    kind: str = "qwen2",
    seed: int = 0,
    weights: str = "fp32",
    merges: bool = False,
    layers: int = 3,
    device: str = "cpu",
    attention: str = "sdpa",
    lean: bool = True,
) -> TransformersEngine:
    """A random model of `layers` layers and 64 hidden units."""
    torch.manual_seed(seed)
    tokenizer = byte_tokenizer(merges)
    size = dict(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.1 if weights == "int8" else 0.3,
        attn_implementation=attention,
    )
    model = Qwen2ForCausalLM(Qwen2Config(**size)) if kind == "qwen2" else LlamaForCausalLM(LlamaConfig(**size))
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    if weights == "int8":
        placed(model, weights, device)
    elif weights == "half":
        make_lean(replace(model, HalfLinear))
    elif weights == "bf16":
        model = model.to(torch.bfloat16)
    elif weights == "prepacked":
        make_lean(replace(model.to(torch.bfloat16), PrepackedLinear))
    if not lean:  # as transformers has them
        for i, layer in enumerate(model.model.layers):
            model.model.layers[i] = layer.layer
    return TransformersEngine(model.to(device), tokenizer, f"tiny-{kind}-{seed}")
