#!/usr/bin/env python3
"""Computes logits of small checkpoints with transformers in float32.

    python3 values.py <FOLDERS

Each line of the input is a folder with config.json, model.safetensors and tokens.json: {"tokens": sequences of token ids,
all as long, "last": how many of each have their logits written}. Beside them it writes logits.f32: float32
[sequences][last][vocabulary]. TestGPUFormatsEqualTransformers makes the folders and reads the results.

Needs torch, transformers and safetensors; uses a GPU if there is one.
"""
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    models = {}  # by config: making one takes longer than to load its weights
    for line in sys.stdin:
        folder = Path(line.rstrip("\n"))
        text = (folder / "config.json").read_text()
        if text not in models:
            made = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), attn_implementation="eager")
            models[text] = made.float().to(device).eval()
        model, asked = models[text], json.loads((folder / "tokens.json").read_text())
        missing, unexpected = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
        if unexpected or missing != ["lm_head.weight"] * model.config.tie_word_embeddings:
            sys.exit(f"{folder}: tensors {missing} are missing, {unexpected} are unknown")
        with torch.inference_mode():
            logits = model(torch.tensor(asked["tokens"], device=device)).logits[:, -asked["last"]:]
        logits.float().cpu().contiguous().numpy().astype("<f4").tofile(folder / "logits.f32")


if __name__ == "__main__":
    main()
