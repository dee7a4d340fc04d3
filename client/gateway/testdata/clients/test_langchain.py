"""langchain-openai against the gateway."""

import time

import openai
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI

from common import (GREETING, KEY, NARROW, SCHEMA, SCRIPTED, STRUCTURED, TINY, TOO_LONG, V1, Case, until_cancelled)


def model(name, key=KEY, **fields):
    return ChatOpenAI(model=name, base_url=V1, api_key=key, max_retries=0, timeout=30, **fields)


@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return f"7 degrees in {city}"


class LangChain(Case):
    def test_chat(self):
        answer = model(SCRIPTED).invoke("text")
        self.assertEqual(answer.content, GREETING)
        self.assertEqual(answer.usage_metadata["input_token_details"]["cache_read"], 2)

    def test_stream(self):
        chunks = list(model(SCRIPTED, stream_usage=True).stream("text"))
        self.assertEqual("".join(c.content for c in chunks), GREETING)
        self.assertGreater(sum(c.usage_metadata["output_tokens"] for c in chunks if c.usage_metadata), 1)

    def test_pings_in_a_silent_stream(self):
        self.assertEqual("".join(c.content for c in model(SCRIPTED).stream("slow")), "one two three")

    def test_batch(self):
        self.assertEqual([a.content for a in model(SCRIPTED).batch(["one", "two", "three"])], ["one", "two", "three"])

    def test_tools(self):
        for ask in ("invoke", "stream"):
            with self.subTest(ask):
                bound = model(SCRIPTED).bind_tools([get_weather])
                messages = [HumanMessage("calls")]
                answer = bound.invoke(messages) if ask == "invoke" else sum_of(bound.stream(messages))
                self.assertEqual([c["args"] for c in answer.tool_calls], [{"city": "Zürich"}, {"city": "Bern"}])
                messages.append(answer)
                for call in answer.tool_calls:
                    messages.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
                self.assertEqual(bound.invoke(messages).content, "7 degrees in Bern")

    def test_json_schema(self):
        schema = SCHEMA | {"title": "person", "description": "a person"}
        structured = model(STRUCTURED, seed=1).with_structured_output(schema, method="json_schema")
        self.assertPerson(structured.invoke("person"))

    def test_errors(self):
        for error, call in (
            (openai.NotFoundError, lambda: model("gpt-9").invoke("text")),
            (openai.AuthenticationError, lambda: model(SCRIPTED, key="wrong").invoke("text")),
            (openai.BadRequestError, lambda: model(TINY).invoke(TOO_LONG)),
            (openai.APIError, lambda: list(model(SCRIPTED).stream("break internal"))),
        ):
            with self.assertRaises(error):
                call()

    def test_full_queue(self):
        stream = model(NARROW).stream("endless")
        next(stream)
        with self.assertRaises(openai.RateLimitError):
            model(NARROW).invoke("text")
        stream.close()

    def test_cancel(self):
        prompt, mark = until_cancelled("langchain")
        stream = model(SCRIPTED).stream(prompt)
        next(stream)
        since = time.time()
        stream.close()
        self.assertCancelled(mark, since)

    def test_logprobs_n_seed_stop(self):
        def ask(**fields):
            return model(TINY, seed=5, max_tokens=12, **fields)

        first = ask(logprobs=True, top_logprobs=2).invoke("ROMEO:")
        tokens = first.response_metadata["logprobs"]["content"]
        self.assertEqual("".join(t["token"] for t in tokens), first.content)
        self.assertEqual(ask().invoke("ROMEO:").content, first.content)
        two = ask(n=2).generate([[HumanMessage("ROMEO:")]]).generations[0]
        self.assertEqual(two[0].text, first.content)
        self.assertNotEqual(two[1].text, first.content)
        end = first.content[5:8]
        self.assertEqual(ask(stop=[end]).invoke("ROMEO:").content, first.content[: first.content.index(end)])

    def test_completions(self):
        llm = OpenAI(model=TINY, base_url=V1, api_key=KEY, max_retries=0, seed=2, max_tokens=8)
        text = llm.invoke("ROMEO:")
        self.assertEqual("".join(llm.stream("ROMEO:")), text)
        self.assertTrue(text)

    def test_unicode(self):
        text = "größer 日本 🎬 \u0000 \\ \" </script>"
        self.assertEqual(model(SCRIPTED).invoke(text).content, text)


def sum_of(chunks):
    """The message that chunks add up to."""
    whole = next(chunks)
    for chunk in chunks:
        whole += chunk
    return whole
