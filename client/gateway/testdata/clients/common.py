"""What the tests share: where the gateway is, its models, a tool, and a record of cancels."""

import json
import os
import sys
import time
import unittest
import uuid

GATEWAY = os.environ["REEL_GATEWAY"]
V1 = GATEWAY + "/v1"
KEY = os.environ["REEL_KEY"]

SCRIPTED = "scripted"  # plays what the first word of the prompt names: client/gateway/internal/plays
NARROW = "narrow"  # the same, with one place for a user
TINY = "reel-tiny"  # the embedded model

GREETING = 'Grüße aus Zürich: 日本, 🎬 and "quotes" \\ <b>.'
TOO_LONG = "word " * 20000

STRUCTURED = TINY  # what a value of SCHEMA is asked of: it follows the schema with reel-format
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Grace"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "the city"}},
            "required": ["city"],
        },
    },
}


# A tool whose arguments SCHEMA bounds, for the embedded model.
GREET = {"type": "function", "function": {"name": "greet", "description": "Greets a person", "parameters": SCHEMA}}


def user(text):
    """A conversation of one message."""
    return [{"role": "user", "content": text}]


def until_cancelled(name):
    """A prompt for words without end, and the name by which was_cancelled finds it."""
    mark = f"{name}-{uuid.uuid4()}"
    return f"endless 10ms {mark}", mark


class Case(unittest.TestCase):
    def assertPerson(self, value):
        """value is one that SCHEMA accepts."""
        self.assertIn(value["name"], SCHEMA["properties"]["name"]["enum"])
        self.assertIn(value["age"], range(100))
        self.assertEqual(set(value), {"name", "age"})

    def assertCancelled(self, mark, since):
        """The generator got the cancel of a prompt with mark soon after the time since."""
        for _ in range(100):
            with open(os.environ["REEL_CANCELS"], encoding="utf-8") as file:
                found = [json.loads(line) for line in file if mark in line]
            if found:
                took = found[0]["at"] - since
                self.assertLess(took, 1, "the cancel came late")
                print(f"cancelled after {1000 * took:.1f} ms", end=" ", file=sys.stderr)
                return
            time.sleep(0.05)
        self.fail("the generator got no cancel within 5 s")
