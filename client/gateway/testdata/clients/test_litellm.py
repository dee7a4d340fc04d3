"""LiteLLM against the gateway."""

import json
import os
import time

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up of prices on the network

import litellm  # noqa: E402

from common import (GATEWAY, GREETING, KEY, NARROW, RESPONSE_FORMAT, SCRIPTED, STRUCTURED, TINY, TOO_LONG, TOOL, V1,
                    Case, until_cancelled, user)

litellm.telemetry = False
litellm.suppress_debug_info = True


def ask(model, text, key=KEY, **fields):
    messages = text if isinstance(text, list) else user(text)
    return litellm.completion(model="openai/" + model, messages=messages, api_base=V1, api_key=key, max_retries=0,
                              timeout=30, **fields)


class LiteLLM(Case):
    def test_models(self):
        names = litellm.get_valid_models(check_provider_endpoint=True, custom_llm_provider="openai", api_key=KEY,
                                         api_base=GATEWAY)
        self.assertTrue({SCRIPTED, TINY} <= {name.removeprefix("openai/") for name in names}, names)

    def test_chat(self):
        answer = ask(SCRIPTED, "text")
        self.assertEqual(answer.choices[0].message.content, GREETING)
        self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 2)

    def test_stream(self):
        chunks = list(ask(SCRIPTED, "text", stream=True, stream_options={"include_usage": True}))
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), GREETING)
        self.assertGreater(chunks[-1].usage.completion_tokens, 1)

    def test_pings_in_a_silent_stream(self):
        chunks = ask(SCRIPTED, "slow", stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), "one two three")

    def test_reasoning(self):
        message = ask(SCRIPTED, "think").choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("two and two", "four"))

    def test_tools(self):
        for stream in False, True:
            with self.subTest(stream=stream):
                messages = user("calls")
                answer = ask(SCRIPTED, messages, tools=[TOOL], stream=stream)
                if stream:
                    answer = litellm.stream_chunk_builder(list(answer))
                message = answer.choices[0].message
                self.assertEqual([json.loads(c.function.arguments)["city"] for c in message.tool_calls],
                                 ["Zürich", "Bern"])
                self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
                messages.append(message.model_dump())
                for call in message.tool_calls:
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": "7 degrees"})
                self.assertEqual(ask(SCRIPTED, messages, tools=[TOOL]).choices[0].message.content, "7 degrees")

    def test_json_schema(self):
        answer = ask(STRUCTURED, "person", response_format=RESPONSE_FORMAT, seed=1)
        self.assertPerson(json.loads(answer.choices[0].message.content))

    def test_errors(self):
        for error, call in (
            (litellm.NotFoundError, lambda: ask("gpt-9", "text")),
            (litellm.AuthenticationError, lambda: ask(SCRIPTED, "text", key="wrong")),
            (litellm.ContextWindowExceededError, lambda: ask(TINY, TOO_LONG)),
            (litellm.InternalServerError, lambda: ask(SCRIPTED, "refuse internal")),
            (litellm.exceptions.MidStreamFallbackError, lambda: list(ask(SCRIPTED, "break internal", stream=True))),
        ):
            with self.assertRaises(error):
                call()

    def test_full_queue(self):
        stream = ask(NARROW, "endless", stream=True)
        next(stream)
        with self.assertRaises(litellm.RateLimitError):
            ask(NARROW, "text")
        stream.completion_stream.close()

    def test_cancel(self):
        prompt, mark = until_cancelled("litellm")
        stream = ask(SCRIPTED, prompt, stream=True)
        next(stream)
        since = time.time()
        stream.completion_stream.close()
        self.assertCancelled(mark, since)

    def test_logprobs_n_seed_stop(self):
        first = ask(TINY, "ROMEO:", seed=5, max_tokens=12, n=2, logprobs=True, top_logprobs=2)
        texts = [c.message.content for c in first.choices]
        self.assertEqual("".join(t.token for t in first.choices[0].logprobs.content), texts[0])
        self.assertNotEqual(texts[0], texts[1])
        self.assertEqual(ask(TINY, "ROMEO:", seed=5, max_tokens=12).choices[0].message.content, texts[0])
        end = texts[0][5:8]
        cut = ask(TINY, "ROMEO:", seed=5, max_tokens=12, stop=[end]).choices[0]
        self.assertEqual((cut.message.content, cut.finish_reason), (texts[0][: texts[0].index(end)], "stop"))

    def test_completions(self):
        def complete(**fields):
            return litellm.text_completion(model="text-completion-openai/" + TINY, prompt="ROMEO:", max_tokens=8,
                                           seed=2, api_base=V1, api_key=KEY, max_retries=0, **fields)

        text = complete().choices[0].text
        self.assertTrue(text)
        self.assertEqual("".join(c.choices[0].text or "" for c in complete(stream=True)), text)

    def test_unicode(self):
        text = "größer 日本 🎬 \u0000 \\ \" </script>"
        self.assertEqual(ask(SCRIPTED, text).choices[0].message.content, text)
