"""Real clients in Python for the test that mixes them (make mixed), which says what each of them asks.

    mixed.py CLIENT

CLIENT is openai, anthropic or ollama. The first line of the output lists what the client can ask for, by kind. Then
each line of the input is a request: a number, what is asked, the model, and a number that chooses prompt and seed. Each
line of the output answers one, or says that the gateway has refused it for now and the client asks again.
"""

import json
import os
import sys
import threading
import time

GATEWAY, KEY = os.environ["REEL_GATEWAY"], os.environ["REEL_KEY"]
PATIENCE = 300  # seconds
RETRIES = 1000

PERSON = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Grace"]}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
GREET = {"type": "function", "function": {"name": "greet", "description": "Greets a person", "parameters": PERSON}}
SPEAKERS = "ROMEO", "JULIET", "NURSE", "MERCUTIO"
TEXTS = ["A rose by any other name", "would smell as sweet", "Good night, good night!"]

output = threading.Lock()
local = threading.local()  # the number of the thread's request, and how often it was sent and answered


def say(**fields):
    with output:
        print(json.dumps(fields), flush=True)


def prompt(n):
    return f"{SPEAKERS[n % len(SPEAKERS)]} {n}:"


def user(n):
    return [{"role": "user", "content": prompt(n)}]


def sent(_):
    local.sent += 1


def answered(response):
    """Tells of an answer that makes the client ask again."""
    local.sent -= 1
    if response.status_code >= 400:
        response.read()
        say(id=local.id, refused=response.status_code, after=response.headers.get("Retry-After", ""),
            body=response.text)


HOOKS = {"request": [sent], "response": [answered]}


def openai_client():
    import openai

    client = openai.OpenAI(base_url=GATEWAY + "/v1", api_key=KEY, max_retries=RETRIES, timeout=PATIENCE,
                           http_client=openai.DefaultHttpxClient(event_hooks=HOOKS))
    chats, responses = client.chat.completions, client.responses

    def message(m):
        return [m.content, [(c.function.name, c.function.arguments) for c in m.tool_calls or []]]

    def whole(a):
        return [[message(c.message), c.finish_reason] for c in a.choices] + [a.usage.completion_tokens]

    def chat(model, n):
        return whole(chats.create(model=model, messages=user(n), max_tokens=16, temperature=0))

    def chat_stream(model, n):
        chunks = list(chats.create(model=model, messages=user(n), max_tokens=24, seed=n, stream=True,
                                   stream_options={"include_usage": True}))
        return ["".join(c.choices[0].delta.content or "" for c in chunks if c.choices),
                [c.choices[0].finish_reason for c in chunks if c.choices][-1], chunks[-1].usage.completion_tokens]

    def choices(model, n):
        return whole(chats.create(model=model, messages=user(n), max_tokens=12, seed=n, n=3, top_p=0.9))

    def tool(model, n):
        return whole(chats.create(model=model, messages=user(n), seed=n, max_tokens=120, tools=[GREET],
                                  tool_choice="required", parallel_tool_calls=False))

    def tool_stream(model, n):
        with chats.stream(model=model, messages=user(n), seed=n, max_tokens=120, tools=[GREET],
                          tool_choice="required", parallel_tool_calls=False) as stream:
            return [[message(c.message), c.finish_reason] for c in stream.get_final_completion().choices]

    def schema(model, n):
        form = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        return whole(chats.create(model=model, messages=user(n), seed=n, max_tokens=120, response_format=form))

    def completion(model, n):
        a = client.completions.create(model=model, prompt=prompt(n), max_tokens=20, temperature=0, logprobs=2)
        return [a.choices[0].text, a.choices[0].logprobs.token_logprobs, a.choices[0].finish_reason]

    def completion_stream(model, n):
        chunks = client.completions.create(model=model, prompt=prompt(n), max_tokens=28, seed=n, stop=["the"],
                                           presence_penalty=0.5, stream=True)
        return "".join(c.choices[0].text for c in chunks)

    def hang_up(model, n):
        """The first words of an answer that the client does not hear to its end."""
        with chats.create(model=model, messages=user(n), max_tokens=200, temperature=0, stream=True) as stream:
            return [c.choices[0].delta.content for _, c in zip(range(4), stream)]

    def items(a):
        return [[c.text for c in i.content] if i.type == "message" else [i.name, i.arguments] for i in a.output] + [
            a.status, a.usage.output_tokens]

    def response(model, n):
        return items(responses.create(model=model, input=prompt(n), max_output_tokens=16, temperature=0))

    def response_stream(model, n):
        with responses.stream(model=model, input=prompt(n), max_output_tokens=24, extra_body={"seed": n}) as stream:
            return "".join(e.delta for e in stream if e.type == "response.output_text.delta")

    def response_tool(model, n):
        return items(responses.create(model=model, input=prompt(n), max_output_tokens=120, extra_body={"seed": n},
                                      tools=[{"type": "function", **GREET["function"]}], tool_choice="required",
                                      parallel_tool_calls=False))

    def embedding(model, n):
        return [d.embedding for d in client.embeddings.create(model=model, input=TEXTS[:1 + n % 3]).data]

    return {"words": [chat, chat_stream, choices, tool, tool_stream, schema, completion, completion_stream, hang_up,
                      response, response_stream, response_tool], "vectors": [embedding]}


