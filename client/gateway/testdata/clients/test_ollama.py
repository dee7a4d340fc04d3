"""ollama-python against the gateway."""

import json
import time

import ollama

from common import (GATEWAY, GREETING, KEY, NARROW, SCHEMA, SCRIPTED, STRUCTURED, TINY, TOO_LONG, TOOL, Case,
                    until_cancelled, user)

client = ollama.Client(host=GATEWAY, headers={"Authorization": "Bearer " + KEY}, timeout=30)


class Ollama(Case):
    def test_models(self):
        self.assertEqual([m.model for m in client.list().models],
                         [name + ":latest" for name in (SCRIPTED, NARROW, TINY)])
        self.assertTrue(client.show(TINY).modelinfo)
        self.assertIn("tools", client.show(SCRIPTED).capabilities)
        self.assertTrue(client.ps().models)

    def test_chat(self):
        answer = client.chat(SCRIPTED, user("text"))
        self.assertEqual((answer.message.content, answer.done, answer.done_reason), (GREETING, True, "stop"))
        self.assertGreater(answer.eval_count, 1)
        self.assertGreater(answer.total_duration, 0)

    def test_stream(self):
        lines = list(client.chat(SCRIPTED + ":latest", user("text"), stream=True))
        self.assertEqual("".join(line.message.content for line in lines), GREETING)
        self.assertEqual([line.done for line in lines], [False] * (len(lines) - 1) + [True])
        self.assertGreater(lines[-1].eval_count, 1)

    def test_silent_stream(self):
        lines = client.chat(SCRIPTED, user("slow"), stream=True)
        self.assertEqual("".join(line.message.content for line in lines), "one two three")

    def test_thinking(self):
        message = client.chat(SCRIPTED, user("think"), think=True).message
        self.assertEqual((message.thinking, message.content), ("two and two", "four"))

    def test_tools(self):
        for stream in False, True:
            with self.subTest(stream=stream):
                messages = user("calls")
                answers = client.chat(SCRIPTED, messages, tools=[TOOL], stream=stream)
                calls = [call for line in (answers if stream else [answers]) for call in line.message.tool_calls or []]
                self.assertEqual([c.function.arguments["city"] for c in calls], ["Zürich", "Bern"])
                messages.append({"role": "assistant", "content": "", "tool_calls": calls})
                for call in calls:
                    messages.append({"role": "tool", "tool_name": call.function.name, "content": "7 degrees"})
                self.assertEqual(client.chat(SCRIPTED, messages, tools=[TOOL]).message.content, "7 degrees")

    def test_json_schema(self):
        answer = client.chat(STRUCTURED, user("person"), format=SCHEMA, options={"seed": 1})
        self.assertPerson(json.loads(answer.message.content))

    def test_generate(self):
        options = {"seed": 5, "num_predict": 12}
        first = client.generate(TINY, "ROMEO:", options=options)
        self.assertEqual((first.done_reason, first.eval_count), ("length", 12))
        self.assertEqual(client.generate(TINY, "ROMEO:", options=options).response, first.response)
        pieces = client.generate(TINY, "ROMEO:", options=options, stream=True)
        self.assertEqual("".join(p.response for p in pieces), first.response)
        end = first.response[5:8]
        cut = client.generate(TINY, "ROMEO:", options=options | {"stop": [end]})
        self.assertEqual((cut.response, cut.done_reason), (first.response[: first.response.index(end)], "stop"))

    def test_errors(self):
        for status, call in (
            (404, lambda: client.chat("gpt-9", user("text"))),
            (401, lambda: ollama.Client(host=GATEWAY, headers={"Authorization": "Bearer wrong"}).chat(TINY, user("x"))),
            (400, lambda: client.chat(TINY, user(TOO_LONG))),
            (500, lambda: client.chat(SCRIPTED, user("refuse internal"))),
        ):
            with self.assertRaises(ollama.ResponseError) as caught:
                call()
            self.assertEqual(caught.exception.status_code, status)
            self.assertTrue(caught.exception.error)

    def test_error_in_the_middle(self):
        with self.assertRaises(ollama.ResponseError):
            for _ in client.chat(SCRIPTED, user("break internal"), stream=True):
                pass

    def test_full_queue(self):
        lines = client.chat(NARROW, user("endless"), stream=True)
        next(lines)
        with self.assertRaises(ollama.ResponseError) as caught:
            client.chat(NARROW, user("text"))
        self.assertEqual(caught.exception.status_code, 429)
        lines.close()

    def test_cancel(self):
        prompt, mark = until_cancelled("ollama-python")
        lines = client.chat(SCRIPTED, user(prompt), stream=True)
        next(lines)
        since = time.time()
        lines.close()
        self.assertCancelled(mark, since)

    def test_unicode(self):
        text = "größer 日本 🎬 \u0000 \\ \" </script>"
        self.assertEqual(client.chat(SCRIPTED, user(text)).message.content, text)
