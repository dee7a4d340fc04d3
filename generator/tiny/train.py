"""Trains the embedded model: python3 train.py --corpus shakespeare.txt --out DIR

Writes an ordinary Hugging Face directory and training.json, and prints what
the held-out text costs. README.md beside this file says what came of it.
"""

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import corpus
import ngram


@dataclass
class Settings:
    """Everything that shapes the run. The defaults are the recorded run's."""
    seed: int = 1
    vocab: int = 4096
    context: int = 1024  # tokens
    hidden: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    ffn: int = 512
    steps: int = 2000  # the schedule's length; the best evaluation is kept
    batch_tokens: int = 16384
    lr: float = 3e-3
    warmup: int = 100
    weight_decay: float = 2.0
    dropout: float = 0.25  # on embeddings and on both branches of each layer
    bpe_dropout: float = 0.3  # fades to none over the schedule
    variants: int = 16  # tokenizations kept of each word
    mean_speeches: int = 30  # in a passage, so this often comes EOS
    ema: float = 0.995  # averaging of the weights, per step
    eval_every: int = 50


def config(s):
    """The model's shape as transformers has it."""
    return LlamaConfig(
        vocab_size=s.vocab, hidden_size=s.hidden, intermediate_size=s.ffn,
        num_hidden_layers=s.layers, num_attention_heads=s.heads,
        num_key_value_heads=s.kv_heads, head_dim=s.hidden // s.heads,
        max_position_embeddings=s.context, rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True, bos_token_id=corpus.BOS_ID, eos_token_id=corpus.EOS_ID, use_cache=True)


def add_dropout(model, p):
    """Dropout in training where the Llama code has none. Inference is untouched."""
    def hook(module, _, output):
        return F.dropout(output, p, module.training)
    for name, module in model.named_modules():
        if name.endswith(("embed_tokens", "o_proj", "down_proj")):
            module.register_forward_hook(hook)


