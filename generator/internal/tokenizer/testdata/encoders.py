#!/usr/bin/env python3
"""Makes tokenizers with the pipelines of BERT, T5, XLM-R, ALBERT and Gemma and
vocabularies of our own, and their vectors:

    pip install tokenizers==0.23.3
    python encoders.py

bert.json is a WordPiece model trained here. The maps of Precompiled are made
here too, by charsmap(). bert_characters.json has the characters that
BertNormalizer, StripAccents and BertPreTokenizer treat in one way each.
"""
import base64, json, random, struct
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from families import ALL, SPACE, corpus
from make import HERE, random_texts
from pipelines import LEGACY, REPLACE, TRICKY, metaspace, steps, strip

HOSTILE = ["a\u0000b\ufffdc\u200bd\u00ade\ue000f\u0085g\u000bh", "\u4f60\u597dabc\u3400\U0002a6df\U0002b920\U0002b820x", "[CLS] a [SEP] [MASK] [UNK] [PAD]", "[cls][SEP", "\u00c5\u0301\u1e69 \u0130\u01c5 \u0385\u1fee",
           "don't do not isn't 's 've . , ! ? a.b,c ' d", "x" * 99 + " " + "x" * 100 + " " + "x" * 101, "\u00e9" * 51, "##ing ## a##b", "``quoted'' `a' ''", "a   b    c     d", "   lead  trail   ", "\u111c9\U000111c9\u166d\u2e43",
           "\ufb01ne \u2460\uff21\uff22 \u33a2 \ufdfa \u00bd \u3000 \u00a0 \t\r\n x\r\ny", "e\u0301 a\u0308\u0301 \u1100\u1161\u11a8 \u0915\u094d\u0937 \U0001f468\u200d\U0001f469", "\U0001f1e9\U0001f1ea\U0001f1eb qaq zqq ab abc abcd xab", "\u0e33\u0e19\u0e49\u0e33 \u0600a \u0300\u0301\u0302"]
TEXTS = ALL + TRICKY + HOSTILE

def charsmap(pairs):
    """The bytes of a map: a double-array trie as Darts-clone has it, and the replacements."""
    results, values = b"", {}
    for key, to in pairs.items():
        values[key.encode()] = len(results)
        results += to.encode() + b"\0"
    root = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[None] = value
    units, taken = [0] * 256, {0}
    def place(node, at):
        labels = [byte for byte in node if byte is not None] + ([0] if None in node else [])
        offset = next(o for o in range(1, 1 << 21) if not any((at ^ o ^ b) in taken for b in labels))
        units.extend([0] * (max(at ^ offset ^ b for b in labels) + 256 - len(units)))
        taken.update(at ^ offset ^ b for b in labels)
        units[at] |= offset << 10 | (None in node) << 8
        for byte, child in node.items():
            to = at ^ offset ^ (byte or 0)
            if byte is None:
                units[to] = child | 1 << 31
            else:
                units[to] = byte
                place(child, to)
    place(root, 0)
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + results

def compatible():
    """Form KC of some blocks, white space to spaces, control characters to nothing, and more."""
    kc, pairs = normalizers.NFKC(), {}
    for low, high in [(0xa0, 0x17f), (0x2000, 0x206f), (0x2460, 0x24ff), (0x3300, 0x33ff), (0xfb00, 0xfb06), (0xfdfa, 0xfdfa), (0xff01, 0xff9f)]:
        pairs |= {chr(c): kc.normalize_str(chr(c)) for c in range(low, high + 1) if kc.normalize_str(chr(c)) != chr(c)}
    pairs |= {c: " " for c in "\t\n\r\u0085\u00a0\u3000\u2028"} | {chr(c): "" for c in [*range(1, 9), *range(0x0e, 0x20), 0x7f, 0x200b, 0xad]}
    pairs |= {"e\u0301": "\u00e9", "a\u0308": "\u00e4", "a\u0308\u0301": "x", "ab": "AB", "abc": "ABC", "q": "QQ", "\U0001f1e9\U0001f1ea": "DE", "\u0915": "k", "\r\n": "\n"}
    return pairs

def precompiled(pairs):
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap(pairs)).decode()}

def bert():
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer, tok.decoder = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tok.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=700, limit_alphabet=260, special_tokens=special, show_progress=False))
    tok.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    data = json.loads(tok.to_str())
    for extra in ["##", "##xing", "do", "not", "n't", ".", "'s", "x" * 100]:
        data["model"]["vocab"].setdefault(extra, len(data["model"]["vocab"]))
    (HERE / "bert.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return data

def case(name, data, patch, texts=TEXTS, decode=False):
    tok = Tokenizer.from_str(json.dumps({**data, **patch}))
    c = {"tokenizer": name, "patch": patch, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts], "decode": []}
    if decode:
        rng, n = random.Random(5), tok.get_vocab_size()
        lists = [tok.encode(t).ids for t in texts] + [[rng.randrange(n) for _ in range(20)] for _ in range(20)] + [[n + 3, 1, *tok.encode(" a b").ids]]
        c["decode"] = [{"ids": ids, "text": tok.decode(ids, skip_special_tokens=True)} for ids in lists]
    return c

