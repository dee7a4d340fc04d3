#!/usr/bin/env python3
"""Makes qwen3-embedding beside this file: a tiny random checkpoint in the layout of
Qwen/Qwen3-Embedding, and what sentence-transformers computes for it in float32 on a
processor. It was made with

    pip install torch==2.13.0 transformers==5.17.0 sentence-transformers==6.2.0 \
        safetensors==0.8.0 tokenizers==0.23.3 numpy==2.4.6
    python embedding.py

The folder has config.json, tokenizer.json and safetensors without a head, whose names
lack "model."; modules.json, 1_Pooling/config.json and config_sentence_transformers.json
as the published repository has them; golden.json, a list of {text, prompt, tokens}:
texts, the name of the prompt before each or "", and the tokens of both; and
vectors.f32, little-endian float32 [texts][2][hidden]: the final norm of the last
token's hidden state, then the vector of length 1.
"""
import json
import struct
from pathlib import Path

import torch
from sentence_transformers import SentenceTransformer
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import Qwen3Config, Qwen3Model

FOLDER = Path(__file__).parent / "qwen3-embedding"
END, PROMPT = "<|endoftext|>", "Instruct: Find passages that answer the query\nQuery:"
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
TEXTS = [("a", ""), ("The quick brown fox.", ""), ("What is a fox?", "query"), ("naïve € 文字\n\n  x", "document"),
         ("ends with <|endoftext|>", ""), ("The capital of China is Beijing. " * 8, ""), ("query " * 60, "query")]


def tokenizer():
    t = Tokenizer(models.BPE(byte_fallback=False))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(__import__("tokenizers").Regex(SPLIT), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=[])
    t.train_from_iterator([PROMPT] + [text for text, _ in TEXTS], trainer)
    t.add_special_tokens([AddedToken(s, special=True) for s in (END, "<|im_start|>", "<|im_end|>")])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single=f"$A {END}:0", pair=f"$A {END}:0 $B:1 {END}:1",
                                      special_tokens=[(END, t.token_to_id(END))])])
    return t


def write(name, value):
    path = FOLDER / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def checkpoint(t):
    end = t.token_to_id(END)
    config = Qwen3Config(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=32, vocab_size=311, max_position_embeddings=512,
                         bos_token_id=end, eos_token_id=end, pad_token_id=None, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=1000000.0), attn_implementation="eager")
    model, generator = Qwen3Model(config), torch.Generator().manual_seed(27)
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        p.data = 1 + 0.2 * noise if p.dim() == 1 else noise / p.shape[1] ** 0.5
    model.to(torch.bfloat16).save_pretrained(FOLDER)
    saved = json.loads((FOLDER / "config.json").read_text())
    write("config.json", dict(saved, architectures=["Qwen3ForCausalLM"]))
    t.save(str(FOLDER / "tokenizer.json"))
    write("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": END, "pad_token": END,
                                    "padding_side": "left", "model_max_length": 131072})
    kinds = ["Transformer", "Pooling", "Normalize"]
    write("modules.json", [{"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "",
                            "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)])
    write("1_Pooling/config.json", {
        "word_embedding_dimension": 64, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False, "pooling_mode_lasttoken": True, "include_prompt": True})
    write("config_sentence_transformers.json", {
        "prompts": {"query": PROMPT, "document": ""}, "default_prompt_name": None, "similarity_fn_name": "cosine",
        "__version__": {"sentence_transformers": "2.7.0"}})


def main():
    FOLDER.mkdir(exist_ok=True)
    t = tokenizer()
    checkpoint(t)
    model = SentenceTransformer(str(FOLDER), device="cpu", model_kwargs={"dtype": torch.float32})
    cases, vectors = [], b""
    for text, prompt in TEXTS:
        name = prompt or None
        ids = t.encode((PROMPT if prompt == "query" else "") + text).ids
        states = model.encode([text], prompt_name=name, output_value="token_embeddings")[0]
        unit = model.encode([text], prompt_name=name)[0]
        assert len(states) == len(ids) <= 512, (text, len(states), ids)
        cases.append({"text": text, "prompt": prompt, "tokens": ids})
        vectors += struct.pack("<64f", *states[-1].tolist()) + struct.pack("<64f", *unit.tolist())
    (FOLDER / "golden.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")
    (FOLDER / "vectors.f32").write_bytes(vectors)
    print([len(c["tokens"]) for c in cases])


if __name__ == "__main__":
    main()
