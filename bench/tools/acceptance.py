#!/usr/bin/env python3
"""Compares Reel's drafters with reference implementations of the same methods, on the checkpoints of train_drafts.py.

    python3 acceptance.py MODELS --generator BIN [--device cuda|host] [--transformers N] [--drafters NAME,...]

MODELS is what train_drafts.py wrote. The measure is tokens a step of 7 drafts in a chain, the drawn token included. The
columns, each of greedy text and of text drawn at temperature 1:

  transformers  its assisted generation in float32, of the first N prompts, greedy only. Its prompt lookup takes the
                first of the longest matches, Reel's the last one, so that their guesses differ.
  restated      this file's drafter for the same, with transformers' rule of lookup: equal to the column before
  reference     this file's drafter in float32, with Reel's rule of lookup, along what transformers writes
  on Reel's     the same along what Reel wrote: the same drafts, so the same number, but for rounding
  Reel          steps with 7 drafts, as status counts them

Exit code 1 if the last two differ by more than 2%. Needs torch and transformers.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "protocol" / "examples"))
import eagle3  # noqa: E402
from reel_client import Client  # noqa: E402
from train_drafts import write  # noqa: E402

MOST = 7  # drafts of a step
MATCH = 16  # longest match that counts in lookup
WITHIN = 0.02
TEMPERATURES = (0, 1)


# --- drafters: texts and their numbers to guesses, lists of MOST tokens --------------------------------------------


class Lookup:
    """The formula of kernels/lookup.go."""

    def __call__(self, numbers, known):
        return [self.guess(list(text)) for text in known]

    def guess(self, h):
        last = len(h) - 1
        end, most = last - 1, 0
        for e in range(last - 1, -1, -1):
            m = 0
            while m < MATCH and m <= e and h[e - m] == h[last - m]:
                m += 1
            if m > most:
                end, most = e, m
        for j in range(MOST):
            h.append(h[end + 1 + j])
        return h[-MOST:]


class FirstLookup(Lookup):
    """The rule of transformers' PromptLookupCandidateGenerator: the first of the longest matches."""

    def guess(self, h):
        for n in range(min(MATCH, len(h) - 1), 0, -1):
            for i in range(len(h) - n):
                if h[i : i + n] == h[-n:]:
                    return h[i + n : i + n + MOST]
        return []


class Model:
    """The most probable tokens of a smaller model, computed anew for each token."""

    def __init__(self, directory, device):
        self.model = load(directory, device)

    @torch.no_grad()
    def __call__(self, numbers, known):
        n = torch.tensor([len(text) for text in known], device=self.model.device)
        ids, rows = padded(known, int(n.max()) + MOST, self.model.device), torch.arange(len(known), device=n.device)
        for i in range(MOST):
            hidden = self.model.model(ids, use_cache=False).last_hidden_state[rows, n + i - 1]
            ids[rows, n + i] = self.model.lm_head(hidden).argmax(-1)
        return [ids[k, len(text) : len(text) + MOST].tolist() for k, text in enumerate(known)]


class Eagle:
    """The chain of an EAGLE-3 head, along texts whose features see() has."""

    def __init__(self, directory, target, device):
        self.head, self.target, self.seen = eagle3.load(directory, device), target, None

    @torch.no_grad()
    def see(self, texts):
        hidden = self.target(padded(texts, max(map(len, texts)), self.target.device), output_hidden_states=True)
        self.seen = eagle3.features(hidden.hidden_states)

    def __call__(self, numbers, known):
        return eagle3.drafts(self.head, self.target.get_input_embeddings(), known, self.seen[numbers], MOST).tolist()


def padded(texts, width, device):
    """Texts with zeros behind them, int64 [texts, width]; causal models do not see these."""
    return torch.tensor([text + [0] * (width - len(text)) for text in texts], device=device)


