#!/usr/bin/env python3
"""Makes a tiny random checkpoint of each family beside this file, and what
transformers computes for it in float32 on a processor. They were made with

    pip install torch==2.13.0 transformers==5.17.0 safetensors==0.8.0 numpy==2.4.6
    python make.py [NAME...]

Each folder has config.json and safetensors as save_pretrained writes them,
golden.json, a list of {tokens, greedy, margins}: prompts of 1, 2, 17, 64 and 300
tokens, the 32 tokens of greatest logit that follow, and how far each is ahead of
the second; and logits.f32, little-endian float32 [prompts][vocabulary], the
logits after each prompt. Prompts with a nearer tie than MARGIN are passed over.

transformers chooses longrope's factors by the length so far, Reel by the served
context: the values are those of the long factors, and in the folder short, of
prompts that fit into the original context, those of the short ones.
"""
import json
import struct
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, Gemma2Config, Gemma2ForCausalLM, Gemma3Config, Gemma3ForCausalLM, Gemma3ForConditionalGeneration,
                          Gemma3TextConfig, Gemma4Config, Gemma4ForCausalLM, Gemma4ForConditionalGeneration, Gemma4TextConfig, Glm4Config, Glm4ForCausalLM, Glm4MoeLiteConfig, Glm4MoeLiteForCausalLM, GptOssConfig, GptOssForCausalLM, GraniteConfig,
                          GraniteForCausalLM, GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM, LlamaConfig,
                          LlamaForCausalLM, Ministral3Config, Ministral3ForCausalLM, Mistral3Config,
                          Mistral3ForConditionalGeneration, MistralConfig, MistralForCausalLM, MixtralConfig,
                          MixtralForCausalLM, Mxfp4Config, Olmo2Config, Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM, OlmoeConfig,
                          OlmoeForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = Path(__file__).parent
LENGTHS, NEW, MARGIN = (1, 2, 17, 64, 300), 32, 0.02
SMALL = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=512,
             bos_token_id=1, eos_token_id=2, pad_token_id=None, attn_implementation="eager")
TEXT = {k: v for k, v in SMALL.items() if k != "attn_implementation"}
VISION = dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
              patch_size=14, image_size=28)
TINY = dict(SMALL, hidden_size=32, intermediate_size=48, num_attention_heads=2, num_key_value_heads=1, head_dim=32)
GEMMA = dict(TINY, intermediate_size=64, num_hidden_layers=4, sliding_window=24)
GEMMA4 = dict(TINY, intermediate_size=64, num_hidden_layers=4, sliding_window=24, num_attention_heads=4, num_key_value_heads=2,
              head_dim=32, global_head_dim=64, layer_types=["sliding_attention", "full_attention"] * 2, final_logit_softcapping=6.0,
              vocab_size_per_layer_input=293, vocab_size=293, tie_word_embeddings=True)
SIGLIP = dict(model_type="siglip_vision_model", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
              patch_size=14, image_size=28, vision_use_head=False)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, low_freq_factor=1.0, high_freq_factor=4.0)
LATENT = dict({k: v for k, v in SMALL.items() if k != "num_hidden_layers"}, hidden_size=32, intermediate_size=64,
              num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=48, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=32,
              n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=32)
LATENT_YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128, beta_fast=32.0,
                   beta_slow=1.0, mscale=0.9, mscale_all_dim=0.7)
