#!/usr/bin/env python3
"""Makes gemma4.json, a tokenizer in the form of Gemma 4's with a vocabulary trained here, and its vectors:

    pip install tokenizers==0.23.3
    python gemma4.py

Merges go over words and lines, as no pre-tokenizer cuts what the normalizer leaves. Some runs of line feeds and of
spaces are tokens, and so is </s>, which ends nothing.
"""
import json, random
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from families import ALL, BYTES, SPACE, corpus
from make import HERE, random_texts
from pipelines import TRICKY

FIRST = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
SPECIAL = FIRST + ["<|tool>", "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", '<|"|>', "<|think|>",
                   "<|channel>", "<channel|>", "<|turn>", "<turn|>", "<|image>", "<|image|>"]
TEXTS = ["<bos><|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>", "a\nb\n\nc\n\n\nd\n\n\n\n\n\n\n", "\n a\n  b \n\n ", " \n", "\n\n\n ", "a </s> b</s>",
         '<|tool_call>call:get{city:<|"|>Rome<|"|>,n:3}<tool_call|><|tool_response>', "漢字\n漢字 日本語", "👍🏽\n👩‍👧 e\u0301", "\r\n\t\r", "<0x41> <0x0A>", SPACE + "a" + SPACE + SPACE, "<|turn> user <turn|> \n"]

def tokenizer():
    tok = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Replace(" ", SPACE)
    lines = [a + "\n" + b for a, b in zip(corpus(), corpus()[7:])] + [t + "\n\n" + t for t in corpus()]
    tok.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=len(SPECIAL) + 256 + 700, limit_alphabet=200, special_tokens=SPECIAL + BYTES, show_progress=False))
    data = json.loads(tok.to_str())
    vocab, merges = data["model"]["vocab"], data["model"]["merges"]
    have = {tuple(m) for m in merges}
    for c in ("\n", SPACE):
        for n in range(2, 9):
            vocab.setdefault(c * n, len(vocab))
            for pair in ((c * (n - 1), c), (c * (n // 2), c * (n - n // 2))):
                if pair not in have:
                    merges.append(list(pair)); have.add(pair)
    for left, right in (("<", "/"), ("</", "s"), ("</s", ">")):
        for part in (left, right, left + right):
            vocab.setdefault(part, len(vocab))
        merges.append([left, right])
    data["added_tokens"] = []
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tok.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    return tok

def runs(rng):
    """Texts in which merges compete over spaces and line feeds."""
    letters = "aaabcdeeehiilnorsstt  \n\n\u2581漢👍"
    return ["".join(rng.choice(letters) for _ in range(rng.randint(1, 60))) for _ in range(150)]

def main():
    tok = tokenizer()
    texts = TEXTS + ALL + TRICKY + random_texts() + runs(random.Random(4))
    rng, n = random.Random(6), tok.get_vocab_size()
    good = [i for i in range(n) if not tok.id_to_token(i).startswith("<0x")]
    lists = [tok.encode(t).ids for t in TEXTS + ALL] + [[rng.choice(good) for _ in range(30)] for _ in range(10)]
    case = {"tokenizer": "gemma4", "patch": {}, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts], "rendered": [],
            "decode": [{"ids": ids, "text": tok.decode(ids, skip_special_tokens=True)} for ids in lists]}
    dump = lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":")) + "\n"
    (HERE / "gemma4.json").write_text(dump(json.loads(tok.to_str())))
    (HERE / "gemma4_vectors.json").write_text("[\n" + dump(case) + "]\n")
    print(n, "tokens,", len(texts), "texts")

if __name__ == "__main__":
    main()
