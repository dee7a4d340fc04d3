"""An EAGLE-3 head in PyTorch, as its authors publish it: layer, files, loss of training, chain of drafts.

Names, shapes and formulas are those of SafeAILab/EAGLE: eagle/model/cnets.py and eagle/traineagle3/cnets.py. Row t of
the head has the target's features of position t and the embedding of token t+1, at RoPE position t, and guesses token
t+2. H is the hidden size, of target and head alike.
"""

import json

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

FADE = 0.8  # weight of a later unrolled step's loss, by the one before


def features(hidden_states):
    """What a head sees of the target: float [..., 3H], the inputs of three layers, of transformers' hidden_states.

    These are three different ones where the target has 7 layers or more.
    """
    layers = len(hidden_states) - 1
    return torch.cat([hidden_states[i] for i in (2, layers // 2, layers - 3)], -1)


class Norm(nn.RMSNorm):
    """RMSNorm, computed in float32 as the published one is."""

    def forward(self, x):
        return super().forward(x.float()).to(x.dtype)


class Attention(nn.Module):
    """Causal attention over rows of 2H values."""

    def __init__(self, c):
        super().__init__()
        hidden, self.heads, self.kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
        self.dim, self.theta = c["head_dim"], c["rope_theta"]
        self.q_proj = nn.Linear(2 * hidden, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(2 * hidden, self.kv * self.dim, bias=False)
        self.v_proj = nn.Linear(2 * hidden, self.kv * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, hidden, bias=False)

    def forward(self, x, positions, kept):
        """x [B, T, 2H]. kept has keys and values of earlier unrolled steps, and gets this step's.

        Row t sees the first step's rows up to t, and of later steps row t alone, which is its own chain.
        """
        shape = (*x.shape[:2], -1, self.dim)
        q = self.rope(self.q_proj(x).view(shape).transpose(1, 2), positions)
        k = self.rope(self.k_proj(x).view(shape).transpose(1, 2), positions)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        kept.append([t.repeat_interleave(self.heads // self.kv, 1) for t in (k, v)])
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = [(q @ kept[0][0].transpose(2, 3)).float().masked_fill(later, -torch.inf)]
        scores += [(q * k).sum(-1, keepdim=True).float() for k, _ in kept[1:]]
        weights = (torch.cat(scores, -1) / self.dim**0.5).softmax(-1).to(v.dtype)
        out = weights[..., : x.shape[1]] @ kept[0][1]
        for i, (_, v) in enumerate(kept[1:]):
            out = out + weights[..., x.shape[1] + i, None] * v
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def rope(self, x, positions):
        """Turns halves of a head's values against each other."""
        half = torch.arange(self.dim // 2, device=x.device) * (2 / self.dim)
        angle = positions[:, None] / self.theta**half
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """The head's one layer."""

    def __init__(self, c):
        super().__init__()
        self.input_layernorm = Norm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.hidden_norm = Norm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"], eps=c["rms_norm_eps"])
        self.self_attn, self.mlp = Attention(c), MLP(c)

    def forward(self, embeds, hidden, positions, kept):
        """embeds and hidden [B, T, H]. Returns [B, T, H], before the final norm: the next step's hidden."""
        x = torch.cat((self.input_layernorm(embeds), self.hidden_norm(hidden)), -1)
        x = hidden + self.self_attn(x, positions, kept)
        return x + self.mlp(self.post_attention_layernorm(x))


class Head(nn.Module):
    """The head; its parameters and buffers have the published names. d2t is an offset: target id = id + d2t[id]."""

    def __init__(self, config):
        super().__init__()
        self.config, hidden = config, config["hidden_size"]
        self.fc = nn.Linear(3 * hidden, hidden, bias=False)
        self.midlayer = Layer(config)
        self.norm = Norm(hidden, eps=config["rms_norm_eps"])
        self.lm_head = nn.Linear(hidden, config["draft_vocab_size"], bias=False)
        self.register_buffer("d2t", torch.zeros(config["draft_vocab_size"], dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(config["vocab_size"], dtype=torch.bool))

    def choose(self, counts):
        """Takes the target's most frequent tokens, of counts int64 [vocab], as the head's own vocabulary."""
        ids = counts.argsort(descending=True, stable=True)[: len(self.d2t)].sort().values
        self.d2t.copy_(ids - torch.arange(len(ids), device=ids.device))
        self.t2d.zero_()[ids] = True
        return ids

    def logits(self, hidden):
        return self.lm_head(self.norm(hidden))


def new(target, draft_vocab, intermediate):
    """An untrained head for a LlamaForCausalLM, with its width, heads and RoPE."""
    c = target.config
    return Head({
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "num_hidden_layers": 1,
        "hidden_size": c.hidden_size, "intermediate_size": intermediate, "hidden_act": c.hidden_act,
        "num_attention_heads": c.num_attention_heads, "num_key_value_heads": c.num_key_value_heads,
        "head_dim": c.head_dim, "rms_norm_eps": c.rms_norm_eps, "rope_theta": c.rope_parameters["rope_theta"],
        "max_position_embeddings": c.max_position_embeddings, "vocab_size": c.vocab_size,
        "draft_vocab_size": draft_vocab, "tie_word_embeddings": False, "bos_token_id": c.bos_token_id,
        "eos_token_id": c.eos_token_id, "torch_dtype": "bfloat16"})


def save(head, out):
    """Writes config.json and model.safetensors in bf16. There are no embeddings: they are the target's."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {k: v.bfloat16() if v.is_floating_point() else v for k, v in head.state_dict().items()}
    save_file({k: v.contiguous().cpu() for k, v in tensors.items()}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(head.config, indent=2) + "\n")


def load(directory, device):
    """The head in float32, from its files."""
    head = Head(json.loads((directory / "config.json").read_text()))
    head.load_state_dict(load_file(directory / "model.safetensors"))
    return head.float().to(device).eval()


def shift(x):
    """x [B, T, …] one row on; zeros follow."""
    return torch.cat((x[:, 1:], torch.zeros_like(x[:, :1])), 1)


def unrolled_loss(head, embed, ids, hidden_states, logits, steps):
    """The loss of chains of `steps` drafts from every row: cross-entropy with the target's probabilities.

    ids int64 [B, T]; hidden_states and logits are the target's for them.
    """
    ids, best = shift(ids), shift(logits.argmax(-1))
    counted = head.t2d[best]
    counted[:, -1] = False
    wanted = shift(logits)[..., head.t2d].float().softmax(-1) * counted[..., None]
    hidden, positions = head.fc(features(hidden_states)), torch.arange(ids.shape[1], device=ids.device)
    total, kept = 0.0, []
    for i in range(steps):
        hidden = head.midlayer(embed(ids), hidden, positions + i, kept)
        guessed = head.logits(hidden).float().log_softmax(-1)
        total = total - FADE**i * (wanted * guessed).sum(-1).mean()
        ids, wanted = shift(ids), shift(wanted)
    return total


@torch.no_grad()
def drafts(head, embed, known, seen, count):
    """Chains of drafts after texts, each token the most probable one; nothing is cached.

    known: the texts' tokens. seen float [texts, longest, 3H]: the target's features of them. Returns int64 [texts,
    count].
    """
    device, n = seen.device, torch.tensor([len(text) for text in known], device=seen.device)
    rows = torch.arange(len(known), device=device)
    ids = torch.zeros(len(known), int(n.max()) + count, dtype=torch.int64, device=device)
    for i, text in enumerate(known):
        ids[i, : len(text)] = torch.tensor(text)
    hidden = F.pad(head.fc(seen), (0, 0, 0, max(0, ids.shape[1] - seen.shape[1])))[:, : ids.shape[1] - 1].clone()
    positions = torch.arange(hidden.shape[1], device=device)
    for i in range(count):
        last = head.midlayer(embed(ids[:, 1:]), hidden, positions, [])[rows, n - 2 + i]
        best = head.logits(last).argmax(-1)
        ids[rows, n + i] = best + head.d2t[best]
        if i + 1 < count:
            hidden[rows, n - 1 + i] = last
    return torch.stack([ids[rows, n + i] for i in range(count)], 1)
