"""openai-python's responses against the gateway, and the cases of openresponses' compliance tests.

Those tests are no package: their cases are here, with the models of the package openresponses-types, which are made of
the same specification, in place of their own.
"""

import json
import time
import urllib.request
from typing import Literal

import openai
import openresponses_types as specified
import openresponses_types.types as events_of
import pydantic

from common import (GREET, GREETING, KEY, NARROW, SCHEMA, SCRIPTED, STRUCTURED, TINY, TOO_LONG, TOOL, V1, Case,
                    until_cancelled)

client = openai.OpenAI(base_url=V1, api_key=KEY, max_retries=0, timeout=30)
create = client.responses.create


class Person(pydantic.BaseModel):
    model_config = {"extra": "forbid"}
    name: Literal["Ada", "Grace"]
    age: int = pydantic.Field(ge=0, le=99)


def flat(tool):
    """A tool of chats as one of responses."""
    return {"type": "function", **tool["function"]}


WEATHER = flat(TOOL)


class Responses(Case):
    def test_text(self):
        answer = create(model=SCRIPTED, input="text")
        self.assertEqual((answer.output_text, answer.status, answer.error), (GREETING, "completed", None))
        self.assertTrue(answer.id.startswith("resp_") and answer.output[0].id.startswith("msg_"))
        self.assertEqual(answer.usage.total_tokens, answer.usage.input_tokens + answer.usage.output_tokens)
        self.assertEqual(answer.usage.input_tokens_details.cached_tokens, 2)
        self.assertIs(answer.store, False)

    def test_stream(self):
        events = list(create(model=SCRIPTED, input="text", stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual([e.type for e in events[:4]], ["response.created", "response.in_progress",
                                                        "response.output_item.added", "response.content_part.added"])
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), GREETING)
        self.assertEqual((events[-1].type, events[-1].response.output_text), ("response.completed", GREETING))
        self.assertEqual(len({e.item_id for e in events if hasattr(e, "item_id")}), 1)
        with client.responses.stream(model=SCRIPTED, input="text") as stream:
            self.assertEqual(stream.get_final_response().output_text, GREETING)

    def test_pings_in_a_silent_stream(self):
        events = create(model=SCRIPTED, input="slow", stream=True)
        self.assertEqual("".join(getattr(e, "delta", "") for e in events), "one two three")

    def test_reasoning(self):
        answer = create(model=SCRIPTED, input="think", reasoning={"effort": "low"})
        thought, said = answer.output
        self.assertEqual((thought.type, thought.content[0].text, said.content[0].text),
                         ("reasoning", "two and two", "four"))
        self.assertEqual(answer.usage.output_tokens_details.reasoning_tokens, 2)
        events = list(create(model=SCRIPTED, input="think", stream=True))
        self.assertEqual("".join(e.delta for e in events if e.type == "response.reasoning_text.delta"), "two and two")

    def test_turns_with_tools(self):
        items = [{"role": "user", "content": "calls"}]
        answer = create(model=SCRIPTED, input=items, tools=[WEATHER])
        self.assertEqual([json.loads(c.arguments)["city"] for c in answer.output], ["Zürich", "Bern"])
        items += answer.output
        for call in answer.output:
            items.append({"type": "function_call_output", "call_id": call.call_id,
                          "output": f"{call.call_id}: 7 degrees"})
        answer = create(model=SCRIPTED, input=items, tools=[WEATHER])
        self.assertEqual(answer.output_text, "call_2: 7 degrees")

    def test_turns_reach_the_generator(self):
        first = create(model=SCRIPTED, input="think")
        got = self.request(instructions="be terse", before=[{"role": "user", "content": "think"}, *first.output])
        self.assertEqual([(m["role"], m["content"], m.get("reasoning")) for m in got["Messages"]],
                         [("system", "be terse", None), ("user", "think", None), ("assistant", "four", "two and two"),
                          ("user", "request", None)])

    def test_tools_streamed(self):
        with client.responses.stream(model=SCRIPTED, input="calls", tools=[WEATHER]) as stream:
            events = list(stream)
            final = stream.get_final_response()
        self.assertTrue(any(e.type == "response.function_call_arguments.delta" and e.snapshot for e in events))
        self.assertEqual([(c.call_id, c.name, c.arguments) for c in final.output],
                         [("call_1", "get_weather", '{"city": "Zürich"}'),
                          ("call_2", "get_weather", '{"city": "Bern"}')])

    def test_required_tool_of_the_embedded_model(self):
        fields = {"model": TINY, "tools": [flat(GREET)], "extra_body": {"seed": 1}, "input": "JULIET:"}
        whole, = create(tool_choice="required", parallel_tool_calls=False, **fields).output
        self.assertPerson(json.loads(whole.arguments))
        with client.responses.stream(tool_choice="required", parallel_tool_calls=False, **fields) as stream:
            streamed, = stream.get_final_response().output
        self.assertEqual(streamed.arguments, whole.arguments)

    def request(self, before=(), **fields):
        """The request as the generator got it."""
        answer = create(model=SCRIPTED, input=[*before, {"role": "user", "content": "request"}], **fields)
        return json.loads(answer.output_text)

    def test_fields_reach_the_generator(self):
        got = self.request(temperature=0.5, top_p=0.9, max_output_tokens=300, top_logprobs=2, tools=[WEATHER],
                           tool_choice={"type": "function", "name": "get_weather"}, parallel_tool_calls=False,
                           reasoning={"effort": "high"}, extra_body={"top_k": 5, "seed": 7, "stop": ["a"]})
        want = {"Temperature": 0.5, "TopP": 0.9, "MaxTokens": 300, "Logprobs": 2, "ToolName": "get_weather", "TopK": 5,
                "ParallelToolCalls": False, "Seed": 7, "Stop": ["a"], "Template": {"enable_thinking": True,
                                                                            "reasoning_effort": "high"}}
        self.assertEqual({name: got[name] for name in want}, want)
        self.assertEqual(json.loads(got["Tools"]), [TOOL])

    def test_json_schema(self):
        form = {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}
        answer = create(model=STRUCTURED, input="person", text={"format": form}, extra_body={"seed": 1})
        self.assertPerson(json.loads(answer.output_text))
        fields = {"model": STRUCTURED, "input": "person", "text_format": Person, "extra_body": {"seed": 1}}
        parsed = client.responses.parse(**fields).output_parsed
        self.assertIsInstance(parsed, Person)
        with client.responses.stream(**fields) as stream:
            self.assertEqual(stream.get_final_response().output_parsed, parsed)
        answer = create(model=STRUCTURED, input="person", text={"format": {"type": "json_object"}},
                        max_output_tokens=200, extra_body={"seed": 1})
        self.assertTrue(answer.output_text.startswith("{"))

    def test_length(self):
        answer = create(model=TINY, input="ROMEO:", max_output_tokens=8, extra_body={"seed": 2})
        self.assertEqual((answer.status, answer.incomplete_details.reason, answer.usage.output_tokens),
                         ("incomplete", "max_output_tokens", 8))
        events = list(create(model=TINY, input="ROMEO:", max_output_tokens=8, stream=True, extra_body={"seed": 2}))
        self.assertEqual((events[-1].type, events[-1].response.output_text),
                         ("response.incomplete", answer.output_text))

    def test_count_tokens(self):
        fields = {"model": TINY, "instructions": "be terse", "input": "ROMEO:", "tools": [flat(GREET)]}
        counted = client.responses.input_tokens.count(**fields).input_tokens
        self.assertEqual(counted, create(max_output_tokens=1, **fields).usage.input_tokens)

    def test_logprobs(self):
        answer = create(model=TINY, input="ROMEO:", max_output_tokens=5, top_logprobs=3, temperature=0,
                        include=["message.output_text.logprobs"])
        tokens = answer.output[0].content[0].logprobs
        self.assertEqual("".join(t.token for t in tokens), answer.output_text)
        self.assertTrue(all(len(t.top_logprobs) == 3 for t in tokens))

    def test_errors(self):
        for error, fields in (
            (openai.NotFoundError, {"model": "gpt-9", "input": "text"}),
            (openai.BadRequestError, {"model": TINY, "input": TOO_LONG}),
            (openai.BadRequestError, {"model": SCRIPTED, "input": []}),
            (openai.BadRequestError, {"model": SCRIPTED, "input": "text", "previous_response_id": "resp_1"}),
            (openai.BadRequestError, {"model": SCRIPTED, "input": "text", "conversation": "conv_1"}),
            (openai.BadRequestError, {"model": SCRIPTED, "input": "text", "background": True}),
            (openai.BadRequestError, {"model": SCRIPTED, "input": "text", "tools": [{"type": "web_search"}]}),
            (openai.InternalServerError, {"model": SCRIPTED, "input": "refuse internal"}),
        ):
            with self.assertRaises(error) as caught:
                create(**fields)
            self.assertTrue(caught.exception.body["message"])
        with self.assertRaises(openai.NotFoundError):
            client.responses.retrieve("resp_1")
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="wrong").responses.create(model=SCRIPTED, input="text")

    def test_full_queue(self):
        with create(model=NARROW, input="endless", stream=True) as stream:
            next(iter(stream))
            with self.assertRaises(openai.RateLimitError):
                create(model=NARROW, input="text")

    def test_error_in_the_middle(self):
        events = []
        with self.assertRaises(openai.APIError) as caught:
            for event in create(model=SCRIPTED, input="break internal", stream=True):
                events.append(event)
        self.assertEqual("".join(getattr(e, "delta", "") for e in events), "these words come first")
        self.assertEqual((events[-1].type, events[-1].response.error.code), ("response.failed", "internal"))
        self.assertEqual(caught.exception.code, "internal")

    def test_cancel(self):
        prompt, mark = until_cancelled("responses")
        stream = create(model=SCRIPTED, input=prompt, stream=True)
        for _, _ in zip(range(8), stream):
            pass
        since = time.time()
        stream.close()
        self.assertCancelled(mark, since)


