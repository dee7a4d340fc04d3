#!/usr/bin/env python3
"""Makes a tiny random checkpoint of each family beside this file, and what
transformers computes for it in float32 on a processor. They were made with

    pip install torch==2.13.0 transformers==5.17.0 safetensors==0.8.0 numpy==2.4.6
    python make.py

Each folder has config.json and safetensors as save_pretrained writes them,
golden.json, a list of {tokens, greedy, margins}: prompts of 1, 2, 17, 64 and 300
tokens, the 32 tokens of greatest logit that follow, and how far each is ahead of
the second; and logits.f32, little-endian float32 [prompts][vocabulary], the
logits after each prompt. Prompts with a nearer tie than MARGIN are passed over.
"""
import json
import struct
from pathlib import Path

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Phi3Config, Phi3ForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

HERE = Path(__file__).parent
LENGTHS, NEW, MARGIN = (1, 2, 17, 64, 300), 32, 0.02
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=512,
             bos_token_id=1, eos_token_id=2, pad_token_id=None, attn_implementation="eager")
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, low_freq_factor=1.0, high_freq_factor=4.0)

FAMILIES = {
    "llama-2": (LlamaForCausalLM, LlamaConfig(
        **SMALL, vocab_size=257, num_attention_heads=2, num_key_value_heads=2, rms_norm_eps=1e-5), "bfloat16", None),
    "llama-3.1": (LlamaForCausalLM, LlamaConfig(
        **SMALL, vocab_size=301, num_attention_heads=4, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5,
        rope_parameters=dict(LLAMA3, factor=8.0, original_max_position_embeddings=64)), "bfloat16", None),
    "llama-3.2": (LlamaForCausalLM, LlamaConfig(
        **SMALL, vocab_size=389, num_attention_heads=8, num_key_value_heads=2, head_dim=32, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters=dict(LLAMA3, factor=32.0, original_max_position_embeddings=128)), "bfloat16", None),
    "mistral": (MistralForCausalLM, MistralConfig(
        **SMALL, vocab_size=263, num_attention_heads=4, num_key_value_heads=1, head_dim=32, rms_norm_eps=1e-5, sliding_window=24),
        "float16", "100KB"),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config(
        **SMALL, vocab_size=307, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), "bfloat16", None),
    "qwen2-window": (Qwen2ForCausalLM, Qwen2Config(
        **SMALL, vocab_size=259, num_attention_heads=2, num_key_value_heads=2, use_sliding_window=True, sliding_window=40,
        max_window_layers=1), "bfloat16", None),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config(
        **SMALL, vocab_size=311, num_attention_heads=4, num_key_value_heads=2, head_dim=32, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1000000.0)), "float32", None),
    "phi-3": (Phi3ForCausalLM, Phi3Config(
        **SMALL, vocab_size=333, num_attention_heads=2, num_key_value_heads=2, sliding_window=47, original_max_position_embeddings=512),
        "bfloat16", None),
}


def randomise(model, generator):
    """Weights that let every part of the pass matter: norms near 1, biases that are not 0."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("norm.weight") or "layernorm" in name:
            p.data = 1 + 0.2 * noise
        elif p.dim() == 1:
            p.data = 0.5 * noise
        else:
            p.data = noise / p.shape[1] ** 0.5
    model.tie_weights()


@torch.no_grad()
def follow(model, tokens):
    """The logits after tokens, and NEW greedy tokens with their margins."""
    first, greedy, margins, all_tokens = None, [], [], list(tokens)
    for _ in range(NEW):
        logits = model(torch.tensor([all_tokens]), use_cache=False).logits[0, -1]
        first = logits if first is None else first
        best = torch.topk(logits, 2)
        greedy.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        all_tokens.append(greedy[-1])
    return first, greedy, margins


def golden(model, vocab, generator):
    cases, logits = [], b""
    for length in LENGTHS:
        while True:
            tokens = torch.randint(0, vocab, (length,), generator=generator).tolist()
            first, greedy, margins = follow(model, tokens)
            if min(margins) >= MARGIN:
                break
        cases.append({"tokens": tokens, "greedy": greedy, "margins": margins})
        logits += struct.pack(f"<{vocab}f", *first.tolist())
    return cases, logits


def main():
    for number, (name, (kind, config, dtype, shards)) in enumerate(FAMILIES.items()):
        generator = torch.Generator().manual_seed(number)
        torch.manual_seed(number)
        model = kind(config).eval()
        randomise(model, generator)
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        model.to(getattr(torch, dtype)).save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        cases, logits = golden(model, config.vocab_size, generator)
        (folder / "golden.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
        (folder / "logits.f32").write_bytes(logits)
        print(name, min(min(c["margins"]) for c in cases), sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
