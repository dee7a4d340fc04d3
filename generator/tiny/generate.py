"""Plain decoding with transformers: greedy or sampled, with a repeat penalty."""

import torch

WINDOW = 64  # the repeat penalty looks at this many last tokens of prompt and completion


def load(directory):
    """The model in fp32 on the CPU, from its bf16 weights."""
    from transformers import LlamaForCausalLM
    return LlamaForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()


def penalize(logits, recent, penalty):
    """As RepetitionPenaltyLogitsProcessor, once for each token seen."""
    seen = torch.tensor(sorted(set(recent)))
    scores = logits[seen]
    logits[seen] = torch.where(scores > 0, scores / penalty, scores * penalty)
    return logits


@torch.no_grad()
def decode(model, prompt, count, choose):
    """Yields `count` tuples (token, logits [vocab]); choose(logits, tokens so far) picks."""
    tokens, cache, fresh = list(prompt), None, list(prompt)
    for _ in range(count):
        out = model(torch.tensor([fresh]), past_key_values=cache, use_cache=True)
        cache, logits = out.past_key_values, out.logits[0, -1]
        token = choose(logits.clone(), tokens)
        yield token, logits
        tokens.append(token)
        fresh = [token]


def chooser(penalty=1.0, temperature=0.0, seed=0):
    """A choose function for decode: the penalty first, then argmax or a draw."""
    generator = torch.Generator().manual_seed(seed)

    def choose(logits, tokens):
        logits = penalize(logits, tokens[-WINDOW:], penalty)
        if temperature == 0:
            return int(logits.argmax())
        weights = torch.softmax(logits / temperature, -1)
        return int(torch.multinomial(weights, 1, generator=generator))
    return choose
