"""openai-python, ollama-python and LangChain against a gateway before a model for embeddings, with the vectors of
sentence-transformers."""

import json
import os
import struct
import urllib.request

import ollama
import openai
from langchain_openai import OpenAIEmbeddings

from common import Case

URL = os.environ["REEL_EMBEDDER"]
MODEL = "qwen3-embedding"
FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                      "../../../../generator/internal/model/testdata", MODEL)


def golden():
    """Texts without a prompt, with their tokens and vectors of length 1."""
    with open(os.path.join(FOLDER, "golden.json"), encoding="utf-8") as file:
        cases = json.load(file)
    with open(os.path.join(FOLDER, "vectors.f32"), "rb") as file:
        values = [v for (v,) in struct.iter_unpack("<f", file.read())]
    width = len(values) // len(cases) // 2
    for i, case in enumerate(cases):
        if case["prompt"] != "query":
            yield case["text"], case["tokens"], values[(2 * i + 1) * width:(2 * i + 2) * width]


TEXTS, TOKENS, VECTORS = map(list, zip(*golden()))


def plain():
    """The gateway's vectors of TEXTS, asked for without a client."""
    request = urllib.request.Request(URL + "/v1/embeddings", json.dumps({"model": MODEL, "input": TEXTS}).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [d["embedding"] for d in json.load(answer)["data"]]


class Embeddings(Case):
    @classmethod
    def setUpClass(cls):
        cls.vectors = plain()

    def same(self, got, want):
        self.assertEqual(len(got), len(want))
        for g, w in zip(got, want):
            self.assertEqual(len(g), len(w))
            self.assertLess(max(abs(a - b) for a, b in zip(g, w)), 1e-5)

    def test_sentence_transformers(self):
        """Vectors of length 1 are those in float32 but for what the generator rounds: the activations of its products
        with weights in bfloat16."""
        self.assertEqual(len(self.vectors), len(VECTORS))
        for g, w in zip(self.vectors, VECTORS):
            self.assertEqual(len(g), len(w))
            self.assertLess(sum((a - b) ** 2 for a, b in zip(g, w)) ** 0.5, 2e-2)

    def test_openai(self):
        client = openai.OpenAI(base_url=URL + "/v1", api_key="any")
        for options in {}, {"encoding_format": "float"}:  # by default in base64
            with self.subTest(options):
                answer = client.embeddings.create(model=MODEL, input=TEXTS, **options)
                self.same([d.embedding for d in answer.data], self.vectors)
                self.assertEqual(answer.usage.prompt_tokens, sum(map(len, TOKENS)))
        self.same([client.embeddings.create(model=MODEL, input=TOKENS[1]).data[0].embedding], self.vectors[1:2])
        self.assertEqual(len(client.embeddings.create(model=MODEL, input="a", dimensions=32).data[0].embedding), 32)
        with self.assertRaises(openai.BadRequestError):
            client.embeddings.create(model=MODEL, input="a", dimensions=31)
        with self.assertRaises(openai.BadRequestError) as refused:
            client.completions.create(model=MODEL, prompt="a")
        self.assertEqual(refused.exception.code, "no_generation")

    def test_ollama(self):
        client = ollama.Client(host=URL, timeout=30)
        self.same(client.embed(MODEL, TEXTS).embeddings, self.vectors)
        one = client.embeddings(MODEL, TEXTS[1]).embedding  # of the length that the model computes
        length = sum(v * v for v in one) ** 0.5
        self.same([[v / length for v in one]], self.vectors[1:2])
        self.assertEqual(client.show(MODEL).capabilities, ["embedding"])

    def test_langchain(self):
        embeddings = OpenAIEmbeddings(base_url=URL + "/v1", api_key="any", model=MODEL,
                                      check_embedding_ctx_length=False)
        self.same(embeddings.embed_documents(TEXTS), self.vectors)
        self.same([embeddings.embed_query(TEXTS[0])], self.vectors[:1])
