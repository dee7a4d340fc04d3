"""Random quantised Hugging Face checkpoints for random_checkpoint.py: the tensors of each layer as published ones have them.

Values have the deviation 0.02. Codes are made once and repeated, so that the largest file is written as fast as the
disk takes it. Embedding, norms and head stay as they are.
"""
import numpy as np

DEVIATION = 0.02
POOL = 1 << 26  # bytes of codes that are made
UNIFORM = 4.61  # deviation of codes of four bits


def compressed(form, **weights):
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


# quantization_config by the name of a format.
CONFIGS = {
    "fp8": compressed("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True, dynamic=False),
    "fp8-block": {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]},
    "w4a16": compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=128, symmetric=True),
    "mxfp4": compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32),
    "awq": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True, "checkpoint_format": "gptq"},
}
FORMATS = sorted(CONFIGS)


def float8_deviation():
    """The deviation of E4M3 over all its codes."""
    code = np.arange(127)
    exponent, fraction = code >> 3, code & 7
    return np.sqrt(np.mean(np.where(exponent == 0, fraction / 512, (8 + fraction) * 2.0 ** (exponent - 10)) ** 2))


class Layers:
    """The tensors of linear layers in one format."""

    def __init__(self, name, seed):
        self.name, self.rng, self.at = name, np.random.default_rng(seed), 0
        codes = self.rng.integers(0, 256, POOL, np.uint8)
        if name.startswith("fp8"):
            codes[codes & 127 == 127] = 0  # no NaN
        self.pool = memoryview(codes)

    def codes(self, size):
        """Slices of the pool, size bytes together. Each tensor begins elsewhere."""
        self.at += 7919 * 16
        at = self.at % POOL
        while size > 0:
            part = self.pool[at:at + size]
            yield part
            size, at = size - len(part), 0

    def scales(self, shape, deviation, dtype="F16"):
        """Scales of random signs, so that values have the mean 0."""
        s = self.rng.uniform(0.8, 1.2, shape) * self.rng.choice([-1, 1], shape) * DEVIATION / deviation
        if dtype == "BF16":
            return (s.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return s.astype({"F16": np.float16, "F32": np.float32}[dtype]).tobytes()

    def tensors(self, layer, rows, cols):
        """(name, dtype, shape, function that returns parts of its bytes) of each tensor of a layer."""
        groups = cols // 128

        def zeros(word):  # of GPTQ and AWQ: all are 8
            return lambda: [np.full((groups, rows // 8), word, np.uint32).tobytes()]

        def scales(shape, deviation, dtype="F16"):
            return lambda: [self.scales(shape, deviation, dtype)]

        def codes(size):
            return lambda: self.codes(size)

        if self.name == "fp8":
            yield f"{layer}.weight", "F8_E4M3", (rows, cols), codes(rows * cols)
            yield f"{layer}.weight_scale", "BF16", (rows, 1), scales((rows, 1), float8_deviation(), "BF16")
        elif self.name == "fp8-block":
            shape = (-(-rows // 128), groups)
            yield f"{layer}.weight", "F8_E4M3", (rows, cols), codes(rows * cols)
            yield f"{layer}.weight_scale_inv", "F32", shape, scales(shape, float8_deviation(), "F32")
        elif self.name == "w4a16":
            yield f"{layer}.weight_packed", "I32", (rows, cols // 8), codes(rows * cols // 2)
            yield f"{layer}.weight_scale", "BF16", (rows, groups), scales((rows, groups), UNIFORM, "BF16")
            yield f"{layer}.weight_shape", "I64", (2,), lambda: [np.array([rows, cols], np.int64).tobytes()]
        elif self.name == "mxfp4":  # 2^-7 times a deviation of 2.9
            yield f"{layer}.weight_packed", "U8", (rows, cols // 2), codes(rows * cols // 2)
            yield f"{layer}.weight_scale", "U8", (rows, cols // 32), lambda: [bytes([120]) * (rows * cols // 32)]
        elif self.name == "awq":
            yield f"{layer}.qweight", "I32", (cols, rows // 8), codes(rows * cols // 2)
            yield f"{layer}.qzeros", "I32", (groups, rows // 8), zeros(0x88888888)
            yield f"{layer}.scales", "F16", (groups, rows), scales((groups, rows), UNIFORM)
        else:
            yield f"{layer}.qweight", "I32", (cols // 8, rows), codes(rows * cols // 2)
            yield f"{layer}.qzeros", "I32", (groups, rows // 8), zeros(0x77777777)
            yield f"{layer}.scales", "F16", (groups, rows), scales((groups, rows), UNIFORM)
            yield f"{layer}.g_idx", "I32", (cols,), lambda: [(np.arange(cols, dtype=np.int32) // 128).tobytes()]
