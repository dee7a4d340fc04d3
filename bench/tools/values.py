#!/usr/bin/env python3
"""Computes logits of small checkpoints with transformers in float32.

    python3 values.py DIR

Each folder below DIR with a config.json has model.safetensors and tokens.json, a list of sequences of token ids. Beside
them it writes logits.f32: float32 [tokens of all sequences][vocabulary]. TestGPUFormatsEqualTransformers makes the
folders and reads the results.

Needs torch and transformers; uses a GPU if there is one.
"""
import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


def main():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for config in sorted(Path(sys.argv[1]).rglob("config.json")):
        folder = config.parent
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(device).eval()
        rows = []
        with torch.inference_mode():
            for tokens in json.loads((folder / "tokens.json").read_text()):
                rows.append(model(torch.tensor([tokens], device=device)).logits[0].float().cpu())
        torch.cat(rows).numpy().astype("<f4").tofile(folder / "logits.f32")


if __name__ == "__main__":
    main()