# The models of the events of a stream by their types. The specification names those of reasoning otherwise than OpenAI.
EVENTS = {
    "response.created": "ResponseCreated",
    "response.in_progress": "ResponseInProgress",
    "response.completed": "ResponseCompleted",
    "response.failed": "ResponseFailed",
    "response.incomplete": "ResponseIncomplete",
    "response.output_item.added": "ResponseOutputItemAdded",
    "response.output_item.done": "ResponseOutputItemDone",
    "response.content_part.added": "ResponseContentPartAdded",
    "response.content_part.done": "ResponseContentPartDone",
    "response.output_text.delta": "ResponseOutputTextDelta",
    "response.output_text.done": "ResponseOutputTextDone",
    "response.function_call_arguments.delta": "ResponseFunctionCallArgumentsDelta",
    "response.function_call_arguments.done": "ResponseFunctionCallArgumentsDone",
    "error": "Error",
}


class Compliance(Case):
    def post(self, fields):
        """An answer as it was sent."""
        request = urllib.request.Request(V1 + "/responses", json.dumps({"model": SCRIPTED, **fields}).encode(),
                                         {"Authorization": "Bearer " + KEY, "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read().decode()

    def assertSpecified(self, response):
        return specified.ResponseResource.model_validate(response)

    def ask(self, items, **fields):
        """The whole response to items, which are checked, and so are those at the end of a stream of the same."""
        whole = json.loads(self.post({"input": items, **fields}))
        self.assertSpecified(whole)
        streamed = self.stream(items, **fields)[-1]["response"]
        self.assertSpecified(streamed)
        self.assertEqual([item["type"] for item in streamed["output"]], [item["type"] for item in whole["output"]])
        return whole

    def stream(self, items, **fields):
        """The events of a streamed response, which are checked."""
        events = []
        for block in self.post({"input": items, "stream": True, **fields}).split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
            if "data" not in lines:
                continue
            event = json.loads(lines["data"])
            self.assertEqual(lines["event"], event["type"])
            getattr(events_of, EVENTS[event["type"]] + "StreamingEvent").model_validate(event)
            events.append(event)
        return events

    def test_basic_text_response(self):
        answer = self.ask([{"type": "message", "role": "user", "content": "Say hello in exactly 3 words."}])
        self.assertEqual((answer["status"], len(answer["output"])), ("completed", 1))

    def test_system_prompt(self):
        answer = self.ask([{"type": "message", "role": "system", "content": "You are a pirate."},
                           {"type": "message", "role": "user", "content": "Say hello."}])
        self.assertEqual((answer["status"], len(answer["output"])), ("completed", 1))

    def test_tool_calling(self):
        items = [{"type": "message", "role": "user", "content": "call"}]
        answer = self.ask(items, tools=[WEATHER])
        self.assertEqual([item["type"] for item in answer["output"]], ["function_call"])
        kinds = [(e["type"], e.get("item", {}).get("type")) for e in self.stream(items, tools=[WEATHER])]
        for want in (("response.output_item.added", "function_call"), ("response.output_item.done", "function_call"),
                     ("response.function_call_arguments.delta", None), ("response.function_call_arguments.done", None)):
            self.assertIn(want, kinds)

    def test_image_input_is_refused(self):
        image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.ask([{"type": "message", "role": "user", "content": [image]}])
        self.assertEqual(caught.exception.code, 400)

    def test_multi_turn(self):
        answer = self.ask([{"type": "message", "role": "user", "content": "My name is Alice."},
                           {"type": "message", "role": "assistant", "content": "Hello Alice! How can I help you?"},
                           {"type": "message", "role": "user", "content": "What is my name?"}])
        self.assertEqual((answer["status"], len(answer["output"])), ("completed", 1))

    def test_the_failure_of_a_stream(self):
        events = self.stream([{"type": "message", "role": "user", "content": "break internal"}])
        self.assertEqual([e["type"] for e in events[-2:]], ["response.failed", "error"])
        self.assertSpecified(events[-2]["response"])

    def test_reasoning_and_length(self):
        answer = self.assertSpecified(json.loads(self.post({"input": "think", "reasoning": {"effort": "low"}})))
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        answer = self.ask([{"role": "user", "content": "text"}], max_output_tokens=1)
        self.assertEqual(answer["status"], "incomplete")
