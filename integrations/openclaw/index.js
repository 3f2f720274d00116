/**
 * A provider plugin of OpenClaw (2026.9.6) that tells clawpipe's gateway whose turn each request is.
 *
 * It wraps the requests of the provider `clawpipe`, and of no other, so that nothing reaches other hosts. Patching `fetch` would not
 * reach the wire. Plain JavaScript: OpenClaw loads it as it is, and the tests need no build and no package.
 *
 * @typedef {{headers?: Record<string, string>, sessionId?: string}} Options
 * @typedef {(model: unknown, context: unknown, options?: Options) => unknown} StreamFn
 * @typedef {{sessionId?: string, sessionKey?: string, trigger?: string, inputProvenance?: {kind?: string}}} HookContext
 */

const PROVIDER = "clawpipe";
const MOST = 4096; // sessions that are remembered
const DONE_MS = 1500; // OpenClaw waits two seconds for all handlers while it stops
const GOES_ON = new Set(["shutdown", "restart"]);

/** What is known of sessions: those that asked the gateway, the type of the turn that runs, and whose sub-agent each is. */
export class Sessions {
  constructor() {
    this.asked = new Map();
    this.types = new Map();
    this.keys = new Map(); // session id -> session key
    this.ids = new Map(); // session key -> session id
    this.parents = new Map(); // key of a sub-agent's session -> key of its parent's
  }

  /** @param {HookContext} where */
  name({ sessionId, sessionKey }) {
    if (!sessionId || !sessionKey) return;
    remember(this.keys, sessionId, sessionKey);
    remember(this.ids, sessionKey, sessionId);
  }

  /** @param {string} id @param {string | undefined} type @returns {Record<string, string>} */
  headers(id, type) {
    remember(this.asked, id, true);
    const parent = this.ids.get(this.parents.get(this.keys.get(id)));
    return {
      "X-Session-Id": id,
      ...(parent ? { "X-Parent-Session-Id": parent } : {}),
      ...(type ? { "X-Turn-Type": type } : {}),
    };
  }

  /** @param {string} id @returns {boolean} whether the session had asked the gateway */
  forget(id) {
    this.types.delete(id);
    this.keys.delete(id);
    return this.asked.delete(id);
  }
}

/**
 * The type of a turn, undefined if OpenClaw does not say what started it. Messages of other sessions keep the trigger `user`.
 *
 * @param {HookContext} context
 */
export function turnType({ trigger, inputProvenance }) {
  if (!trigger) return undefined;
  const human = !inputProvenance?.kind || inputProvenance.kind === "external_user";
  return trigger === "user" && human ? "main" : "side";
}

/**
 * Wrap a stream function so that its requests carry headers.
 *
 * @param {StreamFn | undefined} inner
 * @param {(sessionId: string) => Record<string, string>} headersOf
 * @returns {StreamFn | undefined}
 */
export function wrapped(inner, headersOf) {
  if (!inner) return undefined;
  return (model, context, options) => {
    if (!options?.sessionId) return inner(model, context, options);
    return inner(model, context, { ...options, headers: { ...options.headers, ...headersOf(options.sessionId) } });
  };
}

/** @param {any} api */
export function register(api) {
  const sessions = new Sessions();
  api.registerProvider({
    id: PROVIDER,
    label: "clawpipe",
    wrapStreamFn: (ctx) => wrapped(ctx.streamFn, (id) => sessions.headers(id, sessions.types.get(id))),
    // Titles, labels and summaries: no user asked for these, whatever the turn around them is.
    wrapSimpleCompletionStreamFn: (ctx) => wrapped(ctx.streamFn, (id) => sessions.headers(id, "side")),
  });
  // OpenClaw calls these two only if the user has granted conversation access; without it no turn type is sent.
  api.on("before_prompt_build", (_event, ctx) => {
    sessions.name(ctx);
    const type = turnType(ctx);
    if (ctx.sessionId && type) remember(sessions.types, ctx.sessionId, type);
  });
  api.on("agent_end", (_event, ctx) => void sessions.types.delete(ctx.sessionId));
  api.on("session_start", (event) => sessions.name(event));
  api.on("subagent_spawned", (event, ctx) => {
    if (event.childSessionKey && ctx.requesterSessionKey) remember(sessions.parents, event.childSessionKey, ctx.requesterSessionKey);
  });
  api.on("session_end", async (event) => {
    if (!GOES_ON.has(event.reason) && sessions.forget(event.sessionId)) await end(api, event.sessionId);
  });
}

/** Tell the gateway that a session has ended. After a failure it ends by itself when it has been idle. */
async function end(api, sessionId) {
  const provider = api.config?.models?.providers?.[PROVIDER] ?? {};
  const key = typeof provider.apiKey === "string" ? provider.apiKey : process.env.CLAWPIPE_API_KEY;
  try {
    const url = `${String(provider.baseUrl).replace(/\/+$/, "")}/sessions/${encodeURIComponent(sessionId)}/done`;
    const headers = { "content-type": "application/json", authorization: `Bearer ${key ?? ""}` };
    const reply = await fetch(url, { method: "POST", body: "{}", headers, redirect: "error", signal: AbortSignal.timeout(DONE_MS) });
    if (!reply.ok) throw new Error(`HTTP ${reply.status}`);
  } catch (error) {
    api.logger?.warn?.(`clawpipe: the gateway was not told that a session has ended: ${error.name}`);
  }
}

function remember(kept, name, value) {
  kept.delete(name);
  kept.set(name, value);
  if (kept.size > MOST) kept.delete(kept.keys().next().value);
}

export default { id: PROVIDER, name: "clawpipe", description: "Whose turn each request to clawpipe's gateway is.", register };
