#!/usr/bin/env python3
"""Makes a SentencePiece model and the tokenizer.json and vectors that belong to it:

    pip install tokenizers==0.23.3 sentencepiece==0.2.3
    python gguf.py

scored.json is the tokenizer.json. Its merges are derived from the scores as
transformers does for Llama 2: every cut of a piece into two others is a merge,
by score, and of equal scores by the ids of piece, left and right part.
scores.json has the model's pieces, scores and types, which a GGUF file has.
pre_vectors.json has ids of gpt2.json's vocabulary, by the name of the pre-tokenizer
that a GGUF file has for the published pipeline.
"""
import io, json, random
import sentencepiece
from tokenizers import Tokenizer
from families import ALL, corpus
from make import HERE, LLAMA3, O200K, QWEN2, byte_level, random_texts, split_step
from pipelines import CODER, SMOLLM, TRICKY

SPACE = "\u2581"
TYPES = [("IsUnknown", 2), ("IsControl", 3), ("IsUnused", 5), ("IsByte", 6)]

def train():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(" ".join(t.split()) for t in corpus()), model_writer=model, model_type="bpe", vocab_size=1100, byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, split_digits=True,
        user_defined_symbols=[], num_threads=1)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())

def derive(vocab, scores, by_length=False):
    merges = []
    for piece, score in scores.items():
        cuts = [(piece[:i], piece[i:], score) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += sorted(cuts, key=lambda m: (vocab[m[0]], vocab[m[1]]))
    key = (lambda m: (m[2], len(m[0]), len(m[1]))) if by_length else (lambda m: m[2])
    return [[a, b] for a, b, _ in sorted(merges, key=key, reverse=True)]

TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
RANGES = """41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F
531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59
1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115
2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B
A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2
118A0-118DF 1E900-1E943"""  # of DeepSeek-LLM's class
LETTERS = "".join("-".join(chr(int(c, 16)) for c in r.split("-")) for r in RANGES.split())
DEEPSEEK = [split_step("[\r\n]"), split_step(r"\s?[" + LETTERS + "]+"), split_step(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split_step(r"\s+$"), *CODER[3:]]
DEEPSEEK3 = [split_step(r"\p{N}{1,3}"), split_step("[一-龥\u3040-ゟ゠-ヿ]+"), split_step("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"), byte_level()]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
DEFAULT = [split_step(p) for p in (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")] + [byte_level()]
PIPELINES = {  # by name: members, form C, ignore_merges
    "llama-bpe": ([split_step(LLAMA3), byte_level()], False, True), "dbrx": ([split_step(LLAMA3), byte_level()], False, False),
    "qwen2": ([split_step(QWEN2), byte_level()], True, False), "deepseek-r1-qwen": ([split_step(QWEN2), byte_level()], False, False),
    "tekken": ([split_step(TEKKEN), byte_level()], False, True), "gpt-4o": ([split_step(O200K), byte_level()], False, False),
    "gpt-2": ([byte_level(True)], False, False), "olmo": ([byte_level(True)], True, False), "smollm": (SMOLLM, False, False), "command-r": (SMOLLM, True, False),
    "deepseek-llm": (DEEPSEEK, False, False), "deepseek-coder": (CODER, False, False), "deepseek-v3": (DEEPSEEK3, False, False), "default": (DEFAULT, False, False)}

def pre_tokenizers(texts):
    gpt2, out = json.loads((HERE / "gpt2.json").read_text()), []
    for name, (members, form_c, ignore) in PIPELINES.items():
        data = {**gpt2, "added_tokens": [], "normalizer": {"type": "NFC"} if form_c else None, "model": {**gpt2["model"], "ignore_merges": ignore},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": members}}
        tok = Tokenizer.from_str(json.dumps(data))
        out.append({"tokenizer": name, "patch": {}, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts]})
    return out

def main():
    sp = train()
    n = sp.get_piece_size()
    pieces, scores = [sp.id_to_piece(i) for i in range(n)], [sp.get_score(i) for i in range(n)]
    types = [next((t for name, t in TYPES if getattr(sp, name)(i)), 1) for i in range(n)]
    vocab = {p: i for i, p in enumerate(pieces)}
    data = json.loads((HERE / "llama2.json").read_text())
    data["added_tokens"] = data["added_tokens"][:3]
    data["model"]["vocab"], data["model"]["merges"] = vocab, derive(vocab, dict(zip(pieces, scores)))
    tok = Tokenizer.from_str(json.dumps(data))
    texts = ALL + random_texts() + words(random.Random(9))
    other = {**data, "model": {**data["model"], "merges": derive(vocab, dict(zip(pieces, scores)), by_length=True)}}
    other = Tokenizer.from_str(json.dumps(other))
    print(n, "pieces,", len(data["model"]["merges"]), "merges,", sum(tok.encode(t).ids == other.encode(t).ids for t in texts), "of", len(texts), "texts equal by newer order,",
          sum(tok.encode(t, add_special_tokens=False).ids == sp.encode(t) for t in texts), "equal by sentencepiece")
    case = {"tokenizer": "scored", "patch": {}, "encode": [{"text": t, "ids": tok.encode(t).ids} for t in texts], "rendered": [{"text": t, "ids": tok.encode(t, add_special_tokens=False).ids} for t in texts[:40]],
            "decode": [{"ids": tok.encode(t).ids, "text": tok.decode(tok.encode(t).ids)} for t in texts if "\ufffd" not in tok.decode(tok.encode(t).ids)]}
    rng = random.Random(4)
    cased = ["".join(rng.choice(LETTERS + " 12\u0301a") for _ in range(40)) for _ in range(10)] + ["unreached unreached", "x333 4444 ~ 10$+1 a|b^c"]
    pre = pre_tokenizers([t for t in ALL + TRICKY if "<" not in t and len(t) < 70] + random_texts()[:10] + cased)
    dump = lambda v: json.dumps(v, ensure_ascii=False, separators=(",", ":")) + "\n"
    (HERE / "scored.json").write_text(dump(data))
    (HERE / "scores.json").write_text(dump({"tokens": pieces, "scores": scores, "types": types}))
    (HERE / "scored_vectors.json").write_text("[\n" + dump(case) + "]\n")
    (HERE / "pre_vectors.json").write_text("[\n" + ",".join(dump(c) for c in pre) + "]\n")

def words(rng):
    """Texts of pieces of words, in which merges compete."""
    letters = "aaabcdeeehiilnorsstt  \u2581\n"
    return ["".join(rng.choice(letters) for _ in range(rng.randint(1, 60))) for _ in range(80)]

if __name__ == "__main__":
    main()
