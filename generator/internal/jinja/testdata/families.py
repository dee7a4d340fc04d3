"""Families whose templates see more than roles and texts: the templates in families/, conversations
with calls, results, parts and further fields, and the cases that make.py renders.

The templates are our own. Each has the form of the one that its family publishes: marks, order of
turns, white space, loops, macros, tools, and what it refuses. The words are others.

Families without a file of their own have another's form: Qwen3-MoE that of qwen3, OLMoE that of
olmo2, Ministral 8B that of mistral.nemo, Mixtral 8x22B that of mistral.
"""
from pathlib import Path

def call(id, arguments, name="weather"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}

def said(role, content, **fields):
    return {"role": role, "content": content, **fields}

PLACE, TEXT = {"city": "Köln", "days": [1, 2.5], "unit": None, "now": True, "deep": {"b": "x", "a": "<&>"}}, '{"city": "Köln"}'
PARTS = [{"type": "text", "text": " What is "}, {"type": "image"}, {"type": "text", "text": "this? "}]

DIALOGUES = {
    "calls": [said("system", "Be terse."), said("user", "Weather?"), said("assistant", "", tool_calls=[call("abcdefghi", PLACE)]),
              said("tool", '{"t": 3}', tool_call_id="abcdefghi"), said("assistant", "Cold."), said("user", "So?")],
    "two calls": [said("user", "Weather?"), said("assistant", None, tool_calls=[call("abcdefghi", TEXT), call("123456789", "{}", "now")]),
                  said("tool", "3°", tool_call_id="abcdefghi"), said("tool", "12:00", tool_call_id="123456789", name="clock")],
    "long id": [said("user", "Weather?"), said("assistant", "I look.", tool_calls=[call("call_123456789", {"city": "Köln"})]),
                said("tool", "3°", tool_call_id="call_123456789"), said("assistant", "Cold.")],
    "short id": [said("user", "Weather?"), said("assistant", "", tool_calls=[call("c1", {"city": "Köln"})])],
    "odd name": [said("user", "Weather?"), said("assistant", "", tool_calls=[call("abcdefghi", {"<a>": "b & 'c'"}, "a<b&c")])],
    "thought": [said("user", "Weather?"), said("assistant", "I look.", reasoning_content="Where?", tool_calls=[call("abcdefghi", {"city": "Köln"})]),
                said("tool", [{"type": "text", "text": "3°"}], tool_call_id="abcdefghi"), said("assistant", "<|channel>thought\nhm<channel|>Cold.")],
    "parts": [said("system", [{"type": "text", "text": "Be terse."}]), said("user", PARTS), said("assistant", [{"type": "text", "text": " A cat. "}]),
              said("user", [{"type": "image"}, {"type": "text", "text": "And this?"}])],
    "sound": [said("user", [{"type": "audio"}])],
    "no text": [said("user", ""), said("assistant", ""), said("user", "\n")],
    "none": [said("user", "a"), said("assistant", None), said("user", "b")],
    "twice": [said("user", "a"), said("user", "b")],
    "off": [said("system", "Be terse. /no_think "), said("user", "a"), said("assistant", "\n\nb"), said("user", "c")],
    "override": [said("system", "Only this. /system_override /think"), said("user", "a")],
    "developer": [said("developer", " Be terse. "), said("user", "a")],
    "folded": [said("user", "Weather?"), said("assistant", "Cold.", tool_calls=[call("a", {"city": "Köln"})],
                    tool_responses=[{"name": "weather", "response": {"t": 3, "at": "noon"}}, {"response": 4}])],
    "observation": [said("system", "Be terse."), said("user", "Weather?"), said("assistant", TEXT, metadata="weather"),
                    said("observation", "3°"), said("assistant", "Cold.")],
    "environment": [said("system", "Be terse.", functions='[{"name": "weather"}]'), said("user", "Weather?"),
                    said("assistant", None, function_calls='weather(city="Köln")'), said("environment", "3°")],
    "told tools": [said("system", "Be terse.", tools='[{"name": "weather"}]'), said("user", "Weather?")],
    "two systems": [said("system", "Be terse."), said("system", "Be kind."), said("user", "a"), said("assistant", "<think>b</think>c")],
}

VALUES = {
    "tools": [
        {"type": "function", "function": {"name": "weather", "description": "Tells the \"weather\".", "parameters": {
            "type": "object", "required": ["city"], "properties": {
                "city": {"type": "string", "description": "The place"},
                "unit": {"type": ["string", "null"], "enum": ["C", "F"], "nullable": True},
                "days": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
                "at": {"type": "object", "properties": {"x": {"type": "number"}}}, "B": {"type": "boolean"}}}, "return": {"type": "string"}}},
        {"type": "function", "function": {"name": "now", "description": "Sagt, wie spät es ist.", "parameters": {"type": "object", "properties": {}}}}],
    "documents": [{"doc_id": 1, "title": "Köln", "text": "It is cold."}, {"doc_id": "b", "text": ""}],
}

def use(*names, **values):
    """Variables of a case: those of VALUES by name, and others."""
    return {"with": list(names), "set": values}

TOOLS, NOTHING = use("tools"), use()
THINKS, ANSWERS = use(enable_thinking=True), use(enable_thinking=False)

