"""Writes the model in each format of GGUF that Reel serves: python3 quantise.py --ggml libggml-base.so --out DIR

All matrices are of one format, FORMAT.gguf; Q4_K_M.gguf mixes Q4_K and Q6_K as
llama-quantize does. Blocks are those of ggml_quantize_chunk, which
llama-quantize calls, without an importance matrix. libggml-base.so is llama.cpp's;
generator/internal/convert/testdata/make.py says how it was built. Needs Python's
package gguf 0.19.0 and numpy, and the model's files beside this one.
With --corpus shakespeare.txt it also writes the held-out blocks as DIR/held-out-N.txt.
"""

import argparse
import ctypes
import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T

import corpus

HERE = Path(__file__).parent
FORMATS = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q6_K, T.Q5_K, T.Q5_1, T.Q5_0, T.Q4_K, T.Q4_1, T.Q4_0, T.IQ4_XS, T.MXFP4]
NAMES = {"embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v",
         "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down"}


def tensors(config):
    """Names of GGUF and float32 values, with the rows of q and k interleaved as llama.cpp's converter does."""
    raw = (HERE / "model.safetensors").read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, entry in json.loads(raw[8:end]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        bits = np.frombuffer(raw[end + first:end + last], "<u2").astype("<u4") << 16  # of bfloat16
        parts, x = name.split("."), bits.view("<f4").reshape(entry["shape"])
        layer, kind = f"blk.{parts[2]}." if parts[1] == "layers" else "", parts[-2]
        if kind in heads:
            x = x.reshape(heads[kind], 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        yield f"{layer}{NAMES[kind]}.weight", x


def quantised(library, x, t):
    """The bytes of a matrix in a format."""
    if t in (T.F32, T.F16):
        return x.astype({T.F32: "<f4", T.F16: "<f2"}[t])
    if t == T.BF16:
        return gguf.quants.quantize(x, t)
    elements, size = GGML_QUANT_SIZES[t]
    x, out = np.ascontiguousarray(x, "<f4"), np.empty((x.shape[0], x.shape[1] // elements * size), np.uint8)
    pointer = ctypes.c_void_p
    library.ggml_quantize_chunk(ctypes.c_int(t), pointer(x.ctypes.data), pointer(out.ctypes.data), ctypes.c_int64(0),
                                ctypes.c_int64(x.shape[0]), ctypes.c_int64(x.shape[1]), pointer())
    return out


def mixed(name, layers):
    """The format of a matrix in Q4_K_M: the head, and v and down in the outer and every third layer, have Q6_K."""
    if name == "token_embd.weight":
        return T.Q6_K
    outer, layer = layers // 8, int(name.split(".")[1])
    more = layer < outer or layer >= 7 * layers // 8 or (layer - outer) % 3 == 2
    return T.Q6_K if more and ("attn_v" in name or "ffn_down" in name) else T.Q4_K


def write(path, library, config, pick):
    tokenizer = json.loads((HERE / "tokenizer.json").read_text())["model"]
    w, head = gguf.GGUFWriter(path, "llama"), config["hidden_size"] // config["num_attention_heads"]
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(head)
    w.add_value_length(head)
    w.add_rope_dimension_count(head)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(sorted(tokenizer["vocab"], key=tokenizer["vocab"].get))
    w.add_token_types([3, 3] + [1] * (config["vocab_size"] - 2))
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["merges"]])
    w.add_bos_token_id(corpus.BOS_ID)
    w.add_eos_token_id(corpus.EOS_ID)
    w.add_add_bos_token(True)
    for name, x in tensors(config):
        t = pick(name) if x.ndim > 1 else T.F32
        w.add_tensor(name, quantised(library, x, t), raw_dtype=None if t in (T.F32, T.F16) else t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def main():
    parser = argparse.ArgumentParser(description="Write the embedded model in each format of GGUF.")
    parser.add_argument("--ggml", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--corpus", type=Path)
    args = parser.parse_args()
    config, library = json.loads((HERE / "config.json").read_text()), ctypes.CDLL(str(args.ggml.resolve()))
    for t in FORMATS:
        library.ggml_quantize_init(ctypes.c_int(t))
        write(args.out / f"{t.name}.gguf", library, config, lambda name, t=t: t)
    write(args.out / "Q4_K_M.gguf", library, config, lambda name: mixed(name, config["num_hidden_layers"]))
    if args.corpus:
        for i, block in enumerate(corpus.split(corpus.speeches(args.corpus.read_text()))[1]):
            (args.out / f"held-out-{i}.txt").write_text(corpus.passage(block))


if __name__ == "__main__":
    main()
