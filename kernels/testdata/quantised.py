"""Writes quantised.bin: random blocks of each quantised format, and their values by the reference.

Run with Python 3.9 or later and gguf 0.19.0:
    python quantised.py

For each format, in the order of FORMATS: count blocks as bytes, then their elements as float32, little-endian.
The scales of the first blocks are zeros, subnormals, the largest finite numbers and infinities.
"""

import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import dequantize

FORMATS = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_XS, T.MXFP4]
SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x3C00]  # of binary16
HALVES = {T.Q4_1: [0, 2], T.Q5_1: [0, 2], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.MXFP4: []}  # their offsets


def blocks(rng: np.random.Generator, t: T) -> np.ndarray:
    elements, size = GGML_QUANT_SIZES[t]
    count = 2048 // size if elements > 32 else 640 // size
    b = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for i in range(count):
        for at in HALVES.get(t, [0]):
            bits = SCALES[(i + at) % 9] if i < 9 else rng.integers(0, 0x7C00) | rng.integers(0, 2) << 15
            b[i, at : at + 2] = np.frombuffer(np.uint16(bits).tobytes(), np.uint8)
        if t == T.MXFP4:
            b[i, 0] = [0, 1, 2, 127, 252, 253, 254, 255][i % 8] if i < 16 else rng.integers(0, 256)
    return b


def main() -> None:
    rng = np.random.default_rng(24)
    with open(pathlib.Path(__file__).with_name("quantised.bin"), "wb") as out, np.errstate(all="ignore"):
        for t in FORMATS:
            b = blocks(rng, t)
            out.write(b.tobytes())
            out.write(dequantize(b, t).astype("<f4").tobytes())


if __name__ == "__main__":
    main()
