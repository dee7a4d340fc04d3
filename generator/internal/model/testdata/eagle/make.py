#!/usr/bin/env python3
"""Makes a tiny random model and EAGLE-3 heads for it beside this file, and what a plain implementation in float32
drafts with them. They were made with

    pip install torch==2.13.0 transformers==5.17.0 safetensors==0.8.0 numpy==2.4.6
    python make.py

Each head is a folder with config.json and safetensors in a published form, and golden.json: {prompt, tokens, drafts,
margins}: a prompt, the tokens of greatest logit that follow in the model, none of them a near tie, for each of them
but the last the SEVEN drafts after it, and the least difference of a draft's logit to the next one. The heads are trained for some seconds on
the model's own text, so that drafts stand now and then. Head follows SafeAILab/EAGLE (model/cnets.py); the norms are
those of vllm-project/speculators.
"""
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent
VOCAB, HIDDEN, LAYERS, PROMPT, NEW, SEVEN, MARGIN = 31, 64, 4, 21, 40, 7, 0.01
CONTEXT = 128
HEADS = {
    "safeailab": dict(hidden=64, draft_vocab=23, layers=[2, LAYERS // 2, LAYERS - 3]),
    "speculators": dict(hidden=48, draft_vocab=29, layers=[0, 3], normed_residual=True, features_norm=True,
                        normed_output=True, embedding=True),
    "parts": dict(hidden=64, draft_vocab=VOCAB, layers=[2, 3, 3], part_norms=True, head_norms=True),
}


class Norm(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(1 + 0.2 * torch.randn(size))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)


def linear(rows, cols):
    m = nn.Linear(cols, rows, bias=False)
    m.weight.data = torch.randn(rows, cols) / cols ** 0.5
    return m


def rotate(x, positions, theta=10000.0):
    """RoPE by halves: x is [..., positions, size]."""
    size = x.shape[-1]
    angle = positions[:, None].float() / theta ** (torch.arange(0, size, 2).float() / size)
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :size // 2], x[..., size // 2:]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    """The layer of a head, and what stands before it."""

    def __init__(self, hidden, head_norms, heads=2, kv_heads=1, size=32, inner=80):
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, size
        self.input_layernorm, self.hidden_norm, self.post_attention_layernorm = Norm(hidden), Norm(hidden), Norm(hidden)
        self.self_attn = nn.ModuleDict(dict(
            q_proj=linear(heads * size, 2 * hidden), k_proj=linear(kv_heads * size, 2 * hidden),
            v_proj=linear(kv_heads * size, 2 * hidden), o_proj=linear(hidden, heads * size)))
        if head_norms:
            self.self_attn["q_norm"], self.self_attn["k_norm"] = Norm(size), Norm(size)
        self.mlp = nn.ModuleDict(dict(gate_proj=linear(inner, hidden), up_proj=linear(inner, hidden),
                                      down_proj=linear(hidden, inner)))

    def heads_of(self, name, x, positions):
        n = x.shape[-2]
        y = self.self_attn[name + "_proj"](x).view(*x.shape[:-2], n, -1, self.size).transpose(-2, -3)
        if name != "v":
            if name + "_norm" in self.self_attn:
                y = self.self_attn[name + "_norm"](y)
            y = rotate(y, positions)
        return y if name == "q" else y.repeat_interleave(self.heads // self.kv_heads, -3)

    def forward(self, embedded, feature, normed_residual, cache=None):
        """Rows after those in cache, which is a list of keys and values and grows."""
        before = cache[0].shape[-2] if cache else 0
        positions = torch.arange(before, before + feature.shape[-2])
        normed = self.hidden_norm(feature)
        x = torch.cat((self.input_layernorm(embedded), normed), -1)
        q, k, v = (self.heads_of(name, x, positions) for name in "qkv")
        if cache:
            k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
        if cache is not None:
            cache[:] = [k, v]
        mask = positions[:, None] >= torch.arange(k.shape[-2])
        scores = (q @ k.transpose(-1, -2) / self.size ** 0.5).masked_fill(~mask, -torch.inf)
        attended = (scores.softmax(-1) @ v).transpose(-2, -3).flatten(-2)
        h = (normed if normed_residual else feature) + self.self_attn["o_proj"](attended)
        n, mlp = self.post_attention_layernorm(h), self.mlp
        return h + mlp["down_proj"](F.silu(mlp["gate_proj"](n)) * mlp["up_proj"](n))


class Head(nn.Module):
    def __init__(self, hidden, draft_vocab, layers, normed_residual=False, features_norm=False, part_norms=False,
                 normed_output=False, embedding=False, head_norms=False):
        super().__init__()
        self.layers, self.normed_residual, self.normed_output = layers, normed_residual, normed_output
        self.midlayer, self.norm = Layer(hidden, head_norms), Norm(hidden)
        self.fc, self.lm_head = linear(hidden, len(layers) * HIDDEN), linear(draft_vocab, hidden)
        self.input_norm = Norm(len(layers) * HIDDEN) if features_norm else None
        self.fc_norm = nn.ModuleList(Norm(HIDDEN) for _ in layers) if part_norms else None
        self.embed_tokens = nn.Embedding(VOCAB, hidden) if embedding else None
        targets = torch.randperm(VOCAB)[:draft_vocab].sort().values
        self.d2t = targets - torch.arange(draft_vocab)
        self.t2d = torch.zeros(VOCAB, dtype=torch.bool)
        self.t2d[targets] = True

    def embed(self, model, tokens):
        return (self.embed_tokens or model.model.embed_tokens)(tokens)

    def features(self, states):
        """The features of rows, of a model's hidden states: state i is the input of layer i."""
        parts = [states[layer] for layer in self.layers]
        if self.fc_norm is not None:
            parts = [norm(part) for norm, part in zip(self.fc_norm, parts)]
        all_parts = torch.cat(parts, -1)
        return self.fc(all_parts if self.input_norm is None else self.input_norm(all_parts))

    def step(self, model, tokens, feature, cache=None):
        """The logits of rows (token, feature of the token before), and the feature for the next row of a chain."""
        h = self.midlayer(self.embed(model, tokens), feature, self.normed_residual, cache)
        n = self.norm(h)
        return self.lm_head(n), n if self.normed_output else h

    def drafts(self, model, tokens):
        """SEVEN drafts after tokens, and their least margin."""
        features = self.features(model(torch.tensor([tokens]), output_hidden_states=True).hidden_states)[0]
        cache, drafts, margin = [], [], float("inf")
        logits, h = self.step(model, torch.tensor(tokens[1:]), features[:-1], cache)
        for _ in range(SEVEN):
            best = torch.topk(logits[-1], 2)
            margin = min(margin, float(best.values[0] - best.values[1]))
            drafts.append(int(best.indices[0] + self.d2t[best.indices[0]]))
            logits, h = self.step(model, torch.tensor(drafts[-1:]), h[-1:], cache)
        return drafts, margin


@torch.no_grad()
def follow(model, tokens, new):
    tokens = tokens.clone()
    for _ in range(new):
        tokens = torch.cat((tokens, model(tokens).logits[:, -1:].argmax(-1)), -1)
    return tokens


def train(head, model, steps=200):
    tokens = follow(model, torch.randint(0, VOCAB, (24, PROMPT)), NEW)
    with torch.no_grad():
        states = model(tokens, output_hidden_states=True).hidden_states
    to_draft = torch.full((VOCAB,), -100)
    to_draft[torch.arange(len(head.d2t)) + head.d2t] = torch.arange(len(head.d2t))
    adam = torch.optim.Adam(head.parameters(), 4e-3)
    for _ in range(steps):
        features = head.features(states)
        logits, h = head.step(model, tokens[:, 1:-1], features[:, :-2])
        loss = F.cross_entropy(logits.flatten(0, 1), to_draft[tokens[:, 2:]].flatten())
        loss = loss + F.smooth_l1_loss(h, features[:, 1:-1].detach())
        adam.zero_grad()
        loss.backward()
        adam.step()
    print("loss", loss.item())


def layer_config(hidden, head_norms, **more):
    return dict(model_type="qwen3" if head_norms else "llama", hidden_size=hidden, intermediate_size=80,
                num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=32, vocab_size=VOCAB,
                max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
                attention_bias=False, tie_word_embeddings=False, **more)


def config(name, hidden, draft_vocab, layers, **flags):
    if name == "safeailab":
        return layer_config(hidden, False, architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=draft_vocab,
                            bos_token_id=1, eos_token_id=30, pad_token_id=0, torch_dtype="bfloat16",
                            mlp_bias=False, transformers_version="4.53.0", use_cache=True)
    if name == "parts":  # the layers as those whose output is taken
        return layer_config(hidden, True, architectures=["LlamaForCausalLMEagle3"], fc_norm=True, eagle_config=dict(
            use_aux_hidden_state=True, eagle_aux_hidden_state_layer_ids=[layer - 1 for layer in layers]))
    return dict(architectures=["Eagle3Speculator"], auto_map={"": "eagle3.Eagle3SpeculatorConfig"},
                draft_vocab_size=draft_vocab, has_no_defaults_at_init=False, norm_before_residual=True,
                norm_before_fc=True, fc_norm=False, norm_output=True, target_hidden_size=HIDDEN,
                eagle_aux_hidden_state_layer_ids=layers, speculators_model_type="eagle3", speculators_version="0.3.0",
                speculators_config=dict(algorithm="eagle3", default_proposal_method="greedy"),
                torch_dtype="bfloat16", transformer_layer_config=layer_config(hidden, False))


def tensors(head, name):
    """The head's tensors under published names, in bfloat16."""
    all_tensors = {n: t.detach().to(torch.bfloat16).contiguous() for n, t in head.named_parameters()}
    if len(head.d2t) < VOCAB:
        all_tensors.update(d2t=head.d2t, t2d=head.t2d)
    if name == "speculators":
        all_tensors = {n.replace("midlayer.", "layers.0."): t for n, t in all_tensors.items()}
    return all_tensors


def stand(tokens, drafts):
    """How many of the drafts after each token stand."""
    stands = []
    for n, list_of in enumerate(drafts):
        real = tokens[n + 1:][:SEVEN]
        stands.append(next((i for i, token in enumerate(real) if list_of[i] != token), len(real)))
    return stands


@torch.no_grad()
def golden(head, model):
    while True:
        prompt = torch.randint(0, VOCAB, (1, PROMPT))
        tokens = follow(model, prompt, NEW)[0].tolist()
        best = torch.topk(model(torch.tensor([tokens])).logits[0, PROMPT - 1:-1], 2).values
        if float((best[:, 0] - best[:, 1]).min()) < MARGIN:
            continue
        drafts, margins = zip(*(head.drafts(model, tokens[:n]) for n in range(PROMPT + 1, len(tokens))))
        if min(margins) >= MARGIN and max(stand(tokens[PROMPT:], drafts)) > 1:
            return dict(prompt=tokens[:PROMPT], tokens=tokens[PROMPT:], drafts=drafts,
                        margins=[round(m, 4) for m in margins])


def main():
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, max_position_embeddings=CONTEXT, rms_norm_eps=1e-5, bos_token_id=1,
        eos_token_id=2, pad_token_id=None, attn_implementation="eager")).eval()
    for n, p in model.named_parameters():
        p.data = 1 + 0.2 * torch.randn(p.shape) if p.dim() == 1 else torch.randn(p.shape) / p.shape[1] ** 0.5
    model.to(torch.bfloat16).save_pretrained(HERE / "target")
    (HERE / "target" / "generation_config.json").unlink(missing_ok=True)
    model = LlamaForCausalLM.from_pretrained(HERE / "target", dtype=torch.float32, attn_implementation="eager").eval()
    model.requires_grad_(False)
    for name, shape in HEADS.items():
        head = Head(**shape)
        train(head, model)
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        save_file(tensors(head, name), folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config(name, **shape), indent=1) + "\n")
        head.to(torch.bfloat16).to(torch.float32)
        g = golden(head, model)
        print(name, "drafts that stand", stand(g["tokens"], g["drafts"]), "margin", min(g["margins"]))
        (folder / "golden.json").write_text(json.dumps(g) + "\n")


if __name__ == "__main__":
    main()
