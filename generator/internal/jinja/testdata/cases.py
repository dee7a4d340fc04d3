#!/usr/bin/env python3
"""Makes cases.jsonl for make chat-templates: random conversations, each rendered with
Jinja2 as make.py sets it up, for every template *.jinja in a directory:

    pip install jinja2==3.1.6
    python cases.py DIRECTORY [cases per template]

The same directory gives the same cases. Line 1 has the time that templates see; each
further line is a case:

    template   the file's name
    set        "text": messages of role and content, both strings
               "full": content lists, tools, calls, results and fields that the template names
    answer     add_generation_prompt
    tokens     special tokens
    variables  further values: tools, documents, and those that the template names
    messages   the conversation
    text       Jinja2's text; or
    raises     the text of raise_exception; or
    fails      any other error of Jinja2, which need not have the same words
"""
import hashlib, json, random, re, signal, sys, warnings
from pathlib import Path
import jinja2, jinja2.meta
from make import NOW, environment

WORDS = """the of and to in is you that it he was for on are as with his they I at be this have from or one had by
word but not what all were we when your can said there use an each which she do how their if will up other about out
many then them these so some her would make like him into time has look two more write go see number no way could""".split()
ODD = ["é", "naïve", "“quoted”", "👩‍👧", "中文字符", "עברית", "Ｆｕｌｌ", "e\u0301", "ß", "İ", "ǆ",
       "\u00a0", "\u2028", "\u200b", "\t", "\r\n", "\x0b", "\x1f", "\x85",
       "\\n", "\\", "'", '"', "<b>&amp;</b>", "{{ x }}", "{% if %}", "{#", "}}", "%s %d %", "$1",
       "```py\nprint('a')\n```", "1.5", "007", "[1, 2]", '{"a": 1}', "None", "True", "\ue000", "a\ue001b"]
MARKS = ["<|im_start|>", "<|im_end|>\n", "<|eot_id|>", "<|start_header_id|>system<|end_header_id|>\n\n", "[INST]",
         "[/INST]", "<<SYS>>", "<s>", "</s>", "<|endoftext|>", "<think>", "</think>", "<think>\nhm\n</think>\n\n", "<tool_call>",
         "</tool_call>", "<tool_response>", "</tool_response>", "<start_of_turn>user\n", "<end_of_turn>", "<image>", "<|image|>",
         "[TOOL_CALLS]", "<|channel|>final<|message|>", "<|channel|>analysis<|message|>",
         "/think", "/no_think", "### Human: ", "ASSISTANT:"]
