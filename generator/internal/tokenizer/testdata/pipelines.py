#!/usr/bin/env python3
"""Makes vectors for the members of pipelines that make.py and families.py have not,
and for the pipelines of SmolLM and DeepSeek-LLM:

    pip install tokenizers==0.23.3
    python pipelines.py

unigram.json is a Unigram model trained here. characters.json has the results of
Digits, Lowercase and NFKC over all characters.
"""
import json, random
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from families import ALL, BYTES, SPACE, corpus
from make import HERE, byte_level, random_texts, sequence, split_step

LETTERS = "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿͰ-ͳͶͷΆΈ-ΊΌΎ-ΡΣ-ϵА-ҁҊ-ԯＡ-Ｚａ-ｚ𐐀-𐑏"  # part of DeepSeek-LLM's class
DEEPSEEK = [split_step("[\r\n]"), split_step(r"\s?[" + LETTERS + "]+"), split_step(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split_step(r"\s+$"),
            split_step("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}, byte_level()]
CODER = [split_step("[\r\n]"), split_step(r"\s?\p{L}+"), split_step(r"\s?\p{P}+"), split_step("[一-龥ࠀ-一가-퟿]+"), {"type": "Digits", "individual_digits": True}, byte_level()]
SMOLLM = [{"type": "Digits", "individual_digits": True}, byte_level(True)]
TRICKY = [" \n\n x", "a  \n\n b \n", "  ", "x  ", "\r\n \r\nx \r", "　　。a　", "a12b3 ٣4½²x10", "10 11\n", "\u2028 \n\u2028", " \u0085\u200b\u3000a b\u1680 ", "İSTANBUL ΑΣΣ ẞ ǅ K Å", "ﬁ ²½ ① ㎞ ｶﾞ ￦ 𝔘𝔫𝔦 ﷺ ĳ ª \u0345a",
          SPACE + "a" + SPACE + SPACE + "b", "zzzz qqq ÿÿ漢字漢", "<unk> x<unk>漢<unk>", "<unk>"]
TEXTS = ALL + TRICKY

def strip(left, right): return {"type": "Strip", "strip_left": left, "strip_right": right}
def steps(*list_): return {"normalizer": {"type": "Sequence", "normalizers": list(list_)}}
def metaspace(scheme="always", split=True, role="pre_tokenizer"): return {role: {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}}
REPLACE, LEGACY = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}, {"type": "Prepend", "prepend": SPACE}

def unigram():
    tok = Tokenizer(models.Unigram())
    tok.pre_tokenizer, tok.decoder = pre_tokenizers.Metaspace(SPACE, "always", True), decoders.Metaspace(SPACE, "always", True)
    texts = [t for t in corpus() if t.isascii()]  # other characters are unknown
    tok.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=420, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False))
    tok.add_special_tokens(["<s>", "</s>"])
    data = json.loads(tok.to_str())
    data["model"]["vocab"] += [["漢字", -11.5], ["x" + SPACE + "y", -9.25]]  # of characters that are no tokens
    (HERE / "unigram.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return data

def case(name, data, patch, texts=TEXTS, decode=False):
    tok = Tokenizer.from_str(json.dumps({**data, **patch}))
    c = {"tokenizer": name, "patch": patch, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts], "decode": []}
    if decode:
        rng, n = random.Random(5), tok.get_vocab_size()
        lists = [tok.encode(t).ids for t in texts] + [[rng.randrange(n) for _ in range(20)] for _ in range(20)] + [[n + 3, 1, *tok.encode(" a b").ids]]
        c["decode"] = [{"ids": ids, "text": tok.decode(ids, skip_special_tokens=True)} for ids in lists]
    return c

