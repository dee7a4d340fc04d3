#!/usr/bin/env python3
"""Writes a checkpoint of random weights at a published shape.

    python3 random_checkpoint.py llama-2-7b DIR [--layers N] [--seed S]
    python3 random_checkpoint.py llama-2-7b FILE.gguf --gguf q4_k [--layers N] [--seed S]
    python3 random_checkpoint.py llama-2-7b DIR --quantise awq [--layers N] [--seed S]

The result is an ordinary Hugging Face directory without a tokenizer: config.json
and model.safetensors in bfloat16. A generator serves `tokens` requests from it.
Experts of qwen3-30b-a3b and deepseek-v2-lite are one tensor a layer, those of gpt-oss-20b MXFP4, as published.
With --gguf it is a GGUF file of quantised weights (random_gguf.py), with --quantise a
directory of quantised ones (random_quantised.py).
Weights are normal with the deviation 0.02 of the published initialisation (norms
and biases are 1), so that activations stay in range through all layers. Norms of
Gemma 4's queries are 1/16: nothing else scales its scores.

Needs numpy; uses torch and a GPU if there are any, which takes seconds for 7B.
"""
import argparse
import json
import struct
import sys
from pathlib import Path

import numpy as np

import random_gguf
import random_quantised

# Fields of a family's config.json that differ from Llama's; its tensors are in `tensors`.
FAMILIES = {
    "qwen2.5": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "use_sliding_window": False},
    "qwen3-30b-a3b": {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": 128,
                      "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": True},
    "gpt-oss": {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_local_experts": 32,
                "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True,
                "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                                 "original_max_position_embeddings": 4096},
                "quantization_config": {"quant_method": "mxfp4"}},
    "deepseek-v2-lite": {"architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "rms_norm_eps": 1e-6,
                         "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                         "v_head_dim": 128, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
                         "moe_intermediate_size": 1408, "first_k_dense_replace": 1, "norm_topk_prob": False,
                         "topk_method": "greedy", "scoring_func": "softmax", "routed_scaling_factor": 1.0,
                         "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
                                          "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096}},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "use_sliding_window": False},
    "phi-4-mini": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.75,
                   "original_max_position_embeddings": 4096,
                   "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [1.0 + i for i in range(48)]}},
    "phi": {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "sliding_window": 2047},
    "llama-3.1": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192}},
    "mistral-nemo": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None},
    "smollm3": {"architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3"},
    "granite": {"architectures": ["GraniteForCausalLM"], "model_type": "granite", "embedding_multiplier": 12.0,
                "attention_multiplier": 0.0078125, "residual_multiplier": 0.22, "logits_scaling": 16.0},
    "gemma-3": {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
                "rms_norm_eps": 1e-6, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000.0, "sliding_window": 1024,
                "sliding_window_pattern": 6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    "gemma-4": {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh",
                "rms_norm_eps": 1e-6, "final_logit_softcapping": 30.0, "global_head_dim": 512},
    "mistral": {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 4096},
    "llama": {},
}


def family(name):
    return next(f for f in FAMILIES if name.startswith(f))