def optimizer(model, s):
    """AdamW; norms are not decayed."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": s.weight_decay},
              {"params": vectors, "weight_decay": 0.0}]
    fused = torch.cuda.is_available()
    return torch.optim.AdamW(groups, lr=s.lr, betas=(0.9, 0.98), fused=fused)


def learning_rate(step, s):
    """Linear warm-up, then a cosine to a twentieth."""
    if step < s.warmup:
        return s.lr * (step + 1) / s.warmup
    done = (step - s.warmup) / max(1, s.steps - s.warmup)
    return s.lr * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done)))


def held_out_windows(ids, context, stride):
    """Inputs and labels, int64 [windows, context] each, for one held-out stretch.

    The first window scores all its targets; each later one starts `stride`
    tokens on and scores its last `stride` targets only. So every token is
    scored once, with at least context-stride tokens before it, or all there
    are. Every window has BOS in front, in place of the token before it.
    """
    inputs, labels, scored = [], [], 0
    for start in range(0, max(1, len(ids) - context + stride), stride):
        target = ids[start:start + context]
        source = [corpus.BOS_ID] + target[:-1]
        label = [-100] * (scored - start) + target[scored - start:]
        scored = start + len(target)
        inputs.append(source + [corpus.EOS_ID] * (context - len(source)))
        labels.append(label + [-100] * (context - len(label)))
    return torch.tensor(inputs), torch.tensor(labels)


class HeldOut:
    """The held-out stretches, ready to be scored."""

    def __init__(self, stretches, tokenizer, s, device):
        texts = [corpus.passage(stretch) for stretch in stretches]
        self.characters = sum(len(t) for t in texts)
        pairs = [held_out_windows(corpus.encode(tokenizer, t), s.context, s.context // 4)
                 for t in texts]
        self.inputs = torch.cat([p[0] for p in pairs]).to(device)
        self.labels = torch.cat([p[1] for p in pairs]).to(device)
        self.tokens = int((self.labels != -100).sum())

    @torch.no_grad()
    def nats(self, weights, s):
        """Total nats of `weights` rounded to bf16, computed in fp32."""
        model = LlamaForCausalLM(config(s)).to(self.inputs.device).eval()
        model.load_state_dict({k: v.bfloat16().float() for k, v in weights.items()})
        total = 0.0
        for x, y in zip(self.inputs.split(16), self.labels.split(16)):
            logits = model(x).logits
            total += F.cross_entropy(logits.flatten(0, 1), y.flatten(),
                                     ignore_index=-100, reduction="sum").item()
        return total


def train(s, batches, held_out, device):
    """Runs the schedule. Returns the best averaged weights and the loss history."""
    model = LlamaForCausalLM(config(s)).to(device).train()
    add_dropout(model, s.dropout)
    adam = optimizer(model, s)
    average = {k: v.detach().clone() for k, v in model.state_dict().items()}
    best, best_nats, history = None, math.inf, []
    began = time.time()
    for step, batch in enumerate(batches):
        loss = train_step(model, adam, batch, learning_rate(step, s), device)
        update_average(average, model, min(s.ema, (step + 1) / (step + 10)))
        if (step + 1) % s.eval_every:
            continue
        nats = held_out.nats(average, s)
        history.append([step + 1, round(loss.item(), 4), round(nats / held_out.characters, 5)])
        print(f"step {step + 1} training {loss.item():.4f} nats/token, held out "
              f"{nats / held_out.characters:.4f} nats/char, {time.time() - began:.0f} s", flush=True)
        if nats < best_nats:
            best_nats, best = nats, {k: v.clone() for k, v in average.items()}
    return best, best_nats, history


def train_step(model, adam, batch, lr, device):
    """One step on int64 [rows, context+1]. Returns the mean loss as a tensor."""
    for group in adam.param_groups:
        group["lr"] = lr
    tokens = torch.from_numpy(batch).to(device)
    with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):  # most CPUs emulate bf16
        logits = model(tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
    adam.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    return loss.detach()


@torch.no_grad()
def update_average(average, model, decay):
    """average = decay * average + (1 - decay) * weights. The tied head is one with the embedding."""
    now = model.state_dict()
    torch._foreach_lerp_([average[k] for k in now], list(now.values()), 1 - decay)


def save(out, weights, tokenizer, s):
    """Writes the Hugging Face directory."""
    model = LlamaForCausalLM(config(s))
    model.load_state_dict(weights)
    model.bfloat16().save_pretrained(out)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=corpus.BOS, eos_token=corpus.EOS,
        clean_up_tokenization_spaces=False, model_max_length=s.context).save_pretrained(out)
    tokenizer.save(str(out / "tokenizer.json"))
    name_tokenizer_class(out / "tokenizer_config.json")
    return sum(p.numel() for p in model.parameters())


def name_tokenizer_class(path):
    """Names the class that transformers 4 and 5 both know."""
    settings = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(settings, indent=2, sort_keys=True) + "\n")


def report(s, held_out, nats, training, tokenizer, stretches):
    """The numbers that README.md records."""
    train_texts = [corpus.passage(p) for p in training]
    held_out_texts = [corpus.passage(p) for p in stretches]
    return {
        "held_out_nats_per_char": nats / held_out.characters,
        "held_out_nats_per_token": nats / held_out.tokens,
        "held_out_characters": held_out.characters,
        "held_out_tokens": held_out.tokens,
        "five_gram_nats_per_char": ngram.baselines(
            train_texts, held_out_texts, lambda t: corpus.encode(tokenizer, t), s.vocab),
    }


def arguments():
    parser = argparse.ArgumentParser(description="Train Reel's embedded model.")
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    for f in fields(Settings):
        parser.add_argument("--" + f.name.replace("_", "-"), type=f.type, default=f.default)
    args = vars(parser.parse_args())
    return args.pop("corpus"), args.pop("out"), Settings(**args)


def main():
    path, out, s = arguments()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(s.seed)
    rng = np.random.default_rng(s.seed)
    training, stretches = corpus.split(corpus.speeches(path.read_text()))
    tokenizer = corpus.train_tokenizer(training, s.vocab)
    words = corpus.Retokenizer(tokenizer, s.bpe_dropout, s.variants, rng)
    epochs = corpus.Epochs(training, words, s.context, s.mean_speeches, rng)
    held_out = HeldOut(stretches, tokenizer, s, device)
    weights, nats, history = train(
        s, epochs.batches(s.batch_tokens // s.context, s.steps), held_out, device)
    out.mkdir(parents=True, exist_ok=True)
    result = {"parameters": save(out, weights, tokenizer, s)}
    result |= report(s, held_out, nats, training, tokenizer, stretches)
    result |= {"settings": asdict(s), "history": history}
    (out / "training.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k not in ("history", "settings")}))


if __name__ == "__main__":
    main()
