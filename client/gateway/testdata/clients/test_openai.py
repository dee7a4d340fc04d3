"""openai-python against the gateway."""

import asyncio
import json
import time
from typing import Literal

import openai
import pydantic

from common import (GREET, GREETING, KEY, NARROW, RESPONSE_FORMAT, SCRIPTED, STRUCTURED, TINY, TOO_LONG, TOOL, V1, Case,
                    until_cancelled, user)

client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=30)
chat = client.chat.completions


class Person(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: Literal["Ada", "Grace"]
    age: int = pydantic.Field(ge=0, le=99)


class OpenAIPython(Case):
    def test_models(self):
        self.assertEqual([m.id for m in client.models.list()], [SCRIPTED, NARROW, TINY])
        self.assertEqual(client.models.retrieve(TINY).id, TINY)

    def test_chat(self):
        answer = chat.create(model=SCRIPTED, messages=user("text"))
        self.assertEqual(answer.choices[0].message.content, GREETING)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 2)

    def test_latest_is_the_model(self):
        self.assertTrue(chat.create(model=SCRIPTED + ":latest", messages=user("text")).choices)

    def test_stream(self):
        chunks = list(chat.create(model=SCRIPTED, messages=user("text"), stream=True))
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), GREETING)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason], ["stop"])
        self.assertTrue(all(c.usage is None for c in chunks))
        self.assertEqual(len({c.id for c in chunks}), 1)

    def test_stream_with_usage(self):
        chunks = list(chat.create(model=SCRIPTED, messages=user("text"), stream=True,
                                  stream_options={"include_usage": True}))
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.completion_tokens, 1)
        self.assertTrue(all(c.usage is None and c.choices for c in chunks[:-1]))

    def test_pings_in_a_silent_stream(self):
        chunks = chat.create(model=SCRIPTED, messages=user("slow"), stream=True)
        self.assertEqual("".join(c.choices[0].delta.content or "" for c in chunks), "one two three")

    def test_reasoning_apart(self):
        message = chat.create(model=SCRIPTED, messages=user("think")).choices[0].message
        self.assertEqual((message.reasoning_content, message.content), ("two and two", "four"))
        self.assertEqual(message.reasoning, message.reasoning_content)
        deltas = [c.choices[0].delta for c in chat.create(model=SCRIPTED, messages=user("think"), stream=True)]
        self.assertEqual("".join(getattr(d, "reasoning_content", "") for d in deltas), "two and two")
        self.assertEqual("".join(d.content or "" for d in deltas), "four")

    def test_tools(self):
        messages = user("calls")
        answer = chat.create(model=SCRIPTED, messages=messages, tools=[TOOL]).choices[0]
        self.assertEqual(answer.finish_reason, "tool_calls")
        self.assertIsNone(answer.message.content)
        cities = [json.loads(c.function.arguments)["city"] for c in answer.message.tool_calls]
        self.assertEqual(cities, ["Zürich", "Bern"])
        messages.append(answer.message)
        for call in answer.message.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"{call.id}: 7 degrees"})
        answer = chat.create(model=SCRIPTED, messages=messages, tools=[TOOL]).choices[0]
        self.assertEqual((answer.finish_reason, answer.message.content), ("stop", "call_2: 7 degrees"))

    def test_tools_streamed(self):
        with chat.stream(model=SCRIPTED, messages=user("calls"), tools=[TOOL]) as stream:
            events = list(stream)
            final = stream.get_final_completion().choices[0]
        self.assertTrue(any(e.type == "tool_calls.function.arguments.delta" for e in events))
        self.assertEqual([(c.id, c.function.name, c.function.arguments) for c in final.message.tool_calls],
                         [("call_1", "get_weather", '{"city": "Zürich"}'),
                          ("call_2", "get_weather", '{"city": "Bern"}')])
        self.assertEqual(final.finish_reason, "tool_calls")

    def test_tool_choice(self):
        for choice, sent in (("none", ("none", None)), ("required", ("required", None)),
                             ({"type": "function", "function": {"name": "get_weather"}}, (None, "get_weather"))):
            got = self.request(tools=[TOOL], tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual((got["ToolChoice"], got["ToolName"]), sent)
            self.assertIs(got["ParallelToolCalls"], False)
            self.assertEqual(json.loads(got["Tools"])[0]["function"]["name"], "get_weather")

    def test_required_tool_of_the_embedded_model(self):
        messages = user("JULIET:")
        fields = {"model": TINY, "tools": [GREET], "seed": 1}
        whole = chat.create(messages=messages, tool_choice="required", parallel_tool_calls=False, **fields).choices[0]
        self.assertEqual((whole.finish_reason, whole.message.content), ("tool_calls", None))
        call, = whole.message.tool_calls
        self.assertPerson(json.loads(call.function.arguments))
        with chat.stream(messages=messages, tool_choice="required", parallel_tool_calls=False, **fields) as stream:
            streamed, = stream.get_final_completion().choices[0].message.tool_calls
        self.assertEqual(streamed.function.arguments, call.function.arguments)
        messages += [whole.message, {"role": "tool", "tool_call_id": call.id, "content": "She smiles."}]
        answer = chat.create(messages=messages, tool_choice="none", max_tokens=12, **fields).choices[0]
        self.assertIsNone(answer.message.tool_calls)
        self.assertTrue(answer.message.content)

    def request(self, **fields):
        """The request as the generator got it."""
        answer = chat.create(model=SCRIPTED, messages=user("request"), **fields)
        return json.loads(answer.choices[0].message.content)

    def test_fields_reach_the_generator(self):
        got = self.request(temperature=0.5, top_p=0.9, presence_penalty=0.25, frequency_penalty=-0.5, seed=7,
                           logit_bias={"17": -100}, max_completion_tokens=300, stop=["a", "b"],
                           extra_body={"top_k": 5, "min_p": 0.1})
        want = {"Temperature": 0.5, "TopP": 0.9, "PresencePenalty": 0.25, "FrequencyPenalty": -0.5, "Seed": 7,
                "LogitBias": [{"token": 17, "bias": -100}], "MaxTokens": 300, "Stop": ["a", "b"], "TopK": 5,
                "MinP": 0.1}
        self.assertEqual({name: got[name] for name in want}, want)

    def test_json_schema(self):
        answer = chat.create(model=STRUCTURED, messages=user("person"), response_format=RESPONSE_FORMAT, seed=1)
        self.assertPerson(json.loads(answer.choices[0].message.content))
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        parsed = chat.parse(model=STRUCTURED, messages=user("person"), response_format=Person, seed=1)
        self.assertIsInstance(parsed.choices[0].message.parsed, Person)
        with chat.stream(model=STRUCTURED, messages=user("person"), response_format=Person, seed=1) as stream:
            self.assertEqual(stream.get_final_completion().choices[0].message.parsed, parsed.choices[0].message.parsed)

    def test_the_schema_reaches_the_generator_as_it_was(self):
        schema = {"properties": {"z": {}, "a": {}}, "description": "ü <b>", "type": "object"}
        got = self.request(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}})
        self.assertEqual(list(json.loads(got["Format"]["JSONSchema"])["properties"]), ["z", "a"])
        self.assertTrue(self.request(response_format={"type": "json_object"})["Format"]["JSON"])

    def test_errors(self):
        for error, call in (
            (openai.NotFoundError, lambda: chat.create(model="gpt-9", messages=user("text"))),
            (openai.AuthenticationError, lambda: client.with_options(api_key="wrong").models.list()),
            (openai.BadRequestError, lambda: chat.create(model=TINY, messages=user(TOO_LONG))),
            (openai.BadRequestError, lambda: chat.create(model=TINY, messages=user("x"), temperature=-1)),
            (openai.BadRequestError, lambda: chat.create(model=TINY, messages=[])),
            (openai.InternalServerError, lambda: chat.create(model=SCRIPTED, messages=user("refuse internal"))),
        ):
            with self.assertRaises(error) as caught:
                call()
            self.assertTrue(caught.exception.body["message"])
            self.assertTrue(caught.exception.type)

    def test_codes_of_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            chat.create(model="gpt-9", messages=user("text"))
        self.assertEqual((caught.exception.code, caught.exception.param), ("model_not_found", "model"))
        self.assertIn(TINY, str(caught.exception))
        with self.assertRaises(openai.BadRequestError) as caught:
            chat.create(model=TINY, messages=user(TOO_LONG))
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_full_queue(self):
        with chat.create(model=NARROW, messages=user("endless"), stream=True) as stream:
            next(iter(stream))
            with self.assertRaises(openai.RateLimitError):
                chat.create(model=NARROW, messages=user("text"))

    def test_error_in_the_middle(self):
        words = []
        with self.assertRaises(openai.APIError) as caught:
            for chunk in chat.create(model=SCRIPTED, messages=user("break internal"), stream=True):
                words.append(chunk.choices[0].delta.content or "")
        self.assertEqual("".join(words), "these words come first")
        self.assertEqual(caught.exception.code, "internal")

    def test_cancel(self):
        prompt, mark = until_cancelled("openai-python")
        stream = chat.create(model=SCRIPTED, messages=user(prompt), stream=True)
        for _, _ in zip(range(5), stream):
            pass
        since = time.time()
        stream.close()
        self.assertCancelled(mark, since)

    def test_cancel_of_an_answer_that_is_not_streamed(self):
        prompt, mark = until_cancelled("openai-python")

        async def cancel():
            async with openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0) as c:
                await c.chat.completions.create(model=SCRIPTED, messages=user("text"))  # loads what the client needs
                task = asyncio.create_task(c.chat.completions.create(model=SCRIPTED, messages=user(prompt)))
                await asyncio.sleep(0.3)
                task.cancel()
                since = time.time()
                await asyncio.wait([task])
                return since

        self.assertCancelled(mark, asyncio.run(cancel()))

    def test_logprobs(self):
        answer = chat.create(model=TINY, messages=user("ROMEO:"), max_tokens=5, logprobs=True, top_logprobs=3,
                             temperature=0)
        content = answer.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in content), answer.choices[0].message.content)
        for t in content:
            self.assertEqual((t.token, t.logprob), (t.top_logprobs[0].token, t.top_logprobs[0].logprob))
            self.assertEqual(len(t.top_logprobs), 3)
            self.assertEqual(bytes(t.bytes).decode(), t.token)

    def test_n_and_seed(self):
        def texts(seed):
            answer = chat.create(model=TINY, messages=user("ROMEO:"), n=3, seed=seed, max_tokens=12)
            self.assertEqual([c.index for c in answer.choices], [0, 1, 2])
            return [c.message.content for c in answer.choices]

        first = texts(5)
        self.assertEqual(len(set(first)), 3)
        self.assertEqual(texts(5), first)
        self.assertNotEqual(texts(99), first)

    def test_n_streamed(self):
        texts = ["", ""]
        for chunk in chat.create(model=TINY, messages=user("ROMEO:"), n=2, seed=5, max_tokens=12, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
        whole = chat.create(model=TINY, messages=user("ROMEO:"), n=2, seed=5, max_tokens=12)
        self.assertEqual(texts, [c.message.content for c in whole.choices])

    def test_stop_and_length(self):
        def ask(**fields):
            return chat.create(model=TINY, messages=user("ROMEO:"), seed=3, max_tokens=20, **fields).choices[0]

        whole = ask()
        self.assertEqual(whole.finish_reason, "length")
        end = whole.message.content[8:12]
        cut = ask(stop=end)
        self.assertEqual(cut.finish_reason, "stop")
        self.assertEqual(cut.message.content, whole.message.content[: whole.message.content.index(end)])

    def test_completions(self):
        ask = client.completions.create
        answer = ask(model=TINY, prompt=["ROMEO:", "JULIET:"], max_tokens=8, seed=2, n=2, echo=True)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2, 3])
        for i, choice in enumerate(answer.choices):
            self.assertTrue(choice.text.startswith("ROMEO:" if i < 2 else "JULIET:"), choice.text)
        alone = ask(model=TINY, prompt="ROMEO:", max_tokens=8, seed=2, logprobs=2).choices[0]
        self.assertEqual("ROMEO:" + alone.text, answer.choices[0].text)
        self.assertEqual("".join(alone.logprobs.tokens), alone.text)
        self.assertEqual((len(alone.logprobs.token_logprobs), alone.finish_reason), (8, "length"))
        pieces = ask(model=TINY, prompt="ROMEO:", max_tokens=8, seed=2, stream=True)
        self.assertEqual("".join(p.choices[0].text for p in pieces), alone.text)

    def test_completions_of_token_ids(self):
        answer = client.completions.create(model=SCRIPTED, prompt=[1, 2, 3])
        self.assertEqual(answer.choices[0].text, "[1 2 3]")

    def test_unicode_in_a_prompt(self):
        text = "größer 日本 🎬 \u0000 \\ \" </script>"
        answer = chat.create(model=SCRIPTED, messages=user(text))
        self.assertEqual(answer.choices[0].message.content, text)

    def test_parts_and_images(self):
        parts = [{"type": "text", "text": "text"}]
        answer = chat.create(model=SCRIPTED, messages=[{"role": "user", "content": parts}])
        self.assertEqual(answer.choices[0].message.content, GREETING)
        parts.append({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}})
        with self.assertRaises(openai.BadRequestError):
            chat.create(model=SCRIPTED, messages=[{"role": "user", "content": parts}])