# hidden, inner, layers, heads, KV heads, head size, vocabulary, context, RoPE base, tied head
SHAPES = {
    "llama-2-7b": (4096, 11008, 32, 32, 32, 128, 32000, 4096, 10000.0, False),
    "llama-3.2-1b": (2048, 8192, 16, 32, 8, 64, 128256, 131072, 500000.0, True),
    "llama-3-70b": (8192, 28672, 80, 64, 8, 128, 128256, 8192, 500000.0, False),
    "llama-3.1-8b": (4096, 14336, 32, 32, 8, 128, 128256, 131072, 500000.0, False),
    "mistral-7b": (4096, 14336, 32, 32, 8, 128, 32000, 32768, 10000.0, False),
    "qwen2.5-0.5b": (896, 4864, 24, 14, 2, 64, 151936, 32768, 1000000.0, True),
    "qwen3-30b-a3b": (2048, 6144, 48, 32, 4, 128, 151936, 40960, 1000000.0, False),
    "deepseek-v2-lite": (2048, 10944, 27, 16, 16, 192, 102400, 163840, 10000.0, False),
    "gpt-oss-20b": (2880, 2880, 24, 64, 8, 64, 201088, 131072, 150000.0, False),
    "qwen3-4b": (2560, 9728, 36, 32, 8, 128, 151936, 40960, 1000000.0, True),
    "qwen3-embedding-0.6b": (1024, 3072, 28, 16, 8, 128, 151669, 32768, 1000000.0, True),
    "qwen3-embedding-8b": (4096, 12288, 36, 32, 8, 128, 151665, 40960, 1000000.0, False),
    "mistral-nemo": (5120, 14336, 40, 32, 8, 128, 131072, 131072, 1000000.0, False),
    "smollm3-3b": (2048, 11008, 36, 16, 4, 128, 128256, 65536, 5000000.0, True),
    "granite-3.1-8b": (4096, 12800, 40, 32, 8, 128, 49155, 131072, 10000000.0, True),
    "gemma-3-4b": (2560, 10240, 34, 8, 4, 256, 262208, 131072, 1000000.0, True),
    "gemma-4-31b": (5376, 21504, 60, 32, 16, 256, 262144, 262144, 1000000.0, True),
    "gemma-4-26b-a4b": (2816, 2112, 30, 16, 8, 256, 262144, 262144, 1000000.0, True),
    "gemma-4-e4b": (2560, 10240, 42, 8, 2, 256, 262144, 131072, 1000000.0, True),
    "phi-4-mini": (3072, 8192, 32, 24, 8, 128, 200064, 131072, 10000.0, True),
    "phi-3-mini": (3072, 8192, 32, 32, 32, 96, 32064, 4096, 10000.0, False),
}


# What models of Gemma 4 have beside: KV heads of layers without a window, whose keys are values too; experts, of a row, and
# their width; the width of embeddings of layers; layers that use the keys and values of others; the window.
GEMMA4 = {
    "gemma-4-31b": dict(wide=4, experts=None, per_layer=0, shared=0, window=1024),
    "gemma-4-26b-a4b": dict(wide=2, experts=(128, 8, 704), per_layer=0, shared=0, window=1024),
    "gemma-4-e4b": dict(wide=None, experts=None, per_layer=256, shared=18, window=512),
}


def gemma4_config(name, layers):
    g, kinds = GEMMA4[name], ["full_attention" if (i + 1) % 6 == 0 or i + 1 == layers else "sliding_attention" for i in range(layers)]
    count, used, width = g["experts"] or (None, None, None)
    return {"layer_types": kinds, "num_global_key_value_heads": g["wide"], "attention_k_eq_v": g["wide"] is not None,
            "hidden_size_per_layer_input": g["per_layer"], "vocab_size_per_layer_input": SHAPES[name][6],
            "num_kv_shared_layers": min(g["shared"], max(0, layers - 6)), "sliding_window": g["window"],
            "enable_moe_block": count is not None, "num_experts": count, "top_k_experts": used, "moe_intermediate_size": width}


def gemma4_tensors(name, layers):
    hidden, inner, _, heads, kv, dim, vocab, *_ = SHAPES[name]
    g, c = GEMMA4[name], gemma4_config(name, layers)
    width = g["per_layer"]
    yield "model.embed_tokens.weight", (vocab, hidden)
    if width:
        yield "model.embed_tokens_per_layer.weight", (vocab, layers * width)
        yield "model.per_layer_model_projection.weight", (layers * width, hidden)
        yield "model.per_layer_projection_norm.weight", (width,)
    for i, kind in enumerate(c["layer_types"]):
        p, wide, own = f"model.layers.{i}.", kind == "full_attention", i < layers - c["num_kv_shared_layers"]
        d, keys = (512, g["wide"] or kv) if wide else (dim, kv)
        yield p + "self_attn.q_proj.weight", (heads * d, hidden)
        yield p + "self_attn.q_norm.weight", (d,)
        if own:
            yield p + "self_attn.k_proj.weight", (keys * d, hidden)
            yield p + "self_attn.k_norm.weight", (d,)
            if not (wide and c["attention_k_eq_v"]):
                yield p + "self_attn.v_proj.weight", (keys * d, hidden)
        yield p + "self_attn.o_proj.weight", (hidden, heads * d)
        for norm in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            yield f"{p}{norm}_layernorm.weight", (hidden,)
        yield p + "layer_scalar", (1,)
        yield from feed_forward(p + "mlp.", hidden, inner)
        if g["experts"]:
            count, _, each = g["experts"]
            yield p + "router.proj.weight", (count, hidden)
            yield p + "router.scale", (hidden,)
            yield p + "router.per_expert_scale", (count,)
            yield p + "experts.gate_up_proj", (count, 2 * each, hidden)
            yield p + "experts.down_proj", (count, hidden, each)
            for norm in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
                yield f"{p}{norm}.weight", (hidden,)
        if width:
            yield p + "per_layer_input_gate.weight", (width, hidden)
            yield p + "per_layer_projection.weight", (hidden, width)
            yield p + "post_per_layer_input_norm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)


