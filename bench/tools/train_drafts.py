#!/usr/bin/env python3
"""Trains what guessed tokens are measured with: a target, a smaller model, and an EAGLE-3 head for the target.

    python3 train_drafts.py --corpus TEXT --out OUT [--tiny]

TEXT is tiny Shakespeare, perhaps gzipped. OUT gets target/, small/ and eagle/ in bf16, with one tokenizer, and
prompts.json with prompts from text that is held out from all of them. The split, the tokenizer and how the target
learns are the embedded model's: generator/tiny. The small model and the head learn the target's probabilities, over
training text and over what the target writes, greedily and at temperature 1. --tiny makes all of it so small that a
CPU does it in a minute or two. Needs torch, transformers, tokenizers, numpy; with a GPU it takes about two minutes.
"""

import argparse
import gzip
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import LlamaForCausalLM
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "generator" / "tiny"))
import corpus  # noqa: E402
import train  # noqa: E402

import eagle3  # noqa: E402


@dataclass
class Recipe:
    """The sizes of everything."""
    target: train.Settings
    small: train.Settings
    head: train.Settings  # of its shape only ffn counts: the rest is the target's
    draft_vocab: int
    unrolled: int  # drafts that the head learns in a chain
    window: int  # tokens of a row that the small model and the head learn from
    written: int  # rows that the target writes
    scored: int  # stretches of held-out text by which the target's best weights are found
    prompts: int
    prompt_tokens: int
    answer_tokens: int


FULL = Recipe(
    target=train.Settings(hidden=512, layers=8, heads=8, kv_heads=4, ffn=2048, steps=800, lr=1.5e-3, eval_every=200),
    small=train.Settings(steps=700, lr=2e-3, weight_decay=0.1),
    head=train.Settings(ffn=2048, steps=800, lr=1e-3, weight_decay=0.01),
    draft_vocab=3072, unrolled=7, window=320, written=1024, scored=9, prompts=48, prompt_tokens=96, answer_tokens=160)
TINY = Recipe(
    target=train.Settings(vocab=1024, context=128, hidden=96, layers=8, heads=4, kv_heads=2, ffn=192, steps=60,
                          batch_tokens=1024, warmup=5, variants=2, ema=0.9, eval_every=60),
    small=train.Settings(vocab=1024, context=128, hidden=64, layers=2, heads=2, kv_heads=1, ffn=128, steps=60,
                         batch_tokens=768, warmup=5, weight_decay=0.1),
    head=train.Settings(vocab=1024, context=128, ffn=192, steps=30, batch_tokens=768, warmup=5, weight_decay=0.01),
    draft_vocab=768, unrolled=3, window=96, written=32, scored=1, prompts=6, prompt_tokens=32, answer_tokens=64)


def read(path):
    """The text of a file, which may be gzipped."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()


def train_target(out, s, tokenizer, training, held_out, device):
    """Trains the target as generator/tiny/train.py trains the embedded model. Returns it as its file has it."""
    rng = np.random.default_rng(s.seed)
    words = corpus.Retokenizer(tokenizer, s.bpe_dropout, s.variants, rng)
    epochs = corpus.Epochs(training, words, s.context, s.mean_speeches, rng)
    scored = train.HeldOut(held_out, tokenizer, s, device)
    weights, _, _ = train.train(s, epochs.batches(s.batch_tokens // s.context, s.steps), scored, device)
    train.save(out, weights, tokenizer, s)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32  # which a CPU computes faster
    return LlamaForCausalLM.from_pretrained(out, dtype=dtype).to(device).eval().requires_grad_(False)


@torch.no_grad()
def write(model, prompts, count, temperature, generator):
    """Goes on with prompts, int64 [n, tokens]; temperature [n], 0 for greedy. Returns int64 [n, tokens + count]."""
    texts, fresh, cache = prompts, prompts, None
    for _ in range(count):
        result = model(fresh, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache, logits = result.past_key_values, result.logits[:, -1].float()
        drawn = torch.multinomial((logits / temperature.clamp(min=1e-3)[:, None]).softmax(-1), 1, generator=generator)
        fresh = torch.where(temperature[:, None] > 0, drawn, logits.argmax(-1, keepdim=True))
        texts = torch.cat((texts, fresh), 1)
    return texts


class Rows:
    """Rows to learn from: half of a batch is training text, half is what the target wrote."""

    def __init__(self, r, target, stream, generator):
        self.stream, self.window, self.generator = stream, r.window, generator
        prompts = self.text(r.written, r.window // 5)
        greedy = torch.arange(r.written, device=stream.device) % 2
        self.written = write(target, prompts, r.window - prompts.shape[1], 1.0 - greedy, generator)

    def text(self, n, tokens):
        """n pieces of the training text, BOS in front: int64 [n, tokens]."""
        starts = self.draw(len(self.stream) - tokens, n)
        rows = self.stream[starts[:, None] + torch.arange(tokens, device=starts.device)]
        rows[:, 0] = corpus.BOS_ID
        return rows

    def draw(self, below, n):
        return torch.randint(below, (n,), generator=self.generator, device=self.stream.device)

    def batch(self, tokens):
        """int64 [tokens / window, window]."""
        half = max(1, tokens // self.window // 2)
        return torch.cat((self.text(half, self.window), self.written[self.draw(len(self.written), half)]))


def fit(what, module, s, device, loss):
    """Trains a module for s.steps with the loss of each."""
    adam, sums, begun = train.optimizer(module, s), 0.0, time.time()
    module.train()
    for step in range(s.steps):
        for group in adam.param_groups:
            group["lr"] = train.learning_rate(step, s)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            value = loss()
        adam.zero_grad(set_to_none=True)
        value.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        adam.step()
        sums = sums + value.detach()
        if (step + 1) % max(1, s.steps // 4) == 0:
            print("%s: step %d of %d, loss %.3f, %.0f s" % (
                what, step + 1, s.steps, sums / (s.steps // 4), time.time() - begun), flush=True)
            sums = 0.0


def train_small(out, s, tokenizer, target, rows, device):
    """Trains the smaller model to have the target's probabilities."""
    small = LlamaForCausalLM(train.config(s)).to(device)

    def loss():
        ids = rows.batch(s.batch_tokens)
        with torch.no_grad():
            wanted = target(ids, use_cache=False).logits.float().softmax(-1)
        return -(wanted * small(ids, use_cache=False).logits.float().log_softmax(-1)).sum(-1).mean()

    fit("small model", small, s, device, loss)
    return train.save(out, small.state_dict(), tokenizer, s)


