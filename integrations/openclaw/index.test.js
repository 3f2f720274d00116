import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";

import plugin, { turnType } from "./index.js";

/** A fake of OpenClaw's plugin API, by its documented arguments: it keeps what is registered, and calls it as OpenClaw does. */
class FakeOpenClaw {
  constructor({ granted = true, baseUrl = "http://127.0.0.1:1/v1" } = {}) {
    this.granted = granted;
    this.hooks = new Map();
    this.warnings = [];
    this.logger = { warn: (text) => this.warnings.push(text) };
    this.config = { models: { providers: { clawpipe: { baseUrl, apiKey: "sk-test" } } } };
    plugin.register(this);
  }
  registerProvider(provider) {
    this.provider = provider;
  }
  on(name, callback) {
    this.hooks.set(name, callback);
  }
  hook(name, event, ctx = {}) {
    if (!this.granted && ["before_prompt_build", "agent_end"].includes(name)) return undefined; // silently, as OpenClaw does
    return this.hooks.get(name)(event, ctx);
  }
  /** The headers of a request. */
  request(options, hook = "wrapStreamFn") {
    return this.provider[hook]({ streamFn: (_model, _context, given) => given })({}, {}, options)?.headers;
  }
}

test("requests of both kinds carry their session and keep their own headers", () => {
  const agent = new FakeOpenClaw({ granted: false });
  const options = { sessionId: "s-1", headers: { "x-mine": "kept" } };
  assert.deepEqual(agent.request(options), { "x-mine": "kept", "X-Session-Id": "s-1" });
  assert.deepEqual(options.headers, { "x-mine": "kept" });
  assert.deepEqual(agent.request({ sessionId: "s-1" }, "wrapSimpleCompletionStreamFn"), { "X-Session-Id": "s-1", "X-Turn-Type": "side" });
  assert.equal(agent.request({}), undefined);
  assert.equal(agent.request(undefined), undefined);
  assert.equal(agent.provider.wrapStreamFn({}), undefined);
});

test("the turn type is the trigger's, while the turn runs, and only where conversation access is granted", () => {
  const [granted, not] = [new FakeOpenClaw(), new FakeOpenClaw({ granted: false })];
  for (const agent of [granted, not]) agent.hook("before_prompt_build", {}, { sessionId: "s-1", trigger: "user" });
  granted.hook("before_prompt_build", {}, { sessionId: "s-2", trigger: "heartbeat" });
  assert.equal(granted.request({ sessionId: "s-1" })["X-Turn-Type"], "main");
  assert.equal(granted.request({ sessionId: "s-2" })["X-Turn-Type"], "side");
  assert.equal(granted.request({ sessionId: "s-3" })["X-Turn-Type"], undefined);
  assert.equal(not.request({ sessionId: "s-1" })["X-Turn-Type"], undefined);
  granted.hook("agent_end", {}, { sessionId: "s-1" });
  assert.equal(granted.request({ sessionId: "s-1" })["X-Turn-Type"], undefined);
});

test("only a person's message makes a main turn", () => {
  assert.equal(turnType({ trigger: "user", inputProvenance: { kind: "external_user" } }), "main");
  assert.equal(turnType({ trigger: "user", inputProvenance: { kind: "inter_session" } }), "side");
  for (const trigger of ["heartbeat", "cron", "memory", "something new"]) assert.equal(turnType({ trigger }), "side");
  assert.equal(turnType({}), undefined);
});

test("a sub-agent's session names its parent's", () => {
  const agent = new FakeOpenClaw({ granted: false });
  agent.hook("session_start", { sessionId: "boss", sessionKey: "agent:main:main" });
  agent.hook("subagent_spawned", { childSessionKey: "agent:main:sub" }, { requesterSessionKey: "agent:main:main" });
  agent.hook("session_start", { sessionId: "helper", sessionKey: "agent:main:sub" });
  assert.equal(agent.request({ sessionId: "helper" })["X-Parent-Session-Id"], "boss");
  assert.equal(agent.request({ sessionId: "boss" })["X-Parent-Session-Id"], undefined);
});

test("a session that asked the gateway is ended there, once, and a restart ends none", async () => {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push([request.method, request.url, request.headers.authorization]);
    response.end("{}");
  });
  await new Promise((listening) => server.listen(0, "127.0.0.1", listening));
  try {
    const agent = new FakeOpenClaw({ baseUrl: `http://127.0.0.1:${server.address().port}/v1/` });
    agent.request({ sessionId: "a b" });
    await agent.hook("session_end", { sessionId: "a b", reason: "shutdown" });
    await agent.hook("session_end", { sessionId: "elsewhere", reason: "reset" });
    await agent.hook("session_end", { sessionId: "a b", reason: "reset" });
    await agent.hook("session_end", { sessionId: "a b", reason: "reset" });
    assert.deepEqual(asked, [["POST", "/v1/sessions/a%20b/done", "Bearer sk-test"]]);
    assert.deepEqual(agent.warnings, []);
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

test("a gateway that is gone fails nothing, and no key is logged", async () => {
  const agent = new FakeOpenClaw();
  agent.request({ sessionId: "s-1" });
  await agent.hook("session_end", { sessionId: "s-1", reason: "idle" });
  assert.equal(agent.warnings.length, 1);
  assert.doesNotMatch(agent.warnings[0], /sk-/);
});

test("manifest, package and provider have one name", () => {
  const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
  assert.deepEqual(read("openclaw.plugin.json").providers, [plugin.id]);
  assert.deepEqual(read("package.json").openclaw.providers, [new FakeOpenClaw().provider.id]);
});