# The cases of each family. A conversation with a ! is rendered without the answer's beginning too.
CASES = {
    "gemma2": [("no text", NOTHING), ("twice", NOTHING), ("parts", NOTHING), ("none", NOTHING)],
    "gemma3": [("parts!", NOTHING), ("no text", NOTHING), ("twice", NOTHING), ("none", NOTHING), ("calls", TOOLS)],
    "gemma4": [("calls!", TOOLS), ("calls", NOTHING), ("two calls!", TOOLS), ("long id!", TOOLS), ("thought!", THINKS), ("odd name", TOOLS),
               ("parts!", NOTHING), ("parts", THINKS), ("no text", ANSWERS), ("twice", NOTHING), ("developer", TOOLS), ("folded!", NOTHING)],
    "glm4.0414": [("calls", TOOLS), ("observation!", TOOLS), ("observation", NOTHING), ("parts", NOTHING), ("no text", NOTHING), ("none", NOTHING)],
    "granite3": [("calls!", TOOLS), ("observation", use("tools", "documents")), ("no text", NOTHING), ("no text", use("documents")),
                 ("no text", use("documents", controls={"citations": True, "hallucinations": True})), ("no text", TOOLS), ("no text", use("tools", "documents")),
                 ("twice", use(thinking=True)), ("parts", NOTHING), ("none", NOTHING)],
    "granite4": [("calls!", TOOLS), ("calls", use("tools", "documents")), ("calls", use("documents")), ("two calls!", TOOLS), ("two calls", use("documents")), ("long id", use("tools", "documents")),
                 ("parts!", NOTHING), ("parts", TOOLS), ("odd name", NOTHING), ("no text", NOTHING), ("none", NOTHING), ("two systems", NOTHING)],
    "smollm3": [("calls!", TOOLS), ("off!", NOTHING), ("off", TOOLS), ("override", NOTHING), ("override", ANSWERS), ("no text!", ANSWERS), ("no text", THINKS), ("parts", NOTHING),
                ("two systems", use(xml_tools=["def f(): pass"])), ("twice", use(python_tools=["def f(): pass", "def g(): pass"])), ("none", use(xml_tools={"f": 1})), ("calls", use("tools", python_tools=["def f(): pass"]))],
    "olmo2": [("no text!", NOTHING), ("two systems!", NOTHING), ("parts", NOTHING), ("none", NOTHING)],
    "olmo3": [("calls!", TOOLS), ("calls", NOTHING), ("two calls", TOOLS), ("long id!", TOOLS), ("environment!", NOTHING), ("odd name", TOOLS), ("no text", NOTHING), ("twice", use(thinks=True)), ("none", TOOLS), ("parts", NOTHING)],
    "deepseek2": [("no text!", NOTHING), ("two systems!", NOTHING), ("parts", NOTHING), ("none", NOTHING)],
    "deepseek3": [("two calls!", TOOLS), ("calls", TOOLS), ("two systems!", NOTHING), ("no text", NOTHING), ("none", NOTHING), ("parts", NOTHING)],
    "phi4.mini": [("told tools!", NOTHING), ("no text!", NOTHING), ("calls", TOOLS), ("none", NOTHING), ("parts", NOTHING)],
    "phi4.mini.tools": [("calls!", TOOLS), ("calls", NOTHING), ("two calls!", TOOLS), ("odd name", TOOLS), ("no text", NOTHING), ("parts", NOTHING)],
    "mistral.nemo": [("calls!", TOOLS), ("calls", NOTHING), ("two calls", TOOLS), ("odd name", TOOLS), ("long id", TOOLS), ("short id", TOOLS), ("twice", NOTHING), ("no text", TOOLS), ("parts", NOTHING), ("developer", NOTHING)],
    "mistral.small": [("calls!", TOOLS), ("calls", NOTHING), ("two calls", TOOLS), ("odd name", TOOLS), ("long id", TOOLS), ("short id", TOOLS), ("twice", NOTHING), ("no text", TOOLS), ("parts!", NOTHING), ("sound", NOTHING), ("developer", NOTHING)],
    "ministral3": [("calls!", TOOLS), ("calls", NOTHING), ("two calls", TOOLS), ("odd name", TOOLS), ("long id", TOOLS), ("twice", NOTHING), ("no text", TOOLS), ("none", NOTHING), ("parts!", NOTHING), ("sound", NOTHING), ("developer", NOTHING)],
    "mixtral": [("no text!", NOTHING), ("twice", NOTHING), ("calls", TOOLS), ("parts", NOTHING)],
}

TEMPLATES = {name: (Path(__file__).parent / "families" / (name + ".jinja")).read_text() for name in CASES}

def family_cases(render, tokens):
    """The cases with their results. render takes a template, messages, tokens, whether to begin an answer, and variables."""
    for family, cases in CASES.items():
        for dialogue, variables in cases:
            for go in (True, False) if dialogue.endswith("!") else (True,):
                name = dialogue.rstrip("!")
                values = {**{each: VALUES[each] for each in variables["with"]}, **variables["set"]}
                result = render(TEMPLATES[family], DIALOGUES[name], tokens, go, values)
                yield {"family": family, "dialogue": name, "add_generation_prompt": go, **{k: v for k, v in variables.items() if v}, **result}
