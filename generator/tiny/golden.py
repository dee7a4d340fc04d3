"""Golden values for the engine's tests: python3 golden.py --corpus shakespeare.txt

Reads the model beside this file and writes golden/: golden.json, logits.f32,
tokenizer_vectors.json. All in fp32 on the CPU, from the bf16 weights.

A prompt is the start of a held-out stretch's speech, cut to a length in tokens
at a place where text and tokens mean each other, so that a test may use either.
The first place is taken at which no greedy step has its two best logits closer
than MARGIN, so places with a nearer tie are passed over: a test of equality
should not hang on the order of a float sum. BOS alone has no other place.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

import corpus
import generate

HERE = Path(__file__).parent
LENGTHS = [1, 2, 3, 5, 8, 16, 17, 33, 64, 128, 255, 400]  # tokens, BOS included
STEPS = 64
MARGIN = 0.01

TEXTS = [
    "", " ", "   ", "\n", "\n\n", "\t\tx", " \n \n", "a", "ROMEO:", "ROMEO:\nBut, soft!",
    "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
    "I'll, you've, he'd, we're, 'tis, I'm, don't", "I'LL YOU'VE", "  two  spaces  ",
    "trailing space ", "1234567890", "3.14159 and 1,000,000", "x1y2z3", "a_b-c--d...e!?",
    "honorificabilitudinitatibus", "z" * 100, "the " * 20, "été naïve façade Ångström",
    "e\u0301 o\u0308 combining", "Здравствуй, мир", "Γειά σου Κόσμε", "שלום עולם", "مرحبا بالعالم",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "你好，世界", "こんにちは世界", "안녕하세요", "👋🌍", "👩‍👩‍👧‍👦 family", "🏳️‍🌈é",
    "½ ² Ⅻ ٣", "a\u00a0b\u2003c\u3000d", "zero\u200bwidth\ufeffbom", "\x00\x01\x7f", "\r\nDOS\r\nlines",
    "\ufffd replacement", "math 𝒳 ∑ ≠", "<|begin_of_text|>", "x<|end_of_text|>y", "<|end_of_tex|>",
    "ends with <|begin_of_text|> ", "tab\tand\vvertical\fform", "'", "''s 's'S",
]


def tokenizer_vectors(tokenizer):
    """[{text, ids, decoded}]: ids with BOS in front; decoded without special tokens."""
    vectors = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        decoded = tokenizer.decode(ids, skip_special_tokens=True)
        vectors.append({"text": text, "ids": ids, "decoded": decoded})
    return vectors


def prompts_of(length, stretches, tokenizer):
    """Held-out prompts of so many tokens for which text and tokens mean each other."""
    for stretch in stretches:
        for i in range(len(stretch)):
            ids = tokenizer.encode(corpus.passage(stretch[i:])).ids[:length]
            text = tokenizer.decode(ids)
            if len(ids) == length and tokenizer.encode(text).ids == ids:
                yield text, ids


def greedy(model, prompt):
    """The plain argmax completion, through EOS if it comes: (first logits, ids, margins)."""
    steps = list(generate.decode(model, prompt, STEPS, lambda logits, _: int(logits.argmax())))
    best = [torch.topk(logits, 2).values for _, logits in steps]
    margins = [round(float(two[0] - two[1]), 6) for two in best]
    return steps[0][1], [token for token, _ in steps], margins


def golden(model, tokenizer, stretches):
    """([{text, tokens, greedy, margins}], float32 [12, vocab])."""
    entries, rows = [], []
    for n, length in enumerate(LENGTHS):
        rotated = stretches[n % len(stretches):] + stretches[:n % len(stretches)]
        for text, ids in prompts_of(length, rotated, tokenizer):
            logits, continuation, margins = greedy(model, ids)
            if min(margins) >= MARGIN:
                break
        entries.append({"text": text, "tokens": ids, "greedy": continuation, "margins": margins})
        rows.append(logits.numpy().astype("<f4"))
        print(f"{length:4} tokens, least margin {min(margins):.4f}")
    return entries, np.stack(rows)


def write_json(path, entries):
    """One entry to a line, so that differences are readable."""
    lines = ",\n".join(json.dumps(e, ensure_ascii=True) for e in entries)
    path.write_text(f"[\n{lines}\n]\n")


def main():
    parser = argparse.ArgumentParser(description="Write golden values for the embedded model.")
    parser.add_argument("--corpus", type=Path, required=True)
    path = parser.parse_args().corpus
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    _, stretches = corpus.split(corpus.speeches(path.read_text()))
    entries, logits = golden(generate.load(HERE), tokenizer, stretches)
    out = HERE / "golden"
    out.mkdir(exist_ok=True)
    write_json(out / "golden.json", entries)
    write_json(out / "tokenizer_vectors.json", tokenizer_vectors(tokenizer))
    logits.tofile(out / "logits.f32")


if __name__ == "__main__":
    main()
