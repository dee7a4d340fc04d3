"""Writes conversion.safetensors: a matrix in each quantised layout of Hugging Face checkpoints, and its values.

Run with Python 3.9 or later, numpy 2.4, ml_dtypes 0.6 and safetensors 0.8:
    python conversion.py

Tensors are named CASE.PART; CASE.values are the values of the last 16 rows, float32
[16][256]. They are unpacked from random tensors with numpy, as these packages do it in torch, with scales in float32:
    compressed-tensors 0.20: pack_quantized (unpack_from_int32), naive_quantized, mxfp4, forward.py (_dequantize)
    transformers 5.23: integrations/finegrained_fp8.py (Fp8Dequantize)
    AutoAWQ 0.2.9: awq/utils/packing_utils.py (dequantize_gemm)
    GPTQModel 7.7: nn_modules/qlinear/torch.py (dequantize_weight), utils/model.py (convert_gptq_v1_to_v2_format_module)
"""

import pathlib

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

ROWS, COLS = 16, 256
rng = np.random.default_rng(24)
out: dict[str, np.ndarray] = {}


def scales(shape, dtype):
    s = (rng.standard_normal(shape) * 0.02).astype(dtype)
    flat = s.reshape(-1)
    if len(flat) > 8:
        flat[:2] = [0, 1e-7]  # the second is subnormal in float16
    return s


def words(*shape):
    return rng.integers(-(2**31), 2**31, shape, dtype=np.int64).astype(np.int32)


def codes(packed, axis):
    """Eight codes of each word, the lowest bits first, along an axis."""
    u = packed.view(np.uint32)
    split = np.stack([u >> np.uint32(4 * i) & 15 for i in range(8)], axis=axis + 1)
    shape = list(packed.shape)
    shape[axis] *= 8
    return split.reshape(shape).astype(np.int32)


def add(case, values, **parts):
    for name, part in parts.items():
        out[f"{case}.{name}"] = np.ascontiguousarray(part)
    out[f"{case}.values"] = np.ascontiguousarray(values[-16:], "<f4")


def float8(case, scale_shape, dtype, expand):
    q = rng.integers(0, 256, (144, COLS), dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    s = scales(scale_shape, dtype)
    add(case, q.astype(np.float32) * expand(s.astype(np.float32)), weight=q, weight_scale=s)


def tiles(s):
    return np.repeat(np.repeat(s, 128, axis=0), 128, axis=1)[:144]


def packed(case, group, dtype, zeros=False, order=None, plain=False):
    groups = COLS // group
    q, s = words(ROWS, COLS // 8), scales((ROWS, groups), dtype)
    parts = {"weight_packed": q, "weight_scale": s, "weight_shape": np.array([ROWS, COLS])}
    z = np.zeros((ROWS, groups), np.int32)
    if zeros:
        parts["weight_zero_point"] = words(ROWS // 8, groups)
        z = codes(parts["weight_zero_point"], 0) - 8
    if plain:  # as older versions wrote them
        z = parts["weight_zero_point"] = rng.integers(-8, 8, (ROWS, groups), dtype=np.int8)
    index = np.arange(COLS) // group
    if order is not None:
        index = parts["weight_g_idx"] = order.astype(np.int32)
    signed = (codes(q, 1) - 8).astype(np.float32)
    values = (signed - z[:, index].astype(np.float32)) * s.astype(np.float32)[:, index]
    add(case, values, **parts)


def gptq(case, group, v1, symmetric=False, order=None):
    groups = COLS // group
    q, s, z = words(COLS // 8, ROWS), scales((groups, ROWS), np.float16), words(groups, ROWS // 8)
    if symmetric:
        z[:] = 0x77777777 if v1 else -0x77777778
    index = np.arange(COLS, dtype=np.int32) // group if order is None else order.astype(np.int32)
    plain = (z.view(np.uint32) + np.uint32(0x11111111)).view(np.int32) if v1 else z
    values = s.astype(np.float32)[index] * (codes(q, 0) - codes(plain, 1)[index]).astype(np.float32)
    add(case, values.T, qweight=q, qzeros=z, scales=s, g_idx=index)


def awq(case, group):
    rows, groups = ROWS, COLS // group
    q, s, z = words(COLS, rows // 8), scales((groups, rows), np.float16), words(groups, rows // 8)
    order = np.arange(rows).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].reshape(-1)
    weights, zeros = codes(q, 1)[:, order], codes(z, 1)[:, order]
    zeros, wide = np.repeat(zeros, group, axis=0), np.repeat(s.astype(np.float32), group, axis=0)
    add(case, ((weights - zeros).astype(np.float32) * wide).T, qweight=q, qzeros=z, scales=s)


def mxfp4(case):
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
    q, e = rng.integers(0, 256, (ROWS, COLS // 2), dtype=np.uint8), rng.integers(0, 253, (ROWS, COLS // 32), dtype=np.uint8)
    values = np.stack([table[q & 15], table[q >> 4]], axis=2).reshape(ROWS, COLS)
    add(case, np.ldexp(values, np.repeat(e.astype(np.int32) - 127, 32, axis=1)), weight_packed=q, weight_scale=e)


def main() -> None:
    float8("float8_rows", (144, 1), ml_dtypes.bfloat16, lambda s: s)
    float8("float8_one", (1,), np.float32, lambda s: s)
    float8("float8_tiles", (2, 2), np.float32, tiles)
    float8("float8_tiles_bf16", (2, 2), ml_dtypes.bfloat16, tiles)
    packed("packed", 128, ml_dtypes.bfloat16)
    packed("packed_zeros", 64, np.float16, zeros=True)
    packed("packed_rows", COLS, np.float32)
    packed("packed_order", 32, ml_dtypes.bfloat16, order=np.repeat(rng.permutation(8), 32))
    gptq("gptq", 128, v1=True)
    gptq("gptq_v2", 32, v1=False)
    gptq("gptq_symmetric", 64, v1=True, symmetric=True)
    gptq("gptq_symmetric_v2", 64, v1=False, symmetric=True)
    gptq("gptq_order", 64, v1=True, order=np.repeat([3, 1, 0, 2], 64))
    gptq("gptq_act_order", 64, v1=True, order=rng.permutation(np.repeat([0, 1, 2, 3], 64)))
    packed("packed_act_order", 32, ml_dtypes.bfloat16, zeros=True, order=rng.permutation(np.repeat(np.arange(8), 32)))
    packed("packed_plain_zeros", 128, np.float16, plain=True)
    awq("awq", 128)
    awq("awq_32", 32)
    mxfp4("mxfp4")
    save_file(out, pathlib.Path(__file__).with_name("conversion.safetensors"))


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main()
