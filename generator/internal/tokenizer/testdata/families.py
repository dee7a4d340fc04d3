#!/usr/bin/env python3
"""Makes the tokenizers of the families that make.py has not, and their vectors,
with the pipelines that the families publish and vocabularies trained here:

    pip install tokenizers==0.23.3
    python families.py

llama2 and phi3 put a space in front by normalizers (the "legacy" way), mistral
by Metaspace; all three have byte fallback. phi3's added tokens strip the white
space behind them. qwen2 is byte-level, over text in form C. across is llama2
trained so that tokens reach over words. nfc.json holds form C as tokenizers
has it, over all characters.
"""
import json, random
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers, Regex
from make import HERE, QWEN2, TEXTS, byte_level, random_texts, sequence, template

SPACE, BYTES = "\u2581", ["<0x%02X>" % b for b in range(256)]
SPECIAL = ["<unk>", "<s>", "</s>"]
LEGACY = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
MORE = [
    "<s>Hello</s>", " <s> Hello </s> ", "Hello <s>", "<s>", "</s></s>", "a<s>b", "<unk> unk", "<s> [INST] Hi there [/INST] Hello! </s><s>[INST] And? [/INST]",
    "<|user|>\nWho are you?<|end|>\n<|assistant|>\n", "<|user|>  \n\n x <|end|> y", "<|system|><|end|>\u3000\u2028z", "x <|end|>", "<|en", "<|endoftext|> <|endoftext|>",
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<0x41><0xE2>", "\u2581", "\u2581\u2581 \u2581a\u2581b", " \u2581", "a  b   c    d     e", "    four\n        eight\n\ttab",
    "\u00e9 e\u0301 \u1e69 s\u0323\u0307 s\u0307\u0323 \u0344 \u212b \u2126 \uac01 \u1100\u1161\u11a8 \u0958 \u0915\u093c", "\u3000wide\u3000", "e" + "\u0301\u0327" * 40 + "x", "\u0301start",
    "\u30ac\u30ad\u3099 \uff76\uff9e \ufb01", "\U0001d15e \U0001d157\U0001d165 \U0001109a \U00011099\U000110ba \U00011938 \U00011935\U00011930 a\u08ca\u0334",
    "line one\nline two\r\nline three\n", "3.14159 2,718 1_000 0b1010 ①②", "the the the the\u2581the", "\n", "\n\n", " \n ", "\t", "  ", "   ", "x ", " x", "  x", "I don it, don don", "don", " don ", "\u212b\u0323 A\u030a\u0323",
]
ALL = TEXTS + MORE

def corpus():
    return [t for t in ALL if "<" not in t] * 3 + [t.lower() for t in ALL if "<" not in t]

def characters(name, space, added, ids_across=False):
    """A tokenizer over characters. space(tok) sets the family's way with spaces."""
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer, tok.pre_tokenizer = LEGACY, None if ids_across else pre_tokenizers.Metaspace(SPACE, "never", True)
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=len(SPECIAL) + 256 + 640, limit_alphabet=220, special_tokens=SPECIAL + BYTES, show_progress=False))
    data = json.loads(tok.to_str())
    vocab, merges = data["model"]["vocab"], data["model"]["merges"]
    vocab.setdefault(SPACE, len(vocab))
    for n in (1, 2, 4):  # runs of spaces, as in the published vocabularies
        vocab.setdefault(SPACE * n * 2, len(vocab))
        merges.append([SPACE * n, SPACE * n])
    merges.append([SPACE * 2, SPACE]); vocab.setdefault(SPACE * 3, len(vocab))
    data["added_tokens"] = []
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tok.add_tokens(added)
    tok.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tok.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    space(tok)
    return save(tok, name)

def legacy(tok):
    tok.normalizer, tok.pre_tokenizer = LEGACY, None

def metaspace(tok):
    tok.normalizer, tok.pre_tokenizer = None, pre_tokenizers.Metaspace(SPACE, "first", False)

def qwen2():
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tok.decoder, tok.post_processor = decoders.ByteLevel(), processors.ByteLevel(trim_offsets=False)
    tok.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=640, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tok.add_tokens([AddedToken("<tool_call>", special=False, normalized=False), AddedToken("Å\u0323", normalized=True)])
    return save(tok, "qwen2")

