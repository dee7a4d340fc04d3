"""Writes sampling.json: random logits, texts and sampling parameters, and by numpy the distribution of the next token.

Run with Python 3.9 or later and numpy:
    python sampling.py

Each case has the exact probabilities in float64 and the token that a temperature of 0 takes. A case is drawn again if a
filter's border is so near to a token that the rounding of float32 may decide on which side it lies.
"""

import json
import pathlib

import numpy as np

VOCAB, WINDOW, CASES = 40, 64, 32


def distribution(logits: np.ndarray, text: list, prompt: int, s: dict) -> tuple:
    """Returns the probabilities, the greedy token, and the least distance of a token to a border."""
    mu = logits.astype(np.float64)
    window = np.unique(text[-WINDOW:]).astype(int)
    mu[window] = np.where(mu[window] > 0, mu[window] / s["repeat"], mu[window] * s["repeat"])
    # "Frequency and presence penalties" in the reference of OpenAI's API: c counts the sampled tokens.
    c = np.bincount(np.array(text[prompt:], dtype=int), minlength=VOCAB)
    mu = mu - c * s["frequency"] - (c > 0) * s["presence"]
    for token, bias in s["biases"]:
        mu[token] += bias
    if s["allowed"] is not None:
        mu[np.setdiff1d(np.arange(VOCAB), s["allowed"])] = -np.inf
    order = np.argsort(-mu, kind="stable")
    border = mu[order[0]] - mu[order[1]]
    x = mu / s["temperature"]
    keep = order[: s["top_k"] or VOCAB]
    if 0 < s["top_k"] < VOCAB and np.isfinite(mu[order[s["top_k"]]]):
        border = min(border, mu[order[s["top_k"] - 1]] - mu[order[s["top_k"]]])
    p = softmax(x[keep])
    if s["top_p"] < 1:
        total = np.cumsum(p)
        border = min(border, np.min(np.abs(total - s["top_p"])))
        keep = keep[: np.searchsorted(total, s["top_p"]) + 1]
        p = softmax(x[keep])
    if s["min_p"] > 0:
        border = min(border, np.min(np.abs(p / p.max() - s["min_p"])))
        keep = keep[p >= s["min_p"] * p.max()]
    out = np.zeros(VOCAB)
    out[keep] = softmax(x[keep])
    return out, int(order[0]), border


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def parameters(rng: np.random.Generator) -> dict:
    def maybe(value, off):
        return value if rng.random() < 0.6 else off

    biased = rng.permutation(VOCAB)[: rng.integers(1, 8)]
    return {
        # eighths, which float32 holds exactly
        "temperature": rng.integers(4, 16) / 8,
        "repeat": maybe(rng.integers(6, 16) / 8, 1),
        "presence": maybe(rng.integers(-16, 17) / 8, 0),
        "frequency": maybe(rng.integers(-4, 17) / 8, 0),
        "biases": maybe([[int(t), int(rng.integers(-24, 25)) / 8] for t in biased], []),
        "allowed": maybe(sorted(int(t) for t in rng.permutation(VOCAB)[: rng.integers(2, VOCAB)]), None),
        "top_k": int(maybe(rng.integers(2, VOCAB), 0)),
        "top_p": maybe(rng.integers(4, 8) / 8, 1),
        "min_p": maybe(rng.integers(1, 3) / 16, 0),
    }


def main() -> None:
    rng = np.random.default_rng(25)
    cases = []
    while len(cases) < CASES:
        logits = np.round(rng.normal(0, 1.5, VOCAB) * 64) / 64  # exact in float32
        text = [int(t) for t in rng.integers(0, rng.integers(2, VOCAB), rng.integers(1, 150))]
        prompt, s = int(rng.integers(1, len(text) + 1)), parameters(rng)
        p, greedy, border = distribution(logits, text, prompt, s)
        if border < 1e-3:
            continue
        cases.append({"logits": logits.tolist(), "text": text, "prompt": prompt, **s, "greedy": greedy,
                      "probabilities": [float(f"{v:.9g}") for v in p]})
    lines = ",\n".join(json.dumps(c, separators=(",", ":"), default=float) for c in cases)
    pathlib.Path(__file__).with_name("sampling.json").write_text(f"[\n{lines}\n]\n")


main()
