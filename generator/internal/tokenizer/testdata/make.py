#!/usr/bin/env python3
"""Makes the tokenizers and vectors beside it. They were made with tokenizers 0.23.3:

    pip install tokenizers==0.23.3
    python make.py CORPUS      # any plain English text; ours is Shakespeare's

A case of *_vectors.json names its tokenizer, a patch that replaces top-level
fields of that tokenizer's JSON, texts with their ids, and ids with their text.
classes.json has the characters of each class that patterns use.
"""
import json, random, sys
from pathlib import Path
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

HERE = Path(__file__).parent
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])

TEXTS = [
    "", " ", "a", "Hello, world!", "  leading and trailing  ", "It's we'll I'd you're they've I'm don't 'tis",
    "IT'S WE'LL I'D YOU'RE it'\u017f", "'s 's'S''s '", "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak.",
    "0 1 12 123 1234 12345 1234567890 3.14159 1e-9 0x1F 2026-11-20", "\u0663\u0664\u0665\u0666 \u00bd\u2167\u2460 \u096a\u096b\u096c\u096d",
    "\t\ttab\tseparated\t\n\n\n\r\n \r\n  x\n   \n", "a\u00a0b\u2003c\u3000d\u1680e\u0085f\u200bg\ufeffh\u180ei\u001cj", " " * 33 + "x" + " " * 7,
    "for (int i = 0; i < n; ++i) {\n    sum += a[i] * 0.5f; // \u03a3\n}\n", "def f(x):\n\treturn {**x, 'k': [1, 2]}  # ok\n",
    "<a href=\"https://example.org/?q=1&r=%20\">\u2014</a>", "!!!???...---___***", "caf\u00e9 cafe\u0301 na\u00efve \u00c5ngstr\u00f6m",
    "Zażółć gęślą jaźń", "Съешь ещё этих мягких булок", "Ξεσκεπάζω την ψυχοφθόρα", "שלום עולם", "مرحبا بالعالم، كيف الحال؟", "नमस्ते दुनिया क्षि",
    "สวัสดีชาวโลก", "你好,世界。今天2026年", "こんにちは世界、カタカナ", "안녕하세요 세계 \u1112\u1161\u11ab", "ⴰⵣⵓⵍ ᚠᚢᚦ 𐍈𐌰 𝔘𝔫𝔦 𠀀𠀁",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ☺️ 1️⃣", "e\u0301\u0327\u0328o\u0308\u0304 Z\u0351\u036b\u0343a\u0363", "\u0000\u0001\u007f\u0080\u00ff\uffff\U0010ffff",
    "\U0002ebf0\U00010d40 \U0001cd00a \u1c89\u1c8a \u0897", "x" * 80, "ab" * 45, "the" * 41, "\u00e9" * 30, "\n" * 50, "  \n" * 20,
    "<|begin|>Hello<|end|>", "a <|end|> b", "<|end|><|end|>", "<|end", "<|end|", "<|begin|> <|begin|", "<<|end|>>", "<|end|>\n\n<|begin|>",
    "x  <mask>  y<mask>z", "<mask>", "  <mask>", "<mask>  ", "<mask><mask>", "\u3000<left> \n<right>\t\u00a0q", "<right>  <left>  <right>",
    "one word two", "oneword wordtwo", "word", "_word word_ word\u0301 \u0301word", "(word) word.", "wordword word", "word word", "1word word2 \u200dword",
    "word\ua7da word\U00010d4b \U00011399word \U00010d40word word\u0897 word\u00b2 word\U0001cd00",
    "plainplain plain PLAIN", "plainer plains plainy", "unreached zq unreached", " unreached", "\u0120hello \u0120", "ab abc abcd abcde", "s\u00adt",
]

def random_texts():
    rng, out = random.Random(7), []
    ranges = [(0x20, 0x7e)] * 4 + [(0x9, 0xd), (0x20, 0x20), (0x27, 0x27), (0x30, 0x39), (0xa0, 0x2ff), (0x300, 0x36f), (0x370, 0x5ff),
              (0x900, 0xdff), (0x2000, 0x206f), (0x4e00, 0x9fff), (0x1f300, 0x1f6ff), (0x1e900, 0x1e95f), (0x10000, 0x10ffff)]
    for _ in range(24):
        out.append("".join(chr(rng.randint(*rng.choice(ranges))) for _ in range(rng.randint(1, 60))))
    words = "the thee then hath with 's ing  \n 12 <|end|> tion".split(" ")
    for _ in range(10):
        out.append("".join(rng.choice(words) + rng.choice(["", " "]) for _ in range(30)))
    return out

ADDED = [AddedToken("<|begin|>", special=True, normalized=False), AddedToken("<|end|>", special=True, normalized=False),
         AddedToken("<mask>", special=True, lstrip=True, rstrip=True), AddedToken("<left>", lstrip=True), AddedToken("<right>", rstrip=True),
         AddedToken("word", single_word=True), AddedToken("plain", normalized=True), AddedToken("plainer", normalized=False), AddedToken("lainy", normalized=False),
         AddedToken("ab"), AddedToken("abcd"), AddedToken("s\u00adt", special=False), AddedToken("\u0120hello")]