def normalized(clean=True, chinese=True, accents=None, lower=True):
    return {"normalizer": {"type": "BertNormalizer", "clean_text": clean, "handle_chinese_chars": chinese, "strip_accents": accents, "lowercase": lower}}

def pre(*list_): return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(list_)}}
def split(text, behavior): return {"type": "Split", "pattern": {"String": text}, "behavior": behavior, "invert": False}
def regex(pattern, to): return {"type": "Replace", "pattern": {"Regex": pattern}, "content": to}
def literal(text, to): return {"type": "Replace", "pattern": {"String": text}, "content": to}

def cases():
    read = lambda name: json.loads((HERE / f"{name}.json").read_text())
    b, uni, llama2 = bert(), read("unigram"), read("llama2")
    every, white, meta = TEXTS + random_texts(), {"type": "WhitespaceSplit"}, metaspace()["pre_tokenizer"]
    some, kc, old = TRICKY + HOSTILE, precompiled(compatible()), {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}
    word = lambda **k: {"model": {**b["model"], **k}}
    return [
        case("bert", b, {}, every, True), case("bert", b, normalized(lower=False), every), case("bert", b, normalized(accents=False), some),
        case("bert", b, normalized(clean=False, chinese=False, accents=True, lower=False), some), case("bert", b, {"normalizer": None}, some),
        case("bert", b, {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}}, some, True), case("bert", b, {"decoder": {"type": "WordPiece", "prefix": "a", "cleanup": True}}, some, True),
        case("bert", b, word(max_input_chars_per_word=3), some), case("bert", b, word(continuing_subword_prefix=""), some), case("bert", b, word(unk_token="a"), some),
        case("bert", b, {"pre_tokenizer": white}, some), case("bert", b, {"pre_tokenizer": None}, some), case("bert", b, pre(white, {"type": "BertPreTokenizer"}), some),
        case("unigram", uni, {"normalizer": kc}, every, True), case("unigram", uni, {**steps(kc, regex(" {2,}", SPACE)), **metaspace("always", True)}, every),
        case("unigram", uni, {**steps(kc, strip(False, True), regex(" {2,}", SPACE)), **pre(white, meta)}, every), case("unigram", uni, {"pre_tokenizer": old, "decoder": old}, some, True),
        case("unigram", uni, {**steps(literal("``", '"'), literal("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, kc, regex(" {2,}", " ")), **pre(white, meta)}, every),
        case("unigram", uni, steps({"type": "NFD"}, {"type": "StripAccents"}), some), case("unigram", uni, steps({"type": "NFKD"}), some), case("unigram", uni, steps({"type": "NFD"}), some),
        *[case("unigram", uni, steps(regex(p, "_")), some) for p in [r"\s+", r"\s{2,}", "[\r\n]", r"\s?\p{L}+", " ", r"\s+$"]],
        *[case("llama2", llama2, {"normalizer": n, **pre(split(t, how))}, some) for n, t, how in
          [(REPLACE, " ", "MergedWithPrevious"), (None, " ", "MergedWithPrevious"), (None, "a", "Isolated"), (None, " ", "Removed"), (REPLACE, SPACE, "MergedWithPrevious")]],
        case("llama2", llama2, {**steps(LEGACY, kc), "pre_tokenizer": None}, some),
    ]

def characters():
    scalars = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    def ranges(chars):
        out = []
        for c in map(ord, chars):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
        return " ".join("%x" % a if a == b else "%x-%x" % (a, b) for a, b in out)
    def bert(**k):
        return normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False), **k}).normalize_str
    clean, spaced, plain, accents, cut = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True), normalizers.StripAccents().normalize_str, pre_tokenizers.BertPreTokenizer()
    d = normalizers.NFD().normalize_str
    return {"removed": ranges(c for c in scalars if clean(c) == ""), "spaces": ranges(c for c in scalars if clean(c) == " "), "chinese": ranges(c for c in scalars if spaced(c) == f" {c} "),
            "nonspacing": ranges(c for c in scalars if d(c) == c and plain(c) == ""), "accents": ranges(c for c in scalars if accents(c) == ""),
            "punctuation": ranges(c for c in scalars if len(cut.pre_tokenize_str(f"a{c}b")) == 3)}

if __name__ == "__main__":
    (HERE / "encoders_vectors.json").write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases()) + "\n]\n")
    (HERE / "bert_characters.json").write_text(json.dumps(characters(), indent=0) + "\n")
