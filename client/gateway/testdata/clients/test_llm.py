"""The command `llm` against the gateway, as extra models of OpenAI's API."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from common import KEY, GREETING, NARROW, SCHEMA, SCRIPTED, STRUCTURED, TINY, TOO_LONG, V1, Case, until_cancelled

MODELS = "".join(f"""
- model_id: {name}
  model_name: {name}
  api_base: {V1}
  api_key_name: reel
  supports_tools: true
  supports_schema: true
""" for name in (SCRIPTED, NARROW, TINY, "gpt-9")) + f"""
- model_id: base
  model_name: {TINY}
  api_base: {V1}
  api_key_name: reel
  completion: true
"""

TOOLS = '''
def get_weather(city: str) -> str:
    "The weather in a city"
    return f"7 degrees in {city}"
'''


class LLM(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        with open(os.path.join(cls.folder, "extra-openai-models.yaml"), "w", encoding="utf-8") as file:
            file.write(MODELS)
        cls.keys(KEY)

    @classmethod
    def keys(cls, key):
        with open(os.path.join(cls.folder, "keys.json"), "w", encoding="utf-8") as file:
            json.dump({"reel": key}, file)

    def start(self, *arguments):
        return subprocess.Popen([sys.executable, "-m", "llm", *arguments], text=True, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=os.environ | {"LLM_USER_PATH": self.folder, "PYTHONUNBUFFERED": "1"})

    def llm(self, *arguments, fails=False):
        """What the command prints; with fails, what it says on standard error."""
        with self.start("prompt", *arguments) as process:
            out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode != 0, fails, err)
        return err if fails else out.removesuffix("\n")

    def test_chat(self):
        self.assertEqual(self.llm("-m", SCRIPTED, "text", "--no-stream"), GREETING)

    def test_stream(self):
        self.assertEqual(self.llm("-m", SCRIPTED, "text"), GREETING)

    def test_pings_in_a_silent_stream(self):
        self.assertEqual(self.llm("-m", SCRIPTED, "slow"), "one two three")

    def test_tools(self):
        for stream in [], ["--no-stream"]:
            self.assertEqual(self.llm("-m", SCRIPTED, "call", "--functions", TOOLS, *stream), "7 degrees in Zürich")

    def test_json_schema(self):
        text = self.llm("-m", STRUCTURED, "person", "--schema", json.dumps(SCHEMA), "-o", "seed", "1")
        self.assertPerson(json.loads(text))

    def test_seed_stop_and_length(self):
        options = ["-m", TINY, "ROMEO:", "-o", "seed", "5", "-o", "max_tokens", "12"]
        text = self.llm(*options)
        self.assertEqual(self.llm(*options), text)
        end = text[5:8]
        self.assertEqual(self.llm(*options, "-o", "stop", end), text[: text.index(end)])

    def test_completions(self):
        options = ["-m", "base", "ROMEO:", "-o", "seed", "2", "-o", "max_tokens", "8"]
        self.assertEqual(self.llm(*options), self.llm(*options, "--no-stream"))

    def test_errors(self):
        self.assertIn("404", self.llm("-m", "gpt-9", "text", fails=True))
        self.assertIn("400", self.llm("-m", TINY, TOO_LONG, fails=True))
        self.llm("-m", SCRIPTED, "break internal", fails=True)
        self.keys("wrong")
        self.addCleanup(self.keys, KEY)
        self.assertIn("401", self.llm("-m", SCRIPTED, "text", fails=True))

    def test_cancel(self):
        prompt, mark = until_cancelled("llm")
        with self.start("prompt", "-m", SCRIPTED, prompt) as process:
            self.assertTrue(process.stdout.read(5))
            since = time.time()
            process.send_signal(signal.SIGINT)
        self.assertCancelled(mark, since)

    def test_unicode(self):
        text = "größer 日本 🎬 \\ \" </script>"
        self.assertEqual(self.llm("-m", SCRIPTED, text), text)