def train_head(out, r, target, rows, device):
    """Trains the EAGLE-3 head, whose output layer begins as the target's."""
    head, embed = eagle3.new(target, r.draft_vocab, r.head.ffn).to(device), target.get_input_embeddings()
    seen = torch.cat((rows.stream, rows.written.flatten()))
    ids = head.choose(torch.bincount(seen, minlength=target.config.vocab_size))
    head.lm_head.weight.data.copy_(target.lm_head.weight[ids])
    head.norm.weight.data.copy_(target.model.norm.weight)

    def loss():
        ids = rows.batch(r.head.batch_tokens)
        with torch.no_grad():
            seen = target(ids, use_cache=False, output_hidden_states=True)
        return eagle3.unrolled_loss(head, embed, ids, seen.hidden_states, seen.logits, r.unrolled)

    fit("head", head, r.head, device, loss)
    eagle3.save(head, out)
    return sum(p.numel() for p in head.parameters())


def prompts(r, tokenizer, held_out):
    """Prompts from text that nothing learned from, at equal distances: lists of ids, BOS first."""
    texts = [corpus.encode(tokenizer, corpus.passage(stretch)) for stretch in held_out]
    ids = [i for text in texts for i in text]
    step = (len(ids) - r.prompt_tokens) // r.prompts
    return [[corpus.BOS_ID] + ids[k * step : k * step + r.prompt_tokens - 1] for k in range(r.prompts)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    r, out = TINY if args.tiny else FULL, args.out
    device, begun = "cuda" if torch.cuda.is_available() else "cpu", time.time()

    def done(what):
        print("%s, %.0f s since the start" % (what, time.time() - begun), flush=True)

    torch.manual_seed(r.target.seed)
    logging.disable_progress_bar()
    training, held_out = corpus.split(corpus.speeches(read(args.corpus)))
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = corpus.train_tokenizer(training, r.target.vocab)
    target = train_target(out / "target", r.target, tokenizer, training, held_out[: r.scored], device)
    done("target: %.2f M parameters" % (target.num_parameters() / 1e6))
    stream = [i for t in training if t for i in corpus.encode(tokenizer, corpus.passage(t)) + [corpus.EOS_ID]]
    rows = Rows(r, target, torch.tensor(stream, device=device), torch.Generator(device).manual_seed(r.target.seed))
    done("the target wrote %d rows" % r.written)
    size = train_small(out / "small", r.small, tokenizer, target, rows, device)
    done("small model: %.2f M parameters" % (size / 1e6))
    size = train_head(out / "eagle", r, target, rows, device)
    done("EAGLE-3 head: %.2f M parameters" % (size / 1e6))
    asked = {"prompts": prompts(r, tokenizer, held_out), "answer_tokens": r.answer_tokens}
    (out / "prompts.json").write_text(json.dumps(asked))


if __name__ == "__main__":
    main()
