"""Prints passages of the model: python3 sample.py [--penalty 1.0 1.1] [--temperature 0 0.8]"""

import argparse
from pathlib import Path

from tokenizers import Tokenizer

import corpus
import generate

HERE = Path(__file__).parent
PROMPTS = ["ROMEO:\n", "First Citizen:\n", "KING RICHARD III:\n"]


def passage(model, tokenizer, prompt, count, choose):
    """Prompt and completion, up to EOS."""
    ids = tokenizer.encode(prompt).ids
    completion = []
    for token, _ in generate.decode(model, ids, count, choose):
        if token == corpus.EOS_ID:
            break
        completion.append(token)
    return tokenizer.decode(ids + completion)


def main():
    parser = argparse.ArgumentParser(description="Print passages of the embedded model.")
    parser.add_argument("--model", type=Path, default=HERE)
    parser.add_argument("--prompt", action="append")
    parser.add_argument("--penalty", type=float, nargs="+", default=[1.0, 1.1, 1.2, 1.3])
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0])
    parser.add_argument("--tokens", type=int, default=250)
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    model = generate.load(args.model)
    for prompt in args.prompt or PROMPTS:
        for penalty in args.penalty:
            for temperature in args.temperature:
                choose = generate.chooser(penalty, temperature)
                print(f"=== penalty {penalty}, temperature {temperature}")
                print(passage(model, tokenizer, prompt, args.tokens, choose))


if __name__ == "__main__":
    main()