# EAGLE-3 heads: the model's shape, and the head's vocabulary. Published for Llama-3.1-8B with that of 32,000.
HEADS = {"eagle3-llama-3.1-8b": ("llama-3.1-8b", 32000)}


def head_config(name):
    model, vocab = HEADS[name]
    return {**config(model, 1), "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": vocab}


def head_tensors(name):
    """Names and shapes of an EAGLE-3 head's tensors; those of d2t and t2d come apart."""
    model, draft_vocab = HEADS[name]
    hidden, inner, _, heads, kv, dim, *_ = SHAPES[model]
    yield "fc.weight", (hidden, 3 * hidden)
    for part, rows in (("q", heads), ("k", kv), ("v", kv)):
        yield f"midlayer.self_attn.{part}_proj.weight", (rows * dim, 2 * hidden)
    yield "midlayer.self_attn.o_proj.weight", (hidden, heads * dim)
    yield "midlayer.mlp.gate_proj.weight", (inner, hidden)
    yield "midlayer.mlp.up_proj.weight", (inner, hidden)
    yield "midlayer.mlp.down_proj.weight", (hidden, inner)
    for norm in ("midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm", "norm"):
        yield norm + ".weight", (hidden,)
    yield "lm_head.weight", (draft_vocab, hidden)


def tokens_of_head(name):
    """d2t and t2d of a head with each fourth token of the model, or so: (name, dtype, shape, bytes)."""
    model, draft_vocab = HEADS[name]
    vocab = SHAPES[model][6]
    tokens = np.arange(draft_vocab, dtype=np.int64) * vocab // draft_vocab
    known = np.zeros(vocab, np.uint8)
    known[tokens] = 1
    yield "d2t", "I64", (draft_vocab,), lambda: [(tokens - np.arange(draft_vocab)).tobytes()]
    yield "t2d", "BOOL", (vocab,), lambda: [known.tobytes()]


def config(name, layers):
    if name in HEADS:
        return head_config(name)
    hidden, inner, _, heads, kv, dim, vocab, context, theta, tied = SHAPES[name]
    act = {} if name.startswith("gemma") else {"hidden_act": "silu"}
    if name in GEMMA4:
        act, theta = gemma4_config(name, layers), None
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", **act, "dtype": "bfloat16",
        "hidden_size": hidden, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv, "head_dim": dim, "vocab_size": vocab, "max_position_embeddings": context,
        "rms_norm_eps": 1e-5, "rope_theta": theta, "tie_word_embeddings": tied, "eos_token_id": vocab - 1,
        **FAMILIES[family(name)],
    }