def save(tok, name):
    data = json.loads(tok.to_str())
    (HERE / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return data

def ids_to_decode(tok, texts):
    """Ids whose bytes are UTF-8: for others PROTOCOL.md has a rule of its own."""
    rng, n = random.Random(11), tok.get_vocab_size()
    good = [i for i in range(n) if not (tok.id_to_token(i).startswith("<0x") and i < 300)] if tok.token_to_id("<0x41>") is not None else \
           [i for i in range(n) if tok.decode([i]).isascii()]
    out = [tok.encode(t, add_special_tokens=s).ids for i, t in enumerate(texts) for s in [i % 4 > 0]]
    out += [[rng.choice(good) for _ in range(40)] for _ in range(10)]
    return out + [[n + 5, *tok.encode("a b").ids]]

def case(name, data, patch, texts, decode=()):
    tok = Tokenizer.from_str(json.dumps({**data, **patch}))
    c = {"tokenizer": name, "patch": patch, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts]}
    c["rendered"] = [{"text": t, "ids": tok.encode(t, add_special_tokens=False).ids} for t in texts[:40]]
    c["decode"] = [{"ids": ids, "text": tok.decode(ids, skip_special_tokens=True)} for ids in ids_to_decode(tok, decode)] if decode else []
    return c

def metaspaces(scheme, split):
    return {"normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}}

def normalized(data, **fields):
    return {"added_tokens": [{**t, **fields} for t in data["added_tokens"]]}

def cases():
    added = [AddedToken("[INST]", normalized=False), AddedToken("don", single_word=True, normalized=True)]
    phi = [AddedToken(s, special=True, rstrip=True, normalized=False) for s in ("<|assistant|>", "<|system|>", "<|end|>", "<|user|>")]
    phi += [AddedToken("<|endoftext|>", special=True, normalized=False)]
    some, texts = TEXTS[:12] + MORE, ALL + random_texts()
    llama2, mistral = characters("llama2", legacy, added), characters("mistral", metaspace, added)
    phi3, across, qwen = characters("phi3", legacy, phi), characters("across", legacy, [], True), qwen2()
    old = {"type": "Metaspace", "replacement": SPACE}  # the rest left out
    return [
        case("llama2", llama2, {}, texts, ALL), case("mistral", mistral, {}, texts, ALL), case("phi3", phi3, {}, texts, ALL),
        case("across", across, {}, texts, some), case("qwen2", qwen, {}, texts, ALL),
        case("llama2", llama2, normalized(llama2, normalized=True), some), case("llama2", llama2, {"post_processor": template(1, 2), "normalizer": LEGACY_ONE}, some, MORE),
        case("mistral", mistral, metaspaces("always", True), some), case("mistral", mistral, metaspaces("always", False), some),
        case("mistral", mistral, metaspaces("never", True), some), case("mistral", mistral, metaspaces("first", True), some), case("mistral", mistral, {"pre_tokenizer": old}, some),
        case("llama2", llama2, {"decoder": json.loads(decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]).__getstate__())}, MORE, MORE),
        case("llama2", llama2, {"model": {**llama2["model"], "ignore_merges": True}}, some),
        case("qwen2", qwen, {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"String": "e"}, "content": "\u00e9\u00e9"}]}}, some),
        case("qwen2", qwen, sequence(byte_level(True, True)), some),
    ]

LEGACY_ONE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}  # no space in front

def nfc():
    n, d = normalizers.NFC(), normalizers.NFD()
    scalars = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    changing = [chr(c) for c in scalars if d.normalize_str(chr(c)) != chr(c) and not 0xAC00 <= c <= 0xD7A3]
    moving = "".join(chr(c) for c in scalars if d.normalize_str(chr(c)) == chr(c) and (d.normalize_str("a\u0345" + chr(c)) != "a\u0345" + chr(c) or d.normalize_str("a" + chr(c) + "\u0334") != "a" + chr(c) + "\u0334"))
    rng, marks = random.Random(3), moving + "".join(map(chr, range(0x300, 0x345))) * 8
    texts = ["\n".join(changing), d.normalize_str("\n".join(changing)), "".join(changing), "\uac00\uac01\ud7a3 " + d.normalize_str("\uac00\uac01\ud7a3"),
             "\u1100\u1161\u11a8\u11a8 \u1100\u1100\u1161 \uac00\u11a7\uac00\u11c3", *("".join(rng.choice("aeos\u00e9\u0915\u1e0a" + marks) for _ in range(60)) for _ in range(60))]
    return {"moving": moving, "texts": [[t, n.normalize_str(t)] for t in texts]}

if __name__ == "__main__":
    (HERE / "families_vectors.json").write_text("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases()) + "\n]\n")
    (HERE / "nfc.json").write_text(json.dumps(nfc(), ensure_ascii=False, indent=0) + "\n")