SPACES = ["", " ", "\n", "\n\n", "  \n ", "\t"]
ROLES = ["system", "user", "assistant", "tool", "developer", "function", "ipython", "critic", ""]
KEYS = ["a", "query", "location", "größe", "x y", "n", "items", "unit", "nested", "Z"]
TYPES = ["string", "number", "integer", "boolean", "array", "object", "null", ["string", "null"]]
TOKENS = [{"bos_token": "<s>", "eos_token": "</s>"},
          {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|finetune_right_pad_id|>"},
          {"bos_token": "<bos>", "eos_token": "<end_of_turn>", "unk_token": "<unk>"},
          {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}]
# Names that the environment or render sets, so that no request may.
KNOWN = set("""messages tools documents add_generation_prompt bos_token eos_token unk_token pad_token raise_exception
strftime_now namespace range dict loop self caller varargs kwargs lipsum cycler joiner true false none True False
None""".split())

class Maker:
    """Random values. names are the template's own: variables, and fields of messages."""

    def __init__(self, seed, template, names):
        self.r = random.Random(seed)
        self.template, (self.variables, self.fields) = template, names

    def maybe(self, p):
        return self.r.random() < p

    def text(self, long=True):
        if self.maybe(0.07):
            return self.r.choice(["", " ", "\n", "  \n\n "])
        n = self.r.choice([1, 3, 8, 8, 20, 20, 60] + ([700] if long and self.maybe(0.05) else []))
        parts = [self.r.choice(WORDS if self.maybe(0.8) else ODD if self.maybe(0.6) else MARKS) for _ in range(n)]
        ends = [self.r.choice(["\n", "\n\n", ". ", ""]) if self.maybe(0.15) else " " for _ in parts]
        s = "".join(part + end for part, end in zip(parts, ends))
        s = s if self.maybe(0.15) else s.strip()
        return self.r.choice(SPACES) + s + self.r.choice(SPACES) if self.maybe(0.25) else s

    def thought(self):
        body = self.r.choice(SPACES) + self.text(False) + self.r.choice(SPACES)
        return self.r.choice(["<think>%s</think>", "<think>\n%s\n</think>\n\n", "%s</think>", "<think>%s",
                              "<think></think>%.0s", "<think>%s</think>a<think>b</think>"]) % body

    def number(self):
        return self.r.choice([0, 1, -1, 7, 42, 2**53 + 1, -2**31, 1.0, 0.5, -2.25, 1e16, 1e-5, 123456789.125, 3.0e18,
                              self.r.random(), self.r.randrange(1000)])

    def json(self, depth=0):
        kind = self.r.randrange(9 if depth < 3 else 6)
        if kind < 2:
            return self.text(False)
        if kind < 4:
            return self.number()
        if kind < 6:
            return self.r.choice([True, False, None])
        if kind == 6:
            return [self.json(depth + 1) for _ in range(self.r.randrange(4))]
        return self.object(depth)

    def object(self, depth=0):
        return {k: self.json(depth + 1) for k in self.r.sample(KEYS, self.r.randrange(4))}

    def messages_text(self):
        return [{"role": role, "content": self.answer() if role == "assistant" else self.text()} for role in self.roles()]

    def answer(self):
        return (self.thought() if self.maybe(0.3) else "") + self.text()

    def roles(self):
        n = self.r.choice([1, 1, 2, 3, 3, 4, 5, 6, 8, 12])
        style = self.r.random()
        if style < 0.6:  # as most templates want it
            roles = ["system"] if self.maybe(0.4) else []
            return roles + ["user" if i % 2 == 0 else "assistant" for i in range(n)][:12 - len(roles)]
        if style < 0.8:
            return [self.r.choice(["system", "user", "assistant"]) for _ in range(n)]
        if style < 0.9 or "tool" not in self.template:
            return [self.r.choice(ROLES) for _ in range(n)]
        roles = ["system"] if self.maybe(0.4) else []
        while len(roles) < n:
            roles += ["user", "assistant"] + ["tool"] * self.r.randrange(3)
        return roles[:12]

    def schema(self, depth=0):
        kind = self.r.choice(TYPES) if depth else "object"
        s = {"type": kind}
        if self.maybe(0.6):
            s["description"] = self.text(False)
        if kind == "array":
            s["items"] = self.schema(depth + 1) if self.maybe(0.9) else {}
        if kind == "object" and depth < 3:
            s["properties"] = {k: self.schema(depth + 1) for k in self.r.sample(KEYS, self.r.randrange(4))}
            if self.maybe(0.7):
                s["required"] = [k for k in s["properties"] if self.maybe(0.6)]
        if self.maybe(0.15):
            s["enum"] = [self.r.choice([self.text(False), self.number()]) for _ in range(3)]
        if self.maybe(0.1):
            s["default"] = self.json(2)
        if self.maybe(0.1):
            s["nullable"] = self.maybe(0.5)
        if depth and self.maybe(0.05):
            s = {"anyOf": [s, {"type": "null"}]}
        return s

    def tool(self):
        f = {"name": self.r.choice(["get_weather", "search", "añadir", "code_interpreter", "x.y", "brave_search"])}
        if self.maybe(0.95):
            f["description"] = self.text(False)
        if self.maybe(0.95):
            f["parameters"] = self.schema()
        if self.maybe(0.15):
            f["return"] = self.schema(1)
        return f if self.maybe(0.08) else {"type": "function", "function": f}

    def calls(self):
        calls = []
        for _ in range(self.r.choice([1, 1, 1, 2, 3])):
            arguments = self.object()
            if self.maybe(0.15):
                arguments = json.dumps(arguments)
            f = {"name": self.r.choice(["get_weather", "search", "añadir"]), "arguments": arguments}
            c = {"id": self.r.choice(["call_1", "abcdefghi", "123456789"]), "type": "function", "function": f}
            if self.maybe(0.1):
                c = f
            elif self.maybe(0.15):
                c.pop("id" if self.maybe(0.5) else "type")
            calls.append(c)
        return calls

    def content(self, text):
        if not self.maybe(0.5):
            return text
        parts = [{"type": "text", "text": text}]
        if self.maybe(0.3):
            parts.insert(self.r.randrange(2), {"type": "text", "text": self.text(False)})
        if self.maybe(0.15):
            parts.insert(0, self.r.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "a.png"}},
                                           {"type": "audio"}, {"type": "video"}, "plain"]))
        return [] if self.maybe(0.05) else parts

    def messages_full(self):
        out, called = [], []
        lists = self.maybe(0.5 if re.search("is string|is iterable|'type'|\\.type", self.template) else 0.1)
        for m in self.messages_text():
            m["content"] = self.content(m["content"]) if lists else m["content"]
            if m["role"] == "assistant" and self.maybe(0.45):
                m["tool_calls"] = called = self.calls()
                if self.maybe(0.5):
                    m["content"] = "" if self.maybe(0.7) else None
                if self.maybe(0.05):
                    del m["content"]
            elif self.maybe(0.03):
                m[self.r.choice(["tool_calls", "tools", "content"])] = self.r.choice([None, []])
            if m["role"] in ("tool", "function", "ipython") or self.maybe(0.03):
                c = self.r.choice(called or [{}])
                m["tool_call_id"] = c.get("id", "call_1")
                if self.maybe(0.6):
                    m["name"] = c.get("function", c).get("name", "search")
                if self.maybe(0.2):
                    m["content"] = self.json()
            if m["role"] == "assistant" and self.maybe(0.3):
                m["reasoning_content"] = self.r.choice([self.text(False), self.text(False), "", None])
            for field in self.fields:
                if self.maybe(0.06):
                    m.setdefault(field, self.r.choice([True, False, self.text(False), self.json()]))
            out.append(m)
        return out

    def variable(self, name):
        if re.search("functions|tools|categories|list$", name):
            return self.r.choice([[self.tool()], [], self.text(False), self.object()])
        if re.search("date|day|time", name):
            return self.r.choice(["2 Jul 2025", "", self.text(False)])
        if re.search("enable|keep|is_|add_|use|preserve|clear|truncate|disable|continue|vision|prefix", name):
            return self.maybe(0.5)
        if re.search("effort|mode", name):
            return self.r.choice(["low", "medium", "high", "off", "on", "", self.text(False)])
        return self.r.choice([True, False, self.text(False), self.text(False), self.number(), None, self.json()])

    def values(self, full):
        v = {name: self.variable(name) for name in self.variables if self.maybe(0.35)}
        if full:
            if self.maybe(0.6):
                v["tools"] = [self.tool() for _ in range(self.r.choice([0, 1, 1, 2, 4]))]
            if "documents" in self.template and self.maybe(0.4):
                v["documents"] = [self.document(i) for i in range(self.r.randrange(3))]
            if "custom_tools" in self.template and self.maybe(0.2):
                v["custom_tools"] = [self.tool()]
        return dict(list(v.items())[:32])

    def document(self, i):
        return {"title": self.text(False), "text": self.text(False), **({"doc_id": i} if self.maybe(0.3) else {})}

    def case(self, full):
        return {"answer": self.maybe(0.7), "tokens": self.r.choices(TOKENS, [4, 4, 3, 1])[0],
                "variables": self.values(full), "messages": self.messages_full() if full else self.messages_text()}