def train(corpus, pre, name, size, ignore_merges=False):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tok.pre_tokenizer, tok.decoder = pre, decoders.ByteLevel()
    tok.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tok.post_processor = processors.ByteLevel(trim_offsets=False)
    data = json.loads(tok.to_str())
    # Tokens that no merge reaches tell ignore_merges from merging.
    for extra in ["unreached", "\u0120unreached"]:
        data["model"]["vocab"][extra] = len(data["model"]["vocab"])
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_tokens(ADDED)
    return tok, name

def save(tok, name, strings):
    if name == "llama3":
        begin = tok.token_to_id("<|begin|>")
        tok.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|>:1 $B:1", special_tokens=[("<|begin|>", begin)])])
    data = json.loads(tok.to_str())
    if strings:
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    (HERE / f"{name}.json").write_text(json.dumps(data, ensure_ascii=False, separators=(",", ":")) + "\n")
    return data

def split_step(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}

def byte_level(regex=False, space=False):
    return {"type": "ByteLevel", "add_prefix_space": space, "trim_offsets": True, "use_regex": regex}

def sequence(*steps):
    return {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}

def template(begin, end):
    piece = lambda s: {"SpecialToken": {"id": s, "type_id": 0}}
    special = lambda s, *ids: {"id": s, "ids": list(ids), "tokens": [s] * len(ids)}
    return {"type": "TemplateProcessing", "single": [piece("B"), {"Sequence": {"id": "A", "type_id": 0}}, piece("E")], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"B": special("B", begin, begin + 1), "E": special("E", end)}}

def decode_inputs(tok):
    rng, n = random.Random(11), tok.get_vocab_size()
    byte = [tok.token_to_id(c) for c in chars()]
    raw = [b"\xff", b"\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82(", b"\xf0\x9f\x92", b"\xf0\x9f\x92\xf0\x9f\x92\xa9", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80",
           b"\xf8\x88\x80\x80\x80", b"\x80\xbf", b"a\xe2\x82b\xf0\x9f", b"\xe2\x82\xe2\x82\xac", b"\xf1\x80\x80\xf1\x80", b"\xf0\x80", b"\xed\x9f\xbf\xee\x80\x80", b"\xf0\x9f\x92\xa9\xe2\x82\xac\xc3\xa9a"]
    out = [[byte[b] for b in r] for r in raw]
    out += [[byte[0xe2], tok.token_to_id("<|end|>"), byte[0x82], byte[0xac]], [n + 5, byte[0x41], 2**31 - 1], []]
    out += [[rng.randrange(n) for _ in range(40)] for _ in range(15)]
    out += [[byte[rng.choice([0x80, 0xbf, 0xa0, 0xe2, 0xf0, 0xc3, 0xed, 0x41, 0xf4])] for _ in range(40)] for _ in range(15)]
    return out

def chars():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    return [chr(b) if b in keep else chr(next(rest)) for b in range(256)]

def case(name, data, patch, texts, decode=False):
    tok = Tokenizer.from_str(json.dumps({**data, **patch}))
    c = {"tokenizer": name, "patch": patch, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts]}
    if decode:
        c["decode"] = [{"ids": ids, "text": tok.decode(ids, skip_special_tokens=True)} for ids in decode_inputs(tok)]
    return c

def classes():
    everything = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)
    out = {}
    for name in [r"\s"] + [r"\p{%s}" % c for c in "L Lu Ll Lt Lm Lo M N P S".split()]:
        left = set(normalizers.Replace(Regex(name), "").normalize_str(everything))
        ranges = []
        for c in (ord(c) for c in everything if c not in left):
            if ranges and ranges[-1][1] == c - 1:
                ranges[-1][1] = c
            else:
                ranges.append([c, c])
        out[name] = " ".join("%x" % a if a == b else "%x-%x" % (a, b) for a, b in ranges)
    return out

def main():
    corpus = [Path(sys.argv[1]).read_text()]
    gpt2 = save(*train(corpus, pre_tokenizers.ByteLevel(add_prefix_space=False), "gpt2", 600), strings=True)
    steps = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    llama3 = save(*train(corpus, steps, "llama3", 700, ignore_merges=True), strings=False)
    some = TEXTS[:14] + TEXTS[30:36] + TEXTS[43:]
    cases = {"gpt2": [
        case("gpt2", gpt2, {}, TEXTS + random_texts(), decode=True),
    ], "llama3": [
        case("llama3", llama3, {}, TEXTS + random_texts(), decode=True),
    ], "options": [
        case("gpt2", gpt2, {"pre_tokenizer": byte_level(True, True)}, some),
        case("llama3", llama3, sequence(split_step(QWEN2), byte_level(False, True)), some),
        case("llama3", llama3, sequence(split_step(O200K), byte_level()), some),
        case("gpt2", gpt2, sequence(split_step(r"[\p{Lu}\p{N}a-c]{2,3}|(?!\s)[^\S\r]?(?=x)x|\P{L}\P{L}"), split_step(r"(?i:ks)"), byte_level(True)), TEXTS + ["KS \u212a\u017f ks kS xx x  x"]),
        case("gpt2", gpt2, {"post_processor": {"type": "Sequence", "processors": [template(1, 3), byte_level()]}}, some[:6]),
        case("gpt2", gpt2, {"post_processor": None}, some[:6]),
    ]}
    for name, list_ in cases.items():
        (HERE / f"{name}_vectors.json").write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in list_) + "\n]\n")
    (HERE / "classes.json").write_text(json.dumps(classes(), indent=0) + "\n")

if __name__ == "__main__":
    main()
