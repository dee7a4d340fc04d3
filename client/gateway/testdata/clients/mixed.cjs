// openai-node for the test that mixes clients (make mixed); mixed.py says what its input and output are.
"use strict";
const { AsyncLocalStorage } = require("node:async_hooks");
const readline = require("node:readline");
const OpenAI = require("openai");

const { REEL_GATEWAY, REEL_KEY } = process.env;
const say = (fields) => process.stdout.write(JSON.stringify(fields) + "\n");
const asking = new AsyncLocalStorage(); // the request

// Tells of an answer that makes the client ask again, and counts what got none.
async function fetched(...request) {
  asking.getStore().sent++;
  const response = await fetch(...request);
  asking.getStore().sent--;
  if (response.status >= 400) {
    const after = response.headers.get("retry-after") ?? "";
    say({ id: asking.getStore().id, refused: response.status, after, body: await response.clone().text() });
  }
  return response;
}

const patience = 300000; // milliseconds
const client = new OpenAI({ baseURL: REEL_GATEWAY + "/v1", apiKey: REEL_KEY, maxRetries: 1000,
  timeout: patience, fetch: fetched });
const chats = client.chat.completions;
const prompt = (n) => `${["ROMEO", "JULIET", "NURSE", "MERCUTIO"][n % 4]} ${n}:`;
const user = (n) => [{ role: "user", content: prompt(n) }];
const parameters = {
  type: "object",
  properties: { name: { enum: ["Ada", "Grace"] }, age: { type: "integer", minimum: 0, maximum: 99 } },
  required: ["name", "age"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "greet", parameters } }];
const whole = (answer) => answer.choices.map((c) =>
  [c.message.content, (c.message.tool_calls ?? []).map((call) => call.function), c.finish_reason]);

const words = {
  chat: async (model, n) => whole(await chats.create({ model, messages: user(n), max_tokens: 16, temperature: 0 })),
  chat_stream: async (model, n) => {
    const stream = chats.stream({ model, messages: user(n), max_tokens: 24, seed: n,
      stream_options: { include_usage: true } });
    return [await stream.finalContent(), (await stream.totalUsage()).completion_tokens];
  },
  tool_stream: async (model, n) => {
    const stream = chats.stream({ model, messages: user(n), max_tokens: 120, seed: n, tools, tool_choice: "required",
      parallel_tool_calls: false });
    return whole(await stream.finalChatCompletion());
  },
  schema: async (model, n) => whole(await chats.create({ model, messages: user(n), max_tokens: 120, seed: n,
    response_format: { type: "json_schema", json_schema: { name: "person", schema: parameters, strict: true } } })),
  completion: async (model, n) => {
    const answer = await client.completions.create({ model, prompt: prompt(n), max_tokens: 20, seed: n, echo: true });
    return [answer.choices[0].text, answer.usage.completion_tokens];
  },
  response_stream: async (model, n) => {
    let text = "";
    const events = await client.responses.create({ model, input: prompt(n), max_output_tokens: 20, temperature: 0,
      stream: true });
    for await (const event of events) if (event.type === "response.output_text.delta") text += event.delta;
    return text;
  },
};
const vectors = {
  embedding: async (model, n) => (await client.embeddings.create({ model, input: prompt(n) })).data[0].embedding,
};

async function answer(request) {
  try {
    const got = await { ...words, ...vectors }[request.what](request.model, request.n);
    if (request.sent) throw new Error(`${request.sent} requests got no answer`);
    say({ id: request.id, answer: JSON.stringify(got) });
  } catch (error) {
    say({ id: request.id, error: String(error) });
  }
}

say({ kinds: { words: Object.keys(words), vectors: Object.keys(vectors) } });
readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const request = { ...JSON.parse(line), sent: 0 };
  asking.run(request, () => answer(request));
}).on("close", () => process.exit(0));
