"""The tiny random models of tiny.py as fp32 GGUF files, for the llama.cpp engine."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from tiny import tiny_engine

from semspec.engine.transformers import TransformersEngine

_TENSORS = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    **{f"self_attn.{x}_proj.{kind}": f"attn_{x}.{kind}" for x in "qkv" for kind in ("weight", "bias")},
}
_WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def _interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in the order of llama.cpp's rotary embedding for Llama, which turns neighbours instead of halves."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_gguf(engine: TransformersEngine, path: Path) -> Path:
    """The model and tokenizer of a tiny engine, in fp32."""
    config, tokenizer = engine.config, engine.tokenizer
    out = gguf.GGUFWriter(path, config.model_type)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    out.add_vocab_size(config.vocab_size)
    words = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    out.add_token_list(words)
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    out.add_token_types([control if i == tokenizer.eos_token_id else normal for i in range(len(words))])
    out.add_token_merges(["Ġ a", "Ċ Ċ"])  # llama.cpp wants some; only the merged tokens of the vocabulary come of it
    out.add_eos_token_id(tokenizer.eos_token_id)
    for name, tensor in engine.model.state_dict().items():
        values = tensor.float().numpy()
        if name in _WHOLE:
            out.add_tensor(_WHOLE[name], values)
            continue
        _, _, layer, part = name.split(".", 3)
        if config.model_type == "llama" and part in ("self_attn.q_proj.weight", "self_attn.k_proj.weight"):
            heads = config.num_attention_heads if "q_proj" in part else config.num_key_value_heads
            values = _interleaved(values, heads)
        out.add_tensor(f"blk.{layer}.{_TENSORS[part]}", np.ascontiguousarray(values))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def tiny_pair(folder: Path, fp32_attention: bool = True, **kwargs):  # type: ignore[no-untyped-def]
    """The same random model in the llama.cpp engine and in the Hugging Face engine; keywords of `tiny_engine`."""
    from semspec.engine.llamacpp import load

    twin = tiny_engine(**kwargs)
    twin.tokenizer.save_pretrained(folder)
    twin.model.generation_config.save_pretrained(folder)
    return load(write_gguf(twin, folder / "tiny.gguf"), folder, twin.name, 1, fp32_attention), twin
