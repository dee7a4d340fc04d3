"""Writes quantised_hf.bin: random blocks of F8, G4_32, G4_64 and G4_128, and their values.

Run with Python 3.9 or later, numpy and ml_dtypes 0.5:
    python quantised_hf.py

For each format: 40 blocks as bytes, then their elements as float32, little-endian. The layout is that of
../quantised_hf.go. Values of E4M3 are those of ml_dtypes; the rest is (code - zero) * scale in float32, as
compressed-tensors computes it when the scale is float32. Scales of the first blocks are zeros, subnormals, the
largest finite numbers and infinities, and the first blocks of F8 hold all codes.
"""

import pathlib

import ml_dtypes
import numpy as np

COUNT = 40
SCALES = np.array([0x0, 0x80000000, 0x1, 0x807FFFFF, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0x3F800000], "<u4")


def scales(rng: np.random.Generator) -> np.ndarray:
    s = rng.standard_normal(COUNT).astype("<f4")
    s[2 : 2 + len(SCALES)] = SCALES.view("<f4")
    return s


def f8(rng: np.random.Generator) -> tuple[bytes, np.ndarray]:
    s, codes = scales(rng), rng.integers(0, 256, (COUNT, 128), dtype=np.uint8)
    codes[:2] = np.arange(256, dtype=np.uint8).reshape(2, 128)
    blocks = np.concatenate([s.view(np.uint8).reshape(COUNT, 4), codes], axis=1)
    return blocks.tobytes(), codes.view(ml_dtypes.float8_e4m3fn).astype("<f4") * s[:, None]


def g4(rng: np.random.Generator, n: int) -> tuple[bytes, np.ndarray]:
    s, zero = scales(rng), rng.integers(0, 16, (COUNT, 1), dtype=np.uint8)
    codes = rng.integers(0, 16, (COUNT, n), dtype=np.uint8)
    halves = codes.reshape(COUNT, n // 32, 2, 16)
    packed = (halves[:, :, 0] | halves[:, :, 1] << 4).reshape(COUNT, n // 2)
    blocks = np.concatenate([s.view(np.uint8).reshape(COUNT, 4), zero, packed], axis=1)
    return blocks.tobytes(), (codes.astype("<f4") - zero.astype("<f4")) * s[:, None]


def main() -> None:
    rng = np.random.default_rng(24)
    with open(pathlib.Path(__file__).with_name("quantised_hf.bin"), "wb") as out, np.errstate(all="ignore"):
        for blocks, values in [f8(rng), g4(rng, 32), g4(rng, 64), g4(rng, 128)]:
            out.write(blocks)
            out.write(values.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