def experts(kind, p, hidden, inner, apart):
    """Names and shapes of the router and the experts of a layer; `apart`: gates and ups, as in GGUF."""
    if kind == "gpt-oss":
        yield p + "mlp.router.weight", (32, hidden)
        yield p + "mlp.router.bias", (32,)
        for part, rows, cols in (("gate_up", 2 * inner, hidden), ("down", hidden, inner)):
            yield f"{p}mlp.experts.{part}_proj_blocks", (32, rows, cols // 32, 16)
            yield f"{p}mlp.experts.{part}_proj_scales", (32, rows, cols // 32)
            yield f"{p}mlp.experts.{part}_proj_bias", (32, rows)
        return
    count, width = (64, 1408) if kind == "deepseek-v2-lite" else (128, 768)
    yield p + "mlp.gate.weight", (count, hidden)
    if kind == "deepseek-v2-lite":
        yield from feed_forward(p + "mlp.shared_experts.", hidden, 2 * width)
    if apart:
        yield p + "mlp.experts.gate_proj.weight", (count, width, hidden)
        yield p + "mlp.experts.up_proj.weight", (count, width, hidden)
        yield p + "mlp.experts.down_proj.weight", (count, hidden, width)
        return
    yield p + "mlp.experts.gate_up_proj", (count, 2 * width, hidden)
    yield p + "mlp.experts.down_proj", (count, hidden, width)


def feed_forward(p, hidden, inner):
    yield p + "gate_proj.weight", (inner, hidden)
    yield p + "up_proj.weight", (inner, hidden)
    yield p + "down_proj.weight", (hidden, inner)


def latents(p, hidden, heads):
    """Names and shapes of DeepSeek-V2-Lite's queries, and of its latents, of 512 elements and 64 that RoPE rotates."""
    yield p + "self_attn.q_proj.weight", (heads * 192, hidden)
    yield p + "self_attn.kv_a_proj_with_mqa.weight", (576, hidden)
    yield p + "self_attn.kv_a_layernorm.weight", (512,)
    yield p + "self_attn.kv_b_proj.weight", (heads * 256, 512)
    yield p + "self_attn.o_proj.weight", (hidden, heads * 128)


def tensors(name, layers, apart=False):
    """Names and shapes, in the order in which they are written."""
    hidden, inner, _, heads, kv, dim, vocab, _, _, tied = SHAPES[name]
    kind = family(name)
    if kind == "gemma-4":
        yield from gemma4_tensors(name, layers)
        return
    yield "model.embed_tokens.weight", (vocab, hidden)
    for i in range(layers):
        p = f"model.layers.{i}."
        yield p + "input_layernorm.weight", (hidden,)
        if kind.startswith("phi"):
            yield p + "self_attn.qkv_proj.weight", ((heads + 2 * kv) * dim, hidden)
        elif kind == "deepseek-v2-lite":
            yield from latents(p, hidden, heads)
        else:
            yield p + "self_attn.q_proj.weight", (heads * dim, hidden)
            yield p + "self_attn.k_proj.weight", (kv * dim, hidden)
            yield p + "self_attn.v_proj.weight", (kv * dim, hidden)
        if kind in ("qwen2.5", "gpt-oss"):
            yield p + "self_attn.q_proj.bias", (heads * dim,)
            yield p + "self_attn.k_proj.bias", (kv * dim,)
            yield p + "self_attn.v_proj.bias", (kv * dim,)
        if kind == "gemma-3":
            yield p + "pre_feedforward_layernorm.weight", (hidden,)
            yield p + "post_feedforward_layernorm.weight", (hidden,)
        if kind == "gpt-oss":
            yield p + "self_attn.o_proj.bias", (hidden,)
            yield p + "self_attn.sinks", (heads,)
        if kind in ("qwen3", "qwen3-30b-a3b", "gemma-3"):
            yield p + "self_attn.q_norm.weight", (dim,)
            yield p + "self_attn.k_norm.weight", (dim,)
        if kind != "deepseek-v2-lite":
            yield p + "self_attn.o_proj.weight", (hidden, heads * dim)
        yield p + "post_attention_layernorm.weight", (hidden,)
        if kind in ("qwen3-30b-a3b", "gpt-oss") or kind == "deepseek-v2-lite" and i > 0:
            yield from experts(kind, p, hidden, inner, apart)
            continue
        if kind.startswith("phi"):
            yield p + "mlp.gate_up_proj.weight", (2 * inner, hidden)
            yield p + "mlp.down_proj.weight", (hidden, inner)
        else:
            yield from feed_forward(p + "mlp.", hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not tied:
        yield "lm_head.weight", (vocab, hidden)


class Weights:
    """Random bfloat16 bytes, from a GPU if there is one."""

    def __init__(self, seed):
        try:
            import torch
            self.torch = torch if torch.cuda.is_available() else None
        except ImportError:
            self.torch = None
        if self.torch:
            self.generator = self.torch.Generator("cuda").manual_seed(seed)
        else:
            self.generator = np.random.default_rng(seed)

    def bytes(self, shape, norm=1):
        if len(shape) == 1:  # a norm or a bias
            return (np.full(shape, norm, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        if self.torch:
            t = self.torch.empty(shape, dtype=self.torch.bfloat16, device="cuda").normal_(0, 0.02, generator=self.generator)
            return t.view(self.torch.int16).cpu().numpy()
        f = self.generator.standard_normal(shape, np.float32) * np.float32(0.02)
        return (f.view(np.uint32) >> 16).astype(np.uint16)

    def codes(self, shape):
        """Random bytes."""
        if self.torch:
            return self.torch.randint(0, 256, shape, dtype=self.torch.uint8, device="cuda",
                                      generator=self.generator).cpu().numpy()
        return self.generator.integers(0, 256, shape, np.uint8)


SIZES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1, "BOOL": 1, "I32": 4, "I64": 8}  # bytes of an element


def stored(name, layers, quantise, seed):
    """(name, dtype, shape, function that returns parts of its bytes) of each tensor in the file."""
    weights, quantised = Weights(seed), random_quantised.Layers(quantise, seed) if quantise else None
    for tensor, dims in head_tensors(name) if name in HEADS else tensors(name, layers):
        if quantised and tensor.endswith("_proj.weight"):
            yield from quantised.tensors(tensor.removesuffix(".weight"), *dims)
        elif tensor.endswith("_blocks"):
            yield tensor, "U8", dims, lambda dims=dims: [weights.codes(dims)]
        elif tensor.endswith("_scales"):  # 2^-7 times codes, whose deviation is 2.9
            yield tensor, "U8", dims, lambda dims=dims: [np.full(dims, 120, np.uint8)]
        else:
            norm = 1 / 16 if name in GEMMA4 and tensor.endswith("q_norm.weight") else 1
            yield tensor, "BF16", dims, lambda dims=dims, norm=norm: [weights.bytes(dims, norm)]
    if name in HEADS:
        yield from tokens_of_head(name)


def say_embedding(folder):
    """Says that a model is meant for embeddings, as sentence-transformers does."""
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(steps)]))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_lasttoken": True}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=sorted([*SHAPES, *HEADS]))
    parser.add_argument("path", type=Path, metavar="PATH", help="a directory, or with --gguf a file")
    parser.add_argument("--gguf", choices=random_gguf.FORMATS, help="write a GGUF file of this format")
    parser.add_argument("--quantise", choices=random_quantised.FORMATS, help="write a quantised directory of this format")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    layers = args.layers or (1 if args.shape in HEADS else SHAPES[args.shape][2])
    if args.shape in HEADS and (args.gguf or args.quantise):
        parser.error("an EAGLE-3 head is not quantised")
    if args.shape == "gpt-oss-20b" and (args.gguf or args.quantise):
        parser.error("gpt-oss-20b is a directory with experts of MXFP4")
    if args.shape in GEMMA4 and args.gguf:
        parser.error("of a GGUF file of Gemma 4 only what reel-generator convert makes is known to be right")
    if args.shape == "deepseek-v2-lite" and (args.gguf or args.quantise):
        parser.error("deepseek-v2-lite is a directory of bfloat16")
    if args.gguf:
        at = random_gguf.write(args.path, args.gguf, config(args.shape, layers),
                               tensors(args.shape, layers, True), args.seed)
        print(f"{args.shape}, {layers} layers, {args.gguf}: {at / 1e9:.2f} GB in {args.path}", file=sys.stderr)
        return
    args.path.mkdir(parents=True, exist_ok=True)
    fields = config(args.shape, layers)
    if args.quantise:
        fields["quantization_config"] = random_quantised.CONFIGS[args.quantise]
    (args.path / "config.json").write_text(json.dumps(fields, indent=1) + "\n")
    if "embedding" in args.shape:
        say_embedding(args.path)
    header, at, all_tensors = {}, 0, list(stored(args.shape, layers, args.quantise, args.seed))
    for name, dtype, dims, _ in all_tensors:
        size = SIZES[dtype] * int(np.prod(dims))
        header[name] = {"dtype": dtype, "shape": list(dims), "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(args.path / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        for _, _, _, parts in all_tensors:
            for part in parts():
                f.write(part)
    print(f"{args.shape}, {layers} layers: {at / 1e9:.2f} GB in {args.path}", file=sys.stderr)


if __name__ == "__main__":
    main()