def anthropic_client():
    import anthropic

    client = anthropic.Anthropic(base_url=GATEWAY, api_key=KEY, max_retries=RETRIES, timeout=PATIENCE,
                                 http_client=anthropic.DefaultHttpxClient(event_hooks=HOOKS))
    messages = client.messages

    def whole(a):
        return [[b.text if b.type == "text" else [b.name, b.input] for b in a.content], a.stop_reason,
                a.usage.output_tokens]

    def final(**fields):
        with messages.stream(**fields) as events:
            return whole(events.get_final_message())

    def tools(n):
        own = {"name": "greet", "description": "Greets a person", "input_schema": PERSON}
        return {"messages": user(n), "max_tokens": 120, "tools": [own], "extra_body": {"seed": n},
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}

    def message(model, n):
        return whole(messages.create(model=model, messages=user(n), max_tokens=16, extra_body={"temperature": 0}))

    def message_stream(model, n):
        return final(model=model, messages=user(n), max_tokens=24, extra_body={"seed": n}, stop_sequences=["thou"])

    def tool(model, n):
        return whole(messages.create(model=model, **tools(n)))

    def tool_stream(model, n):
        return final(model=model, **tools(n))

    def schema(model, n):
        return whole(messages.create(model=model, messages=user(n), max_tokens=120, extra_body={"seed": n},
                                     output_config={"format": {"type": "json_schema", "schema": PERSON}}))

    def count(model, n):
        return messages.count_tokens(model=model, messages=user(n)).input_tokens

    return {"words": [message, message_stream, tool, tool_stream, schema, count], "vectors": []}


def ollama_client():
    import ollama

    client = ollama.Client(host=GATEWAY, headers={"Authorization": "Bearer " + KEY}, timeout=PATIENCE,
                           event_hooks=HOOKS)

    def patient(ask):
        """Asks again as the gateway says; this client does not do so by itself."""
        def again(model, n):
            while True:
                try:
                    return ask(model, n)
                except ollama.ResponseError as refused:
                    if refused.status_code != 503:
                        raise
                    time.sleep(1)
        again.__name__ = ask.__name__
        return again

    def options(n, most):
        return {"num_predict": most, "seed": n} if n % 2 else {"num_predict": most, "temperature": 0}

    def whole(a):
        return [a.message.content, [(c.function.name, dict(c.function.arguments)) for c in a.message.tool_calls or []],
                a.done_reason, a.eval_count]

    @patient
    def chat(model, n):
        return whole(client.chat(model, user(n), options=options(n, 16)))

    @patient
    def chat_stream(model, n):
        lines = list(client.chat(model, user(n), options=options(n, 24), stream=True))
        return ["".join(line.message.content for line in lines), lines[-1].done_reason, lines[-1].eval_count]

    @patient
    def tools(model, n):
        return whole(client.chat(model, user(n), options=options(n, 24), tools=[GREET]))

    @patient
    def schema(model, n):
        return whole(client.chat(model, user(n), options=options(n, 120), format=PERSON))

    @patient
    def generate(model, n):
        a = client.generate(model, prompt(n), options=options(n, 16))
        return [a.response, a.done_reason, a.eval_count]

    @patient
    def generate_stream(model, n):
        return "".join(p.response for p in client.generate(model, prompt(n), options=options(n, 24), raw=True,
                                                           stream=True))

    @patient
    def embed(model, n):
        return [list(v) for v in client.embed(model, TEXTS[:1 + n % 3]).embeddings]

    return {"words": [chat, chat_stream, tools, schema, generate, generate_stream], "vectors": [embed]}


def answer(ask, request):
    local.id, local.sent = request["id"], 0
    try:
        got = ask(request["model"], request["n"])
        if local.sent:
            raise ConnectionError(f"{local.sent} requests got no answer")
        say(id=local.id, answer=json.dumps(got))
    except Exception as error:  # whatever it is, the test has to know it
        say(id=local.id, error=f"{type(error).__name__}: {error}")


def main(name):
    kinds = {"openai": openai_client, "anthropic": anthropic_client, "ollama": ollama_client}[name]()
    say(kinds={kind: [ask.__name__ for ask in asks] for kind, asks in kinds.items()})
    asks = {ask.__name__: ask for asks in kinds.values() for ask in asks}
    for line in sys.stdin:
        request = json.loads(line)
        threading.Thread(target=answer, args=(asks[request["what"]], request), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