def cases():
    read = lambda name: json.loads((HERE / f"{name}.json").read_text())
    gpt2, llama2, uni = read("gpt2"), read("llama2"), unigram()
    some = TRICKY + TEXTS[:30]
    with_bytes = {"model": {**uni["model"], "byte_fallback": True, "vocab": uni["model"]["vocab"] + [[b, -20.0] for b in BYTES]}}
    lacking = {"model": {**with_bytes["model"], "vocab": [p for p in with_bytes["model"]["vocab"] if p[0] != "<0xC3>"]}}
    sequence_of = lambda *list_: {"decoder": {"type": "Sequence", "decoders": list(list_)}}
    spaces, fuse = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "Fuse"}
    def without(unk, fuse, *bytes_):  # SmolLM2's vocabulary lacks some bytes
        keep = lambda token: not any(b in token for b in bytes_)
        model = {**gpt2["model"], "unk_token": unk, "fuse_unk": fuse, "vocab": {t if keep(t) else "\u4e00" + t: i for t, i in gpt2["model"]["vocab"].items()}, "merges": [m for m in gpt2["model"]["merges"] if keep("".join(m))]}
        return {"model": model, **sequence(*SMOLLM)}
    return [
        case("gpt2", gpt2, without(None, False, "q", "\u00f1", "\u00c3"), TEXTS + ["qqq", "aqb \U00040000q\u00e9", "q"]), case("gpt2", gpt2, without("!", False, "q", "h", "\u00c3"), TEXTS + ["qhqa qq"]),
        case("gpt2", gpt2, without("!", True, "q", "h", "\u00c3"), TEXTS + ["qhqa qq", "hqx"]),
        case("gpt2", gpt2, sequence(*SMOLLM), TEXTS + random_texts()), case("gpt2", gpt2, sequence(*DEEPSEEK), TEXTS + random_texts()),
        case("gpt2", gpt2, {**sequence(*DEEPSEEK), **steps()}, some), case("gpt2", gpt2, sequence(*CODER), TEXTS + random_texts()),
        case("gpt2", gpt2, sequence({"type": "Digits", "individual_digits": False}, byte_level(True)), some),
        case("gpt2", gpt2, sequence(split_step(r"\p{L}+$"), byte_level(True)), some),
        case("gpt2", gpt2, steps(strip(True, True), {"type": "NFKC"})), case("gpt2", gpt2, steps({"type": "Lowercase"}, strip(False, True)), some),
        case("gpt2", gpt2, {"normalizer": {"type": "NFKC"}}, some), case("gpt2", gpt2, {"normalizer": strip(True, False)}, some),
        case("llama2", llama2, metaspace("always", role="decoder"), some, True), case("llama2", llama2, metaspace("never", role="decoder"), some, True),
        case("llama2", llama2, {"normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, metaspace()["pre_tokenizer"]]}}, some),
        case("unigram", uni, {}, TEXTS + random_texts(), True), case("unigram", uni, metaspace("first", False), some), case("unigram", uni, metaspace("never"), some),
        case("unigram", uni, {**steps({"type": "NFKC"}, {"type": "Lowercase"}, LEGACY, REPLACE), "pre_tokenizer": None}, TEXTS + random_texts()),
        case("unigram", uni, with_bytes, TEXTS + random_texts()), case("unigram", uni, lacking, TEXTS),
        case("unigram", uni, {**with_bytes, **sequence_of(spaces, {"type": "ByteFallback"}, fuse, {"type": "Strip", "content": " ", "start": 1, "stop": 0})}, some),
        case("unigram", uni, sequence_of(spaces, fuse), some, True),
    ]

def characters():
    scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    digits, kc, lower = pre_tokenizers.Digits(individual_digits=True), normalizers.NFKC(), normalizers.Lowercase()
    changed = lambda n: [c for c in scalars if n.normalize_str(c) != c and not 0xAC00 <= ord(c) <= 0xD7A3]
    pairs = lambda n: {c: n.normalize_str(c) for c in changed(n)}
    return {"numeric": "".join(c for c in scalars if len(digits.pre_tokenize_str("a" + c + "a")) == 3), "lower": pairs(lower), "nfkc": pairs(kc)}

if __name__ == "__main__":
    (HERE / "pipelines_vectors.json").write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases()) + "\n]\n")
    (HERE / "characters.json").write_text(json.dumps(characters(), ensure_ascii=False, separators=(",", ":")) + "\n")