def walk(prompts, answers, drafter):
    """Goes through answers with a drafter as Reel does: the prompt's pass draws one token, then come steps.

    Returns for each answer its steps: how many drafts it had room for, and how many stood.
    """
    texts = [p + a for p, a in zip(prompts, answers)]
    if hasattr(drafter, "see"):
        drafter.see(texts)
    at, steps = [len(p) + 1 for p in prompts], [[] for _ in prompts]
    while live := [i for i, text in enumerate(texts) if at[i] < len(text)]:
        for i, guess in zip(live, drafter(live, [texts[i][: at[i]] for i in live])):
            rest, stood = texts[i][at[i] :], 0
            room = min(MOST, len(rest) - 1)
            while stood < min(room, len(guess)) and guess[stood] == rest[stood]:
                stood += 1
            steps[i].append((room, stood))
            at[i] += 1 + stood
    return steps


def tokens_a_step(steps):
    """Of steps with MOST drafts, since room ends differently in each engine."""
    full = [stood for of in steps for room, stood in of if room == MOST]
    return 1 + sum(full) / max(1, len(full))


# --- transformers --------------------------------------------------------------------------------------------------


def load(directory, device):
    return LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).to(device).eval()


def assisted(target, prompts, answers, how):
    """Tokens a step of transformers' assisted generation after each prompt and its first token."""
    passes = 0

    def count(*_):
        nonlocal passes
        passes += 1

    hook = target.register_forward_pre_hook(count)
    drawn = differing = 0
    for prompt, answer in zip(prompts, answers):
        ids = torch.tensor([prompt + answer[:1]], device=target.device)
        said = target.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=len(answer) - 1,
                               do_sample=False, eos_token_id=None, pad_token_id=0, **how)
        drawn += said.shape[1] - ids.shape[1]
        differing += said[0].tolist() != prompt + answer
    hook.remove()
    if differing:
        print("transformers: %d of %d answers differ with drafts" % (differing, len(prompts)))
    return drawn / passes


def ways(small):
    """The arguments of generate, by drafter."""
    g = small.generation_config
    g.num_assistant_tokens, g.num_assistant_tokens_schedule, g.assistant_confidence_threshold = MOST, "constant", 0.0
    g.eos_token_id = None
    return {"lookup": {"prompt_lookup_num_tokens": MOST, "max_matching_ngram_size": MATCH},
            "model": {"assistant_model": small}}


# --- Reel ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def generator(args, draft):
    """A client of a generator that guesses in each step. RuntimeError with the log's end: it did not start."""
    with tempfile.TemporaryDirectory() as folder:
        path, log = os.path.join(folder, "s.sock"), open(os.path.join(folder, "log"), "w+")
        process = subprocess.Popen(
            [args.generator, "--device", args.device, "--model", args.models / "target", "--socket", path, "--draft",
             draft, "--draft-plan", "always", "--max-batch", "1", "--log-level", "warn"], stderr=log)
        try:
            with contextlib.closing(connected(path, process, log)) as reel:
                yield reel
        finally:
            process.terminate()
            process.wait()


def connected(path, process, log):
    """A client of a generator that may still be starting."""
    while process.poll() is None:
        with contextlib.suppress(OSError, EOFError):
            return Client(path, wait=120)
        time.sleep(0.05)
    log.seek(0)
    raise RuntimeError("exit %d: %s" % (process.returncode, log.read().strip()[-300:]))


def full_steps(reel):
    """Steps with MOST drafts since the start, and the drafts of them that stood."""
    counts = reel.status()["drafts"].get("counts", [])
    return next(((c["steps"], c["accepted"]) for c in counts if c["drafts"] == MOST), (0, 0))


def complete(reel, prompts, count, temperature):
    """Completes prompts. Returns the answers' tokens, and of each its steps with MOST drafts and how many stood."""
    answers, counts = [], []
    for seed, prompt in enumerate(prompts):
        steps, stood = full_steps(reel)
        said = reel.generate(prompt, max_tokens=count, temperature=temperature, seed=seed, top_p=1, ignore_eos=True,
                             cache="off")
        answers.append([t["token"] for t in said if t["index"] >= 0])
        now = full_steps(reel)
        counts.append((now[0] - steps, now[1] - stood))
    return answers, counts


# --- the table -----------------------------------------------------------------------------------------------------


@dataclass
class Method:
    """A way to guess, here, in transformers and in Reel."""
    name: str
    drafter: object
    draft: object  # the value of --draft
    how: dict = None  # the arguments of transformers' generate; None: it does not have this
    restated: object = None  # what guesses as transformers does


