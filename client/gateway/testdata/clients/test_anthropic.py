"""anthropic-sdk-python against the gateway."""

import json
import time
from typing import Literal

import anthropic
import pydantic

from common import (GATEWAY, GREET, GREETING, KEY, NARROW, SCHEMA, SCRIPTED, STRUCTURED, TINY, TOO_LONG, TOOL, Case,
                    until_cancelled, user)

client = anthropic.Anthropic(base_url=GATEWAY, api_key=KEY, max_retries=0, timeout=30)


class Person(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: Literal["Ada", "Grace"]
    age: Literal[36, 37]  # a bound such as le=99 becomes a part of the description


def own(tool):
    """A tool of OpenAI's in Anthropic's form."""
    function = tool["function"]
    return {"name": function["name"], "description": function["description"], "input_schema": function["parameters"]}


def create(**fields):
    return client.messages.create(**{"model": SCRIPTED, "max_tokens": 5000, **fields})


def stream(**fields):
    return client.messages.stream(**{"model": SCRIPTED, "max_tokens": 5000, **fields})


class Anthropic(Case):
    def test_message(self):
        answer = create(messages=user("text"))
        self.assertEqual([(b.type, b.text) for b in answer.content], [("text", GREETING)])
        self.assertEqual((answer.role, answer.model, answer.stop_reason), ("assistant", SCRIPTED, "end_turn"))
        self.assertEqual((answer.usage.input_tokens, answer.usage.cache_read_input_tokens), (1, 2))
        self.assertTrue(answer._request_id.startswith("req_"))

    def test_models(self):
        self.assertEqual([m.id for m in client.models.list()], [SCRIPTED, NARROW, TINY])
        self.assertEqual(client.models.retrieve(TINY).id, TINY)

    def test_key_and_version_of_older_clients(self):
        other = anthropic.Anthropic(base_url=GATEWAY, api_key=None, max_retries=0,
                                    default_headers={"X-Api-Key": KEY, "anthropic-version": "2023-06-01"})
        self.assertTrue(other.messages.create(model=SCRIPTED, max_tokens=9, messages=user("text")).content)

    def test_stream(self):
        with stream(messages=user("text")) as events:
            self.assertEqual("".join(events.text_stream), GREETING)
            final = events.get_final_message()
        self.assertEqual((final.content[0].text, final.stop_reason), (GREETING, "end_turn"))
        self.assertEqual((final.usage.input_tokens, final.usage.cache_read_input_tokens), (1, 2))
        self.assertGreater(final.usage.output_tokens, 1)
        kinds = [e.type for e in create(messages=user("text"), stream=True)]
        self.assertEqual(kinds[:2] + kinds[-3:], ["message_start", "content_block_start", "content_block_stop",
                                                  "message_delta", "message_stop"])

    def test_pings_in_a_silent_stream(self):
        with stream(messages=user("slow")) as events:
            self.assertEqual("".join(events.text_stream), "one two three")

    def test_thinking(self):
        thought, said = create(messages=user("think"), thinking={"type": "enabled", "budget_tokens": 1024}).content
        self.assertEqual((thought.thinking, said.text), ("two and two", "four"))
        self.assertTrue(thought.signature)
        with stream(messages=user("think"), thinking={"type": "adaptive"}) as events:
            streamed = events.get_final_message().content
        self.assertEqual([b.to_dict() for b in streamed], [b.to_dict() for b in (thought, said)])
        got = self.request(before=[*user("think"), {"role": "assistant", "content": [thought, said]}])
        self.assertEqual(got["Messages"][1], {"role": "assistant", "content": "four", "reasoning": "two and two"})

    def test_turns_with_tools(self):
        messages = user("calls")
        answer = create(messages=messages, tools=[own(TOOL)])
        self.assertEqual(answer.stop_reason, "tool_use")
        self.assertEqual([(b.id, b.name, b.input) for b in answer.content],
                         [("call_1", "get_weather", {"city": "Zürich"}), ("call_2", "get_weather", {"city": "Bern"})])
        with stream(messages=messages, tools=[own(TOOL)]) as events:
            kinds = [e.type for e in events]
            self.assertEqual(events.get_final_message().content, answer.content)
        self.assertIn("input_json", kinds)
        results = [{"type": "tool_result", "tool_use_id": b.id, "content": f"{b.id}: 7 degrees"}
                   for b in answer.content]
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": results}]
        self.assertEqual(create(messages=messages, tools=[own(TOOL)]).content[0].text, "call_2: 7 degrees")

    def test_the_clients_own_runner_of_tools(self):
        @anthropic.beta_tool
        def get_weather(city: str) -> str:
            """The weather in a city

            Args:
                city: the city
            """
            return f"7 degrees in {city}"

        runner = client.beta.messages.tool_runner(model=SCRIPTED, max_tokens=500, tools=[get_weather],
                                                  messages=user("call"))
        self.assertEqual(runner.until_done().content[0].text, "7 degrees in Zürich")

    def test_required_tool_of_the_embedded_model(self):
        fields = {"model": TINY, "max_tokens": 300, "tools": [own(GREET)], "messages": user("JULIET:"),
                  "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "extra_body": {"seed": 1}}
        whole, = create(**fields).content
        self.assertPerson(whole.input)
        with stream(**fields) as events:
            streamed, = events.get_final_message().content
        self.assertEqual(streamed.input, whole.input)

    def request(self, before=(), **fields):
        """The request as the generator got it."""
        return json.loads(create(messages=[*before, *user("request")], **fields).content[0].text)

    def test_fields_reach_the_generator(self):
        got = self.request(system=[{"type": "text", "text": "be terse", "cache_control": {"type": "ephemeral"}}],
                           stop_sequences=["a", "b"], tools=[own(TOOL)], output_config={"effort": "low"},
                           tool_choice={"type": "tool", "name": "get_weather"}, metadata={"user_id": "u"},
                           extra_body={"temperature": 0.5, "top_p": 0.9, "top_k": 5})
        want = {"Temperature": 0.5, "TopP": 0.9, "TopK": 5, "Stop": ["a", "b"], "MaxTokens": 5000,
                "ToolName": "get_weather", "Template": {"enable_thinking": False, "reasoning_effort": "low"}}
        self.assertEqual({name: got[name] for name in want}, want)
        self.assertEqual(json.loads(got["Tools"]), [TOOL])
        self.assertEqual(got["Messages"][0], {"role": "system", "content": "be terse"})

    def test_json_schema(self):
        fields = {"model": STRUCTURED, "max_tokens": 300, "messages": user("person"), "extra_body": {"seed": 1}}
        form = {"format": {"type": "json_schema", "schema": SCHEMA}}
        self.assertPerson(json.loads(create(output_config=form, **fields).content[0].text))
        parsed = client.messages.parse(output_format=Person, **fields).parsed_output
        self.assertIsInstance(parsed, Person)
        with client.messages.stream(output_format=Person, **fields) as events:
            self.assertEqual(events.get_final_message().parsed_output, parsed)

    def test_reasons_to_stop(self):
        fields = {"model": TINY, "messages": user("ROMEO:"), "extra_body": {"seed": 5}}
        answer = create(max_tokens=12, **fields)
        text = answer.content[0].text
        self.assertEqual((answer.stop_reason, answer.usage.output_tokens), ("max_tokens", 12))
        end = text[5:8]
        for cut in (create(max_tokens=12, stop_sequences=["not there", end], **fields),
                    self.final(max_tokens=12, stop_sequences=["not there", end], **fields)):
            self.assertEqual((cut.content[0].text, cut.stop_reason, cut.stop_sequence),
                             (text[: text.index(end)], "stop_sequence", end))

    def final(self, **fields):
        with stream(**fields) as events:
            return events.get_final_message()

    def test_errors(self):
        for error, kind, fields in (
            (anthropic.NotFoundError, "not_found_error", {"model": "claude-9"}),
            (anthropic.BadRequestError, "invalid_request_error", {"model": TINY, "messages": user(TOO_LONG)}),
            (anthropic.BadRequestError, "invalid_request_error", {"messages": []}),
            (anthropic.BadRequestError, "invalid_request_error",
             {"messages": user("text") + [{"role": "assistant", "content": "Well"}]}),
            (anthropic.BadRequestError, "invalid_request_error",
             {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            (anthropic.InternalServerError, "api_error", {"messages": user("refuse internal")}),
        ):
            with self.assertRaises(error) as caught:
                create(**{"messages": user("text"), **fields})
            self.assertEqual(caught.exception.body["error"]["type"], kind)
            self.assertTrue(caught.exception.request_id)
        with self.assertRaises(anthropic.AuthenticationError):
            client.with_options(api_key="wrong").messages.create(model=SCRIPTED, max_tokens=9, messages=user("text"))

    def test_count_tokens(self):
        fields = {"model": TINY, "system": "be terse", "messages": user("ROMEO:"), "tools": [own(GREET)]}
        counted = client.messages.count_tokens(**fields).input_tokens
        usage = create(max_tokens=1, **fields).usage
        self.assertEqual(counted, usage.input_tokens + usage.cache_read_input_tokens)
        self.assertEqual(client.beta.messages.count_tokens(**fields).input_tokens, counted)

    def test_full_queue(self):
        with stream(model=NARROW, max_tokens=100000, messages=user("endless")) as events:
            next(iter(events))
            with self.assertRaises(anthropic.RateLimitError):
                create(model=NARROW, messages=user("text"))

    def test_error_in_the_middle(self):
        words = []
        with self.assertRaises(anthropic.APIStatusError) as caught, stream(messages=user("break internal")) as events:
            words.extend(events.text_stream)
        self.assertEqual("".join(words), "these words come first")
        self.assertEqual(caught.exception.body["error"]["type"], "api_error")

    def test_cancel(self):
        prompt, mark = until_cancelled("anthropic")
        with stream(max_tokens=100000, messages=user(prompt)) as events:
            for _, _ in zip(range(5), events.text_stream):
                pass
            since = time.time()
        self.assertCancelled(mark, since)

    def test_unicode(self):
        text = "größer 日本 🎬 \u0000 \\ \" </script>"
        self.assertEqual(create(messages=user(text)).content[0].text, text)
