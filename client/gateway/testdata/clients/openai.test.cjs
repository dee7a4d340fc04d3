// openai-node against the gateway.
"use strict";
const assert = require("node:assert/strict");
const fs = require("node:fs");
const { describe, test } = require("node:test");
const { randomUUID } = require("node:crypto");
const { setTimeout: sleep } = require("node:timers/promises");
const OpenAI = require("openai");

const { REEL_GATEWAY, REEL_KEY, REEL_CANCELS } = process.env;
const client = new OpenAI({ baseURL: REEL_GATEWAY + "/v1", apiKey: REEL_KEY, maxRetries: 0, timeout: 30000 });
const chat = client.chat.completions;
const user = (content) => [{ role: "user", content }];
const greeting = 'Grüße aus Zürich: 日本, 🎬 and "quotes" \\ <b>.';
const structured = "reel-tiny";
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const tools = [{ type: "function", function: { name: "get_weather", parameters } }];

// textOf returns the text of a stream's first choice.
async function textOf(stream) {
  let text = "";
  for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? chunk.choices[0]?.text ?? "";
  return text;
}

// cancelled returns the seconds after `since` when the generator got the cancel of a prompt with mark.
async function cancelled(mark, since) {
  for (let i = 0; i < 100; i++) {
    const line = fs.readFileSync(REEL_CANCELS, "utf8").split("\n").find((line) => line.includes(mark));
    if (line) return JSON.parse(line).at - since;
    await sleep(50);
  }
  assert.fail("the generator got no cancel within 5 s");
}

