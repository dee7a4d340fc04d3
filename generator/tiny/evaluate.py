"""Scores the shipped weights on the held-out text: python3 evaluate.py --corpus shakespeare.txt"""

import argparse
import json
from pathlib import Path

import torch
from tokenizers import Tokenizer

import corpus
import generate
import train

HERE = Path(__file__).parent


def main():
    parser = argparse.ArgumentParser(description="Score the embedded model on held-out text.")
    parser.add_argument("--corpus", type=Path, required=True)
    path = parser.parse_args().corpus
    settings = train.Settings(**json.loads((HERE / "training.json").read_text())["settings"])
    _, stretches = corpus.split(corpus.speeches(path.read_text()))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    held_out = train.HeldOut(stretches, tokenizer, settings, device)
    nats = held_out.nats(generate.load(HERE).state_dict(), settings)
    print(f"{nats / held_out.characters:.4f} nats/char, {nats / held_out.tokens:.4f} nats/token")


if __name__ == "__main__":
    main()