def beside_transformers(m, target, prompts, texts):
    """The columns of transformers and of the drafter that guesses as it does, over all steps after the first token."""
    if not m.how or not prompts:
        return "%13s %9s" % ("-", "-")
    steps = walk(prompts, texts, m.restated)
    restated = sum(1 + stood for of in steps for _, stood in of) / sum(map(len, steps))
    return "%13.3f %9.3f" % (assisted(target, prompts, texts, m.how), restated)


def beside_reel(m, reel, prompts, texts, temperature):
    """The columns of Reel, and whether its acceptance is the reference's.

    Towards an answer's end Reel makes fewer drafts than there is room for, since it counts on those in flight to stand.
    So the reference has as many steps of each answer as Reel has with MOST drafts.
    """
    answers, counts = complete(reel, prompts, len(texts[0]), temperature)
    steps = max(1, sum(n for n, _ in counts))
    ours = 1 + sum(stood for _, stood in counts) / steps
    along = walk(prompts, answers, m.drafter)
    theirs = 1 + sum(stood for of, (n, _) in zip(along, counts) for _, stood in of[:n]) / steps
    off = ours / theirs - 1
    same = "" if temperature else "%d of %d answers alike" % (sum(map(list.__eq__, answers, texts)), len(texts))
    return "%10.3f %7.3f %+6.1f%%  %s" % (theirs, ours, 100 * off, same), abs(off) <= WITHIN


def measure(m, args, served, target, prompts, texts):
    """Prints a line for each temperature. Returns whether Reel's acceptance is the reference's, if it is served."""
    well = True
    with generator(args, m.draft) if served else contextlib.nullcontext() as reel:
        for t in TEMPERATURES:
            some = slice(0, 0 if t else args.transformers)
            theirs = beside_transformers(m, target, prompts[some], texts[t][some])
            here = tokens_a_step(walk(prompts, texts[t], m.drafter))
            columns = "%-9s %4d %s %10.3f" % (m.name, t, theirs, here)
            if reel:
                more, alike = beside_reel(m, reel, prompts, texts[t], t)
                columns, well = columns + " " + more, well and alike
            print(columns, flush=True)
    return well


def methods(args, target):
    """All of them."""
    small = Model(args.models / "small", args.on)
    how = ways(small.model)
    yield Method("lookup", Lookup(), "lookup", how["lookup"], FirstLookup())
    yield Method("model", small, args.models / "small", how["model"], small)
    yield Method("eagle", Eagle(args.models / "eagle", target, args.on), args.models / "eagle")


def written(target, prompts, count):
    """What transformers writes after prompts, by temperature."""
    texts = {}
    for t in TEMPERATURES:
        seeded, given = torch.Generator(target.device).manual_seed(1), torch.tensor(prompts, device=target.device)
        hot = torch.full((len(prompts),), float(t), device=target.device)
        texts[t] = [text[-count:] for text in write(target, given, count, hot, seeded).tolist()]
    return texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path)
    parser.add_argument("--generator", help="of Reel; without it only references are measured")
    parser.add_argument("--device", default="host", help="of the generator: host or cuda")
    parser.add_argument("--transformers", type=int, default=6, help="prompts of its assisted generation, which is slow")
    parser.add_argument("--drafters", default="lookup,model,eagle")
    args = parser.parse_args()
    args.on, begun = "cuda" if torch.cuda.is_available() else "cpu", time.time()
    torch.backends.cuda.matmul.allow_tf32 = False
    asked = json.loads((args.models / "prompts.json").read_text())
    prompts, count = asked["prompts"], asked["answer_tokens"]
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    target = load(args.models / "target", args.on)
    texts = written(target, prompts, count)
    print("%d prompts of %d tokens, answers of %d" % (len(prompts), len(prompts[0]), count))
    print("drafter   temp  transformers  restated  reference  on Reel's    Reel     off", flush=True)
    well = True
    for m in methods(args, target):
        if m.name not in args.drafters.split(","):
            continue
        try:
            well &= measure(m, args, args.generator, target, prompts, texts)
        except RuntimeError as error:
            print("%s is not served: %s" % (m.name, error), flush=True)
            well = measure(m, args, None, target, prompts, texts) and False
    print("acceptance: %.0f s" % (time.time() - begun))
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