GPT_OSS = dict(rope_type="yarn", rope_theta=150000.0, factor=4.0, original_max_position_embeddings=128, beta_fast=32.0,
               beta_slow=1.0, truncate=False)

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
    "mistral-3": (Mistral3ForConditionalGeneration, Mistral3Config(
        text_config=dict(TEXT, model_type="mistral", vocab_size=263, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                         rms_norm_eps=1e-5, sliding_window=None, rope_parameters=dict(rope_type="default", rope_theta=1e9)),
        vision_config=VISION, attn_implementation="eager"), "bfloat16", None),
    "ministral-3": (Ministral3ForCausalLM, Ministral3Config(
        **dict(SMALL, max_position_embeddings=2048), vocab_size=271, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        rope_parameters=dict(rope_type="yarn", rope_theta=1e6, factor=4.0, original_max_position_embeddings=512, beta_fast=32.0,
                             beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)), "bfloat16", None),
    "llama-linear": (LlamaForCausalLM, LlamaConfig(
        **SMALL, vocab_size=257, num_attention_heads=2, num_key_value_heads=1, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)), "bfloat16", None),
    "qwen2-yarn": (Qwen2ForCausalLM, Qwen2Config(
        **SMALL, vocab_size=307, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=128)),
        "bfloat16", None),
    "phi-4-mini": (Phi3ForCausalLM, Phi3Config(
        **SMALL, vocab_size=333, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=True, sliding_window=700,
        original_max_position_embeddings=64,
        rope_parameters=dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75,
                             short_factor=[1.0 + 0.02 * i for i in range(12)], long_factor=[1.0 + 0.5 * i for i in range(12)])),
        "bfloat16", None),
    "smollm3": (SmolLM3ForCausalLM, SmolLM3Config(
        **dict(SMALL, num_hidden_layers=4), vocab_size=277, num_attention_heads=2, num_key_value_heads=1,
        rope_parameters=dict(rope_type="default", rope_theta=5e6)), "bfloat16", None),
    "granite": (GraniteForCausalLM, GraniteConfig(
        **TINY, vocab_size=320, tie_word_embeddings=True, embedding_multiplier=12.0,
        attention_multiplier=0.11, residual_multiplier=0.22, logits_scaling=0.25), "float32", None),
    "granite-4": (GraniteMoeHybridForCausalLM, GraniteMoeHybridConfig(
        **dict(TINY, intermediate_size=32), vocab_size=267, tie_word_embeddings=True,
        num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48, position_embedding_type="rope",
        layer_types=["attention"] * 2, mamba_n_heads=4, mamba_expand=2, embedding_multiplier=10.0, attention_multiplier=0.2,
        residual_multiplier=0.25, logits_scaling=0.25), "bfloat16", None),
    "olmo-2": (Olmo2ForCausalLM, Olmo2Config(
        **TINY, vocab_size=269), "float32", None),
    "olmo-3": (Olmo3ForCausalLM, Olmo3Config(
        **dict(TINY, num_hidden_layers=4), vocab_size=273, sliding_window=24,
        rope_scaling=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=128), rope_theta=10000.0),
        "bfloat16", None),
    "glm-4": (Glm4ForCausalLM, Glm4Config(
        **dict(TINY, intermediate_size=64), vocab_size=281), "bfloat16", None),
    "gemma-2": (Gemma2ForCausalLM, Gemma2Config(
        **GEMMA, vocab_size=283, query_pre_attn_scalar=48, attn_logit_softcapping=2.0, final_logit_softcapping=6.0), "float32", None),
    "gemma-3-text": (Gemma3ForCausalLM, Gemma3TextConfig(
        **dict(GEMMA, num_hidden_layers=7), vocab_size=293, query_pre_attn_scalar=48,
        rope_scaling=dict(rope_type="linear", factor=8.0)), "bfloat16", None),
    "gemma-3": (Gemma3ForConditionalGeneration, Gemma3Config(
        text_config={**{k: v for k, v in GEMMA.items() if k in TEXT or k == "head_dim"}, "num_attention_heads": 2,
                     "num_key_value_heads": 1, "sliding_window": 24, "vocab_size": 293, "num_hidden_layers": 2,
                     "model_type": "gemma3_text"},
        vision_config=SIGLIP, mm_tokens_per_image=4, attn_implementation="eager"), "bfloat16", None),
    "gemma-4": (Gemma4ForConditionalGeneration, Gemma4Config(
        text_config={**{k: v for k, v in GEMMA4.items() if k != "attn_implementation"}, "num_global_key_value_heads": 1,
                     "attention_k_eq_v": True, "hidden_size_per_layer_input": 0, "pad_token_id": 0, "model_type": "gemma4_text"},
        vision_config=dict(model_type="gemma4_vision", hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
                           num_key_value_heads=2, head_dim=8, position_embedding_size=8), audio_config=None,
        attn_implementation="eager"), "bfloat16", None),
    "gemma-4-moe": (Gemma4ForCausalLM, Gemma4TextConfig(
        **GEMMA4, num_global_key_value_heads=1, attention_k_eq_v=True, hidden_size_per_layer_input=0, enable_moe_block=True,
        num_experts=8, top_k_experts=3, moe_intermediate_size=32), "bfloat16", None),
    "gemma-4-e2b": (Gemma4ForCausalLM, Gemma4TextConfig(
        **dict(GEMMA4, num_key_value_heads=1), hidden_size_per_layer_input=64, num_kv_shared_layers=2, use_double_wide_mlp=True),
        "bfloat16", None),
    "qwen3-moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig(
        **dict(SMALL, hidden_size=32, intermediate_size=64, num_hidden_layers=3), vocab_size=283, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
        mlp_only_layers=[1], rope_parameters=dict(rope_type="default", rope_theta=1e6)), "bfloat16", None),
    "mixtral": (MixtralForCausalLM, MixtralConfig(
        **dict(SMALL, hidden_size=32, intermediate_size=32), vocab_size=281, num_attention_heads=2, num_key_value_heads=1,
        head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=None), "bfloat16", None),
    "olmoe": (OlmoeForCausalLM, OlmoeConfig(
        **dict(SMALL, hidden_size=64, intermediate_size=32), vocab_size=277, num_attention_heads=2, num_key_value_heads=1,
        num_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-5), "bfloat16", None),
    "gpt-oss": (GptOssForCausalLM, GptOssConfig(
        **dict(SMALL, hidden_size=32, intermediate_size=32), vocab_size=271, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=24, rope_parameters=GPT_OSS), "bfloat16", None),
    "gpt-oss-mxfp4": (GptOssForCausalLM, GptOssConfig(
        **dict(SMALL, hidden_size=32, intermediate_size=64), vocab_size=269, num_attention_heads=2, num_key_value_heads=2,
        head_dim=32, num_local_experts=4, num_experts_per_tok=2, sliding_window=24, rope_parameters=GPT_OSS), "bfloat16", None),
    "deepseek-v2-lite": (DeepseekV2ForCausalLM, DeepseekV2Config(
        **dict(LATENT, kv_lora_rank=64, qk_rope_head_dim=32), num_hidden_layers=3, vocab_size=273, q_lora_rank=None, n_shared_experts=2, first_k_dense_replace=1,
        rope_parameters=dict(LATENT_YARN, mscale=0.707, mscale_all_dim=0.707)), "bfloat16", None),
    "deepseek-v2": (DeepseekV2ForCausalLM, DeepseekV2Config(
        **LATENT, num_hidden_layers=2, vocab_size=267, q_lora_rank=32, n_shared_experts=1, first_k_dense_replace=0,
        topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=2.5), "bfloat16", None),
    "deepseek-v3": (DeepseekV3ForCausalLM, DeepseekV3Config(
        **LATENT, num_hidden_layers=2, vocab_size=271, q_lora_rank=64, n_shared_experts=1, first_k_dense_replace=1, n_group=4,
        topk_group=2, rope_parameters=LATENT_YARN), "bfloat16", None),
    "glm-4.7-flash": (Glm4MoeLiteForCausalLM, Glm4MoeLiteConfig(
        **dict(LATENT, qk_nope_head_dim=32), num_hidden_layers=2, vocab_size=277, q_lora_rank=32, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=1e6)), "bfloat16", None),
}

