#!/usr/bin/env python3
"""Measures what a format costs a stream, and the stream beside it, for format_gpu.sh.

    python3 format.py tokenizer DIR           gives a random checkpoint a tokenizer with as many tokens as it has
    python3 format.py measure SOCKET NAME     prints a line for each figure

Each stream is read by a process of its own, which notes when its tokens arrive.
"""
import json
import multiprocessing
import os
import random
import statistics
import sys
import time
from pathlib import Path

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "protocol", "examples"))
from reel_client import Client  # noqa: E402

TOKENS = 300  # of a stream
SKIPPED = 40  # of them, until all streams run
ROUNDS = 6
# An array that a model of random weights does not end within TOKENS.
SCHEMA = {"type": "array", "minItems": 500, "items": {
    "type": "object", "additionalProperties": False, "required": ["name", "age", "tags", "kind"],
    "properties": {"name": {"type": "string", "maxLength": 40}, "age": {"type": "integer"},
                   "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
                   "kind": {"enum": ["person", "place", "thing"]}}}}


def byte_letters():
    """The printable character of each byte in vocabularies of byte-level BPE, as GPT-2 has them."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in kept]
    return [chr(b) for b in kept] + [chr(256 + i) for i in range(len(others))]


def tokenizer(directory):
    """Writes a tokenizer.json: the bytes, then random words, half of them after a space, and pieces of JSON."""
    config = json.loads((directory / "config.json").read_text())
    ends = config.get("eos_token_id", 2)
    special = {config.get("bos_token_id", 1), *(ends if isinstance(ends, list) else [ends])}
    words = dict.fromkeys(byte_letters())
    words.update(dict.fromkeys(('{"', '":', '",', '"}', '},', '[{', '["', '"],', ':"', ':Ġ"', '":Ġ"', ',Ġ"', '"},Ġ{"', '}]')))
    draw = random.Random(1)
    while len(words) < config["vocab_size"]:
        word = "".join(draw.choices("etaoinshrdlucmfwypvbgkqjxz", k=draw.randint(2, 9)))
        words[("Ġ" if draw.random() < 0.5 else "") + word] = None
    names = iter(words)
    vocab = {f"<|{i}|>" if i in special else next(names): i for i in range(config["vocab_size"])}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (directory / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": level,
        "post_processor": None, "decoder": level,
        "added_tokens": [{"id": i, "content": f"<|{i}|>", "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for i in sorted(special)],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": []}}))


def read_stream(path, begin, pipe, fields):
    """Runs a request once all streams are ready, and sends the times of its frames."""
    with Client(path) as reel:
        begin.wait()
        tokens = reel.generate("Once upon a time", max_tokens=TOKENS, temperature=0.8, cache="off", **fields)
        pipe.send([time.monotonic() for _ in tokens][SKIPPED:])


def streams(path, *all_fields):
    """Runs streams at once. Returns the mean and the median gap of the first one, in ms."""
    begin, pipes, readers = multiprocessing.Barrier(len(all_fields)), [], []
    for i, fields in enumerate(all_fields):
        mine, its = multiprocessing.Pipe()
        readers.append(multiprocessing.Process(target=read_stream, args=(path, begin, its, {"seed": i + 1, **fields})))
        readers[-1].start()
        pipes.append(mine)
    times = [p.recv() for p in pipes][0]
    for r in readers:
        r.join()
    gaps = [(b - a) * 1e3 for a, b in zip(times, times[1:])]
    return (times[-1] - times[0]) * 1e3 / (len(times) - 1), statistics.median(gaps)


def measure(path, name):
    deadline = time.monotonic() + 180
    while not os.path.exists(path) and time.monotonic() < deadline:
        time.sleep(0.2)
    Client(path, wait=180).close()
    plain, schema = {"ignore_eos": True}, {"format": {"json_schema": json.dumps(SCHEMA)}}
    cases = {"plain": [plain], "schema": [schema], "plain beside plain": [plain, plain],
             "plain beside schema": [plain, schema], "schema beside plain": [schema, plain]}
    streams(path, schema)  # the format is compiled once
    means, medians = {c: [] for c in cases}, {c: [] for c in cases}
    for _ in range(ROUNDS):
        for case, fields in cases.items():
            mean, median = streams(path, *fields)
            means[case].append(mean)
            medians[case].append(median)
    mean = {c: statistics.median(v) for c, v in means.items()}
    for case in cases:
        against = "plain" if case == "schema" else "plain beside plain" if "beside" in case else None
        ratio = "%.3f x" % (mean[case] / mean[against]) if against else ""
        print("%-6s a token of a stream, %-20s mean %6.3f ms, P50 %6.3f  %s" % (
            name, case, mean[case], statistics.median(medians[case]), ratio), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "tokenizer":
        tokenizer(Path(sys.argv[2]))
    else:
        measure(sys.argv[2], sys.argv[3])