def names(source):
    """The variables that a template names, and the fields of its messages."""
    try:
        variables = jinja2.meta.find_undeclared_variables(environment().parse(source))
    except jinja2.TemplateError:
        return [], []
    variables |= set(re.findall(r"\b([a-z_]\w*) is (?:not )?defined", source))
    fields = set(re.findall(r"\b(?:message|m|msg)(?:\.|\[['\"])([a-z_]\w*)", source))
    return sorted(variables - KNOWN), sorted(fields - {"role", "content", "items", "get", "keys", "values"})

def result(template, case):
    values = {"tools": None, "documents": None, **case["tokens"], **case["variables"]}
    try:
        signal.alarm(5)
        return {"text": template.render(messages=case["messages"], add_generation_prompt=case["answer"], **values)}
    except Exception as e:
        if type(e) is jinja2.exceptions.TemplateError:
            return {"raises": str(e)}
        return {"fails": f"{type(e).__name__}: {e}"[:300]}
    finally:
        signal.alarm(0)

def slow(*_):
    raise TimeoutError("rendering takes long")

def main():
    directory, count = Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 160
    signal.signal(signal.SIGALRM, slow)
    warnings.simplefilter("ignore")  # Python's own, of expressions like 1 is 1
    totals = {}
    with open(directory / "cases.jsonl", "w") as out:
        print(json.dumps({"now": NOW.isoformat()}), file=out)
        for path in sorted(directory.glob("*.jinja")):
            source = path.read_bytes().decode()
            maker = Maker(hashlib.sha256(source.encode()).hexdigest(), source, names(source))
            try:
                template = environment().from_string(source)
            except (jinja2.TemplateError, SyntaxError) as e:
                template, broken = None, {"fails": f"{type(e).__name__}: {e}"[:300]}
            for i in range(count):
                full = i % 2 == 1
                case = maker.case(full)
                r = result(template, case) if template else broken
                totals[next(iter(r))] = totals.get(next(iter(r)), 0) + 1
                line = {"template": path.name, "set": "full" if full else "text", **case, **r}
                print(json.dumps(line, ensure_ascii=False), file=out)
    print(totals)

main()
