#!/usr/bin/env python3
"""Compares Reel with transformers in float32, on the same GPU.

    python3 reference.py make MODEL OUT           write the results of transformers to OUT
    python3 reference.py socket OUT [--socket S]  ask a generator that serves MODEL

OUT is a folder. reference.json has the prompts, as random token ids, and after each
the tokens to force upon the model one by one: first its own greedy ones, then
random ones. logits.f32 has the logits after each prompt and after each of these
tokens, float32 [rows][vocabulary]. The test TestGPUEqualsReference reads both.

socket asks for one token after each prompt and each forced token. It must be the
reference's if the reference's margin exceeds the measured error, and the 20 most
probable tokens must have the reference's log-probabilities. It also asks for the
greedy completion in one request. Exit code 1 if anything differs.

Needs numpy; make needs torch, transformers and a GPU.
"""
import argparse
import json
import math
import sys
import time
from pathlib import Path

import numpy as np

LENGTHS = (1, 17, 100, 400)  # of prompts
GREEDY, RANDOM = 16, 16  # forced tokens
TOP = 20
WITHIN = 2e-2  # of a row's logits, relative


def make(model_dir, out):
    """Writes reference.json and logits.f32."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32, attn_implementation="eager").cuda().eval()
    vocab = model.config.vocab_size
    random = np.random.default_rng(1)

    def logits(tokens):
        with torch.inference_mode():
            return model(torch.tensor([tokens], device="cuda")).logits[0].float()

    prompts, rows = [], []
    for length in LENGTHS:
        tokens = random.integers(2, vocab, length).tolist()
        forced = []
        for _ in range(GREEDY):
            forced.append(int(logits(tokens + forced)[-1].argmax()))
        forced += random.integers(2, vocab, RANDOM).tolist()
        prompts.append({"tokens": tokens, "forced": forced})
        rows.append(logits(tokens + forced)[length - 1 :].cpu().numpy())
    out.mkdir(parents=True, exist_ok=True)
    (out / "reference.json").write_text(json.dumps({"model": str(model_dir.resolve()), "prompts": prompts}))
    np.concatenate(rows).astype("<f4").tofile(out / "logits.f32")
    print("%s: %d rows of %d logits, RoPE base %s" % (out, sum(map(len, rows)), vocab, rope_base(model.config)), file=sys.stderr)


def rope_base(config):
    """The RoPE base that transformers uses."""
    return getattr(config, "rope_parameters", None) or getattr(config, "rope_theta", None)


class Comparison:
    """A generator's answers, compared with the reference."""

    def __init__(self):
        self.rows = []  # log-probabilities of the reference, its best token, margin, ours
        self.error = 0.0  # the largest of the log-probabilities compared
        self.faults = []

    def add(self, logits, token):
        """Compares one token message with the logits it was drawn from."""
        x = logits.astype(np.float64)
        logprob = x - x.max() - math.log(np.exp(x - x.max()).sum())
        order = np.argsort(-x, kind="stable")
        within = 6 * WITHIN * math.sqrt((x * x).mean())  # of a logit, where a row is within WITHIN
        top = token["top"]
        worst = max([abs(token["logprob"] - logprob[token["token"]])] + [abs(a["logprob"] - logprob[a["token"]]) for a in top])
        self.error = max(self.error, worst)
        if len(top) != TOP or not worst <= within:
            self.faults.append("row %d: %d alternatives, log-probabilities off by %.2e, at most %.2e wanted" % (len(self.rows), len(top), worst, within))
        # A token may be missing among the 20 only if the last of them is equally probable.
        missing = [i for i in order[:TOP] if int(i) not in {a["token"] for a in top}]
        for i in missing:
            if logprob[i] - logprob[order[TOP]] > 2 * worst:
                self.faults.append("row %d: token %d is missing among the %d most probable" % (len(self.rows), i, TOP))
        self.rows.append((int(order[0]), logprob[order[0]] - logprob[order[1]], token["token"]))

    def agreement(self):
        """The number of rows that agree, and of rows that have to."""
        for n, (want, margin, got) in enumerate(self.rows):
            if want != got and margin > 2 * self.error:
                self.faults.append("row %d: token %d, the reference has %d by a margin of %.2e" % (n, got, want, margin))
        return sum(want == got for want, _, got in self.rows), sum(margin > 2 * self.error for _, margin, _ in self.rows)


def socket(out, path):
    """Asks the generator at path, and returns the exit code."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "protocol" / "examples"))
    from reel_client import Client

    reference = json.loads((out / "reference.json").read_text())
    rows = iter(np.fromfile(out / "logits.f32", "<f4").reshape(sum(1 + len(p["forced"]) for p in reference["prompts"]), -1))
    seen, ask = Comparison(), {"temperature": 0, "ignore_eos": True}
    with connect(Client, path) as reel:
        for p in reference["prompts"]:
            completion = [t["token"] for t in reel.generate(p["tokens"], max_tokens=GREEDY, **ask)]
            first = len(seen.rows)
            for n in range(1 + len(p["forced"])):
                (token,) = reel.generate(p["tokens"] + p["forced"][:n], max_tokens=1, logprobs=TOP, **ask)
                seen.add(next(rows), token)
            greedy(seen, first, completion)
    agree, must = seen.agreement()
    print("%d rows through the socket: log-probabilities off by %.2e at most; %d tokens agree, of which %d by margins above twice that"
          % (len(seen.rows), seen.error, agree, must))
    print("\n".join(seen.faults[:20]), file=sys.stderr)
    return 1 if seen.faults else 0


def connect(client, path):
    """A client of the generator, which may still be starting."""
    for _ in range(600):
        try:
            return client(path, wait=120)
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.1)
    return client(path)


def greedy(seen, first, completion):
    """Checks the completion against the reference's, up to the first margin that is too small."""
    for n, got in enumerate(completion[: len(seen.rows) - first]):
        want, margin, _ = seen.rows[first + n]
        if margin <= 2 * seen.error:
            return
        if got != want:
            seen.faults.append("row %d: token %d of a completion is %d, the reference has %d" % (first + n, n, got, want))
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "socket"))
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="MODEL OUT, or OUT")
    parser.add_argument("--socket", help="path of the generator's socket")
    args = parser.parse_args()
    if len(args.folders) != {"make": 2, "socket": 1}[args.what]:
        parser.error("make wants MODEL and OUT, socket wants OUT")
    if args.what == "make":
        return make(*args.folders)
    return socket(args.folders[0], args.socket)


if __name__ == "__main__":
    sys.exit(main())
