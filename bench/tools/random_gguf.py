"""Random GGUF files for random_checkpoint.py: blocks of each quantised format whose values have the deviation 0.02.

The blocks of a format are made once and repeated, so that the largest file is written as fast as the disk takes it.
"""
import struct

import numpy as np

DEVIATION = 0.02
POOL = 1 << 26  # bytes of blocks that are made

# Number of the type in GGUF, weights and bytes of a block. (ggml.h, ggml-common.h.)
TYPES = {
    "f32": (0, 1, 4), "f16": (1, 1, 2), "bf16": (30, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210), "iq4_xs": (23, 256, 136), "mxfp4": (39, 32, 17),
}
FORMATS = sorted(TYPES.keys() - {"f32"}) + ["q4_k_m"]

# Published names, and those of GGUF.
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "model.layers": "blk",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.experts.gate_proj": "ffn_gate_exps", "mlp.experts.up_proj": "ffn_up_exps",
    "mlp.experts.down_proj": "ffn_down_exps", "mlp.gate.": "ffn_gate_inp.",
    "mlp.gate_up_proj": "ffn_up", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def halves(values):
    """float16 bytes [n][2] of values [n]."""
    return values.astype(np.float16).view(np.uint8).reshape(-1, 2)


def k_scales(scale, least):
    """scales[12] of Q4_K and Q5_K from 6-bit scales and minima [n][8]."""
    low = [scale[:, :4] | scale[:, 4:] >> 4 << 6, least[:, :4] | least[:, 4:] >> 4 << 6]
    return np.concatenate([*low, scale[:, 4:] & 15 | (least[:, 4:] & 15) << 4], 1).astype(np.uint8)


def blocks(name, rng):
    """Random blocks of a format, [n][bytes]. Scales have random signs or minima, so that values have the mean 0."""
    _, _, size = TYPES[name]
    n = POOL // size
    b = rng.integers(0, 256, (n, size), np.uint8)
    spread = rng.uniform(0.8, 1.2, n) * DEVIATION  # the deviation within a block
    sign = rng.choice([-1, 1], n)
    scale = rng.integers(32, 64, (n, 8))
    if name == "f16":
        return halves(rng.standard_normal(n) * DEVIATION)
    if name == "bf16":
        normal = (rng.standard_normal(n) * DEVIATION).astype(np.float32)
        return (normal.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8).reshape(-1, 2)
    if name in ("q4_0", "q5_0", "q8_0"):  # codes are uniform
        b[:, :2] = halves(sign * spread / {"q4_0": 4.6, "q5_0": 9.2, "q8_0": 73.9}[name])
    elif name in ("q4_1", "q5_1"):
        deviation, mean = {"q4_1": (4.6, 7.5), "q5_1": (9.2, 15.5)}[name]
        b[:, :2], b[:, 2:4] = halves(spread / deviation), halves(-mean * spread / deviation)
    elif name in ("q4_k", "q5_k"):  # a minimum of 7.5 or 15.5 scales
        deviation, levels = {"q4_k": (4.6, 16), "q5_k": (9.2, 32)}[name]
        d = spread / deviation / 48
        b[:, :2], b[:, 2:4] = halves(d), halves(d * levels / 2)
        b[:, 4:16] = k_scales(scale, (scale * (levels - 1) + levels // 2) // levels)
    elif name == "q6_k":
        b[:, 192:208] = (np.concatenate([scale, scale], 1) * rng.choice([-1, 1], (n, 16))).astype(np.int8).view(np.uint8)
        b[:, 208:] = halves(spread / 18.5 / 48)
    elif name == "iq4_xs":  # scales are random 6-bit numbers less 32
        b[:, :2] = halves(spread / 63 / 18.5)
    elif name == "mxfp4":
        b[:, 0] = 120  # 2^-7 times a deviation of 2.9
    return b


class Pool:
    """Blocks by format, each made when it is first needed."""

    def __init__(self, seed):
        self.rng, self.made, self.at = np.random.default_rng(seed), {}, 0

    def parts(self, name, size):
        """Slices of the format's blocks, size bytes together. Each tensor begins at another block."""
        if name not in self.made:
            self.made[name] = memoryview(blocks(name, self.rng).reshape(-1))
        pool = self.made[name]
        at = self.at % len(pool) // TYPES[name][2] * TYPES[name][2]
        self.at += 7919 * TYPES[name][2]
        while size > 0:
            part = pool[at:at + size]
            yield part
            size, at = size - len(part), 0


def format_of(name, tensor, shape, layers):
    """The type of a tensor in a file of format name: that of q4_k_m is llama-quantize's choice for 7B."""
    if len(shape) < 2:
        return "f32"
    if "ffn_gate_inp" in tensor:  # the router, which is float in all files
        return "bf16"
    if name == "q4_k_m":
        name = "q4_k"
        i = int(tensor.split(".")[1]) if tensor.startswith("blk.") else 0
        more = i < layers // 8 or i >= 7 * layers // 8 or (i - layers // 8) % 3 == 2
        if tensor == "output.weight" or more and (".attn_v." in tensor or ".ffn_down" in tensor):
            name = "q6_k"
    return "q8_0" if shape[-1] % TYPES[name][1] else name


def pairs(config, arch):
    """The metadata, without a tokenizer."""
    c = {k: config[k] for k in ("num_attention_heads", "num_key_value_heads", "head_dim")}
    yield "general.architecture", arch
    for key, value in {
        "context_length": config["max_position_embeddings"], "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"], "feed_forward_length": config["intermediate_size"],
        "attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"],
        "attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"],
        "attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]), "rope.dimension_count": c["head_dim"],
        "rope.freq_base": float(config["rope_theta"]),
    }.items():
        yield f"{arch}.{key}", value
    if config["model_type"] in ("mistral", "phi3"):
        yield f"{arch}.attention.sliding_window", config["sliding_window"]
    if "num_experts" in config:
        yield f"{arch}.expert_count", config["num_experts"]
        yield f"{arch}.expert_used_count", config["num_experts_per_tok"]
        yield f"{arch}.expert_feed_forward_length", config["moe_intermediate_size"]
    yield "tokenizer.ggml.eos_token_id", config["eos_token_id"]


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + string(v)
    return struct.pack("<If", 6, v) if isinstance(v, float) else struct.pack("<II", 4, v)


def write(path, name, config, tensors, seed):
    """Writes a file of format name and returns the bytes of its tensors, given as published names and shapes."""
    arch = {"mistral": "llama", "qwen3_moe": "qwen3moe"}.get(config["model_type"], config["model_type"])
    header, plan, at = b"", [], 0
    for tensor, shape in tensors:
        for published, ours in NAMES.items():
            tensor = tensor.replace(published, ours)
        kind = format_of(name, tensor, shape, config["num_hidden_layers"])
        number, elements, size = TYPES[kind]
        header += string(tensor) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", n) for n in reversed(shape)) + struct.pack("<IQ", number, at)
        size = int(np.prod(shape)) // elements * size
        plan.append((kind, shape, size))
        at += -(-size // 32) * 32
    metadata = list(pairs(config, arch))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(plan), len(metadata))
    head += b"".join(string(k) + value(v) for k, v in metadata) + header
    pool = Pool(seed)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for kind, shape, size in plan:
            if kind == "f32":
                f.write(np.ones(shape, np.float32).tobytes())
            else:
                for part in pool.parts(kind, size):
                    f.write(part)
            f.write(bytes(-size % 32))
    return at