describe("openai-node", () => {
  test("models", async () => {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.deepEqual(names, ["scripted", "narrow", "reel-tiny"]);
    assert.equal((await client.models.retrieve("reel-tiny")).id, "reel-tiny");
  });

  test("chat", async () => {
    const answer = await chat.create({ model: "scripted", messages: user("text") });
    assert.equal(answer.choices[0].message.content, greeting);
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.ok(answer.usage.completion_tokens > 1);
  });

  test("stream with usage", async () => {
    const stream = chat.stream({ model: "scripted", messages: user("text"), stream_options: { include_usage: true } });
    assert.equal(await stream.finalContent(), greeting);
    assert.ok((await stream.totalUsage()).completion_tokens > 1);
  });

  test("pings in a silent stream", async () => {
    const stream = await chat.create({ model: "scripted", messages: user("slow"), stream: true });
    assert.equal(await textOf(stream), "one two three");
  });

  test("tools", async () => {
    const messages = user("calls");
    const asked = (await chat.create({ model: "scripted", messages, tools })).choices[0];
    assert.equal(asked.finish_reason, "tool_calls");
    messages.push(asked.message);
    for (const call of asked.message.tool_calls) {
      messages.push({ role: "tool", tool_call_id: call.id, content: JSON.parse(call.function.arguments).city });
    }
    const answer = (await chat.create({ model: "scripted", messages, tools })).choices[0];
    assert.deepEqual([answer.finish_reason, answer.message.content], ["stop", "Bern"]);
  });

  test("tools streamed, by the client's own runner", async () => {
    const called = [];
    const run = { name: "get_weather", parameters, parse: JSON.parse, description: "The weather in a city" };
    run.function = ({ city }) => { called.push(city); return `7 degrees in ${city}`; };
    const runner = chat.runTools(
      { model: "scripted", messages: user("call"), stream: true, tools: [{ type: "function", function: run }] });
    assert.equal(await runner.finalContent(), "7 degrees in Zürich");
    assert.deepEqual(called, ["Zürich"]);
  });

  test("responses", async () => {
    const answer = await client.responses.create({ model: "scripted", input: "think" });
    assert.deepEqual([answer.output_text, answer.output.map((item) => item.type)], ["four", ["reasoning", "message"]]);
    const stream = client.responses.stream({ model: "scripted", input: "calls", tools: [{ type: "function",
      name: "get_weather", parameters }] });
    const final = await stream.finalResponse();
    assert.deepEqual(final.output.map((call) => JSON.parse(call.arguments).city), ["Zürich", "Bern"]);
    let text = "";
    for await (const event of await client.responses.create({ model: "scripted", input: "text", stream: true })) {
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    assert.equal(text, greeting);
    await assert.rejects(client.responses.create({ model: "scripted", input: "x", previous_response_id: "resp_1" }),
      (e) => e instanceof OpenAI.BadRequestError && e.param === "previous_response_id");
    const broken = await client.responses.create({ model: "scripted", input: "break internal", stream: true });
    await assert.rejects(async () => { for await (const event of broken) void event; }, OpenAI.APIError);
  });

  test("json_schema", async () => {
    const schema = { type: "object", properties: { name: { enum: ["Ada", "Grace"] }, age: { enum: [36, 37] } },
      required: ["name", "age"], additionalProperties: false };
    const answer = await chat.parse({ model: structured, messages: user("person"), seed: 1,
      response_format: { type: "json_schema", json_schema: { name: "person", schema, strict: true } } });
    const person = JSON.parse(answer.choices[0].message.content);
    assert.ok(schema.properties.name.enum.includes(person.name) && schema.properties.age.enum.includes(person.age));
  });

  test("errors", async () => {
    await assert.rejects(chat.create({ model: "gpt-9", messages: user("text") }), OpenAI.NotFoundError);
    const stranger = client.withOptions({ apiKey: "wrong" });
    await assert.rejects(stranger.chat.completions.create({ model: "scripted", messages: user("text") }),
      OpenAI.AuthenticationError);
    await assert.rejects(chat.create({ model: "reel-tiny", messages: user("word ".repeat(20000)) }),
      (e) => e instanceof OpenAI.BadRequestError && e.code === "context_length_exceeded");
    const broken = await chat.create({ model: "scripted", messages: user("break internal"), stream: true });
    await assert.rejects(textOf(broken), OpenAI.APIError);
  });

  test("full queue", async () => {
    const stream = await chat.create({ model: "narrow", messages: user("endless"), stream: true });
    await stream[Symbol.asyncIterator]().next();
    await assert.rejects(chat.create({ model: "narrow", messages: user("text") }), OpenAI.RateLimitError);
    stream.controller.abort();
  });

  test("cancel", async () => {
    const mark = "openai-node-" + randomUUID();
    const stream = await chat.create({ model: "scripted", messages: user("endless 10ms " + mark), stream: true });
    let since;
    for await (const chunk of stream) {
      if (!chunk.choices[0].delta.content) continue;
      since = Date.now() / 1000;
      break; // which aborts the request
    }
    assert.ok(await cancelled(mark, since) < 1);
  });

  test("logprobs, n, seed, stop", async () => {
    const ask = (fields) => chat.create(
      { model: "reel-tiny", messages: user("ROMEO:"), seed: 5, max_tokens: 12, ...fields });
    const first = await ask({ n: 2, logprobs: true, top_logprobs: 2 });
    for (const choice of first.choices) {
      assert.equal(choice.logprobs.content.map((t) => t.token).join(""), choice.message.content);
      assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
    }
    const texts = first.choices.map((c) => c.message.content);
    assert.notEqual(texts[0], texts[1]);
    assert.deepEqual((await ask({ n: 2 })).choices.map((c) => c.message.content), texts);
    const end = texts[0].slice(5, 8);
    const cut = (await ask({ stop: [end] })).choices[0];
    assert.deepEqual([cut.message.content, cut.finish_reason], [texts[0].slice(0, texts[0].indexOf(end)), "stop"]);
  });

  test("completions", async () => {
    const ask = { model: "reel-tiny", prompt: "ROMEO:", max_tokens: 8, seed: 2 };
    const answer = await client.completions.create(ask);
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(await textOf(await client.completions.create({ ...ask, stream: true })), answer.choices[0].text);
  });

  test("unicode", async () => {
    const content = "größer 日本 🎬 \u0000 \\ \" </script>";
    const answer = await chat.create({ model: "scripted", messages: user(content) });
    assert.equal(answer.choices[0].message.content, content);
    const stream = await chat.create({ model: "scripted", messages: user(content), stream: true });
    assert.equal(await textOf(stream), content);
  });
});
