"""Writes vectors.bin: rows of float32, and their blocks in each format by the reference.

Run with Python 3.9 or later and gguf 0.19.0, and with libggml-base.so of llama.cpp at commit 0c1e57098 (the source
distribution of llama-cpp-python 0.3.36 has it in vendor/llama.cpp), built for x86-64 without -march, as its CMake does:
    cmake -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --target ggml-base
    python make.py build/bin/libggml-base.so [all]

The file: the number of rows, as uint32; the rows, each of 256 float32; then for each format in the order of FORMATS
the blocks of all rows. Everything is little-endian. Q8_0 and Q4_0 are those of gguf.quants, the others those of
ggml_quantize_chunk, which llama-quantize calls.
"""

import ctypes
import pathlib
import sys

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T
from gguf.quants import quantize

# Of 3,072 rows: one of each kind, and those whose blocks differ if K-quants add or multiply in another order.
ROWS = [*range(9), 14, 17, 22, 153, 185, 243, 572, 1351, 2116]

FORMATS = [T.Q8_0, T.Q4_0, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K]


def rows(rng: np.random.Generator, count: int) -> np.ndarray:
    """Rows of weights as models have them, and rows that test the edges."""
    x = rng.standard_normal((count, 256)) * 0.02
    x[1::8] *= rng.standard_exponential((len(x[1::8]), 1)) * 10  # large
    x[2::8] = x[2::8] ** 3 * 1e3  # long tails
    x[3::8] += 0.05  # mostly of one sign
    x[4::8] = np.round(x[4::8] * 64) / 64  # ties and zeros
    x[5::8] *= rng.integers(0, 2, (len(x[5::8]), 16)).repeat(16, 1)  # parts of zeros
    x[6::8] = rng.uniform(-1, 1, (len(x[6::8]), 256)) * 10.0 ** rng.uniform(-45, 3, (len(x[6::8]), 8)).repeat(32, 1)
    x[7::8] = x[7::8, :1]  # constants
    x = x.astype("<f4")
    x[0] = 0
    x[0, ::2] = -0.0
    return x


def by_ggml(library: ctypes.CDLL, x: np.ndarray, t: T) -> np.ndarray:
    elements, size = GGML_QUANT_SIZES[t]
    out = np.zeros(x.size // elements * size, np.uint8)
    library.ggml_quantize_chunk(ctypes.c_int(t), x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p),
                                ctypes.c_int64(0), ctypes.c_int64(len(x)), ctypes.c_int64(256), None)
    return out


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    x = rows(np.random.default_rng(24), 3072)
    if sys.argv[2:] != ["all"]:  # all are for a comparison by hand
        x = x[ROWS]
    with open(pathlib.Path(__file__).with_name("vectors.bin"), "wb") as out, np.errstate(all="ignore"):
        out.write(np.uint32(len(x)).tobytes())
        out.write(x.tobytes())
        for t in FORMATS:
            b = quantize(x, t) if t in (T.Q8_0, T.Q4_0) else by_ggml(library, x, t)
            out.write(b.tobytes())


if __name__ == "__main__":
    main()