# Folders with the experts of a layer in one tensor, as save_pretrained writes them on request.
STACKED = {"mixtral", "deepseek-v2", "glm-4.7-flash"}


def randomise(model, generator):
    """Weights that let every part of the pass matter: norms near 1, biases that are not 0."""
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("norm.weight") or "layernorm" in name:
            p.data = 0.2 * noise + (0 if model.config.model_type.startswith(("gemma2", "gemma3")) else 1)  # these add 1 themselves
            if name.endswith("q_norm.weight") and model.config.model_type.startswith("gemma4"):
                p.data *= 0.2  # scores are not scaled
        elif name.endswith(("router.scale", "per_expert_scale")):
            p.data = 1 + 0.2 * noise
        elif p.dim() == 1:
            p.data = 0.5 * noise
        elif p.dim() == 3:  # experts: [experts][outputs][inputs], of gpt-oss the other way
            p.data = noise / p.shape[1 if model.config.model_type == "gpt_oss" else 2] ** 0.5
        else:
            p.data = noise / p.shape[1] ** 0.5
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.data = 0.2 * torch.randn(b.shape, generator=generator)
        if name.endswith("layer_scalar"):
            b.data = 0.5 + torch.rand(b.shape, generator=generator)
    model.tie_weights()


def microscaling(folder, generator):
    """Puts random codes and exponents in the place of experts, as published checkpoints of gpt-oss have them."""
    tensors = load_file(folder / "model.safetensors")
    for name in [n for n in tensors if n.endswith("_proj") and ".experts." in n]:
        experts, inputs, outputs = tensors.pop(name).shape
        shape = (experts, outputs, inputs // 32)
        tensors[name + "_blocks"] = torch.randint(0, 256, (*shape, 16), generator=generator, dtype=torch.uint8)
        tensors[name + "_scales"] = torch.randint(122, 125, shape, generator=generator, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@torch.no_grad()
def follow(model, tokens):
    """The logits after tokens, and NEW greedy tokens with their margins, up to a near tie."""
    first, greedy, margins, all_tokens = None, [], [], list(tokens)
    for _ in range(NEW):
        logits = model(torch.tensor([all_tokens]), use_cache=False).logits[0, -1]
        first = logits if first is None else first
        best = torch.topk(logits, 2)
        greedy.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        all_tokens.append(greedy[-1])
        if margins[-1] < MARGIN:
            break
    return first, greedy, margins


def force(model, original, long):
    """Fixes which of longrope's factors a model uses."""
    rotary = model.model.rotary_emb
    rotary.inv_freq, _ = ROPE_INIT_FUNCTIONS["longrope"](model.config, None, seq_len=original + 1 if long else 1)
    rotary.rope_type = "default"


def write(folder, model, vocab, generator, lengths=LENGTHS):
    folder.mkdir(exist_ok=True)
    cases, logits = golden(model, vocab, generator, lengths)
    (folder / "golden.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    (folder / "logits.f32").write_bytes(logits)
    return cases


def golden(model, vocab, generator, lengths):
    cases, logits = [], b""
    for length in lengths:
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
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        generator = torch.Generator().manual_seed(number)
        torch.manual_seed(number)
        model = kind(config).eval()
        randomise(model, generator)
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        model.to(getattr(torch, dtype)).save_pretrained(
            folder, save_original_format=name not in STACKED, **({"max_shard_size": shards} if shards else {}))
        (folder / "generation_config.json").unlink(missing_ok=True)
        options = {}
        if name == "gpt-oss-mxfp4":
            microscaling(folder, generator)
            options["quantization_config"] = Mxfp4Config(dequantize=True)
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", **options).eval().float()
        for part in model.modules():  # the root that multiplies embeddings, as in a model of this type
            if hasattr(part, "embed_scale"):
                part.embed_scale = part.embed_scale.to(getattr(torch, dtype)).float()
        text = config.get_text_config()
        if text.rope_parameters.get("rope_type") == "longrope":
            original = text.rope_parameters["original_max_position_embeddings"]
            force(model, original, False)
            write(folder / "short", model, text.vocab_size, generator, [n for n in LENGTHS if n + NEW <= original])
            force(model, original, True)
        cases = write(folder, model, text.vocab_size, generator)
        print(name, min(min(c["margins"]) for c in cases), sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
