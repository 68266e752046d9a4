// Requests to the service, with the key where it needs one.

import { requestOptions } from "./search.js";

const KEY = "aladin-key"; // in the session's storage: gone when the tab is closed
const RETRIES = 3;

// What the service says is wrong, or that it says nothing.
export class Problem extends Error {
  // code, requestId: of the service's error; null where something else answered.
  // retryAfterS: when to try again, if the service says so.
  constructor(message, { status = 0, code = null, requestId = null, retryAfterS = null } = {}) {
    super(message);
    Object.assign(this, { status, code, requestId, retryAfterS });
  }
}

// It says that a key is missing, or that the one it got is not known.
export class NeedsKey extends Problem {}

// Nothing answers: no network, or no service.
export class Unreachable extends Problem {
  constructor() {
    super("The service cannot be reached.");
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

// The answer to a search; `more` are further fields of the request.
export async function askSearch(search, signal, more = {}) {
  const { query, target } = search;
  const options = { ...requestOptions(search), ...more };
  const request = { method: "POST", signal };
  if (query.file) {
    request.body = new FormData();
    request.body.append("image", query.file);
    for (const [name, value] of Object.entries(options)) {
      request.body.append(name, typeof value === "object" ? JSON.stringify(value) : value);
    }
  } else {
    const what = "id" in query ? { id: query.id } : { text: query.text };
    request.headers = { "Content-Type": "application/json" };
    request.body = JSON.stringify({ ...what, ...options });
  }
  return withoutUnreliable(await (await ask(`v1/search/${target}`, request)).json());
}

// Probabilities that the index's calibration may not judge are shown nowhere on the page.
function withoutUnreliable(answer) {
  if (answer.probabilities_reliable === true) return answer;
  const hits = answer.hits.map((hit) => ({ ...hit, probability: null }));
  return { ...answer, hits, match_probability: null, no_match: null };
}

export async function describeIndex() {
  return (await ask("v1/index")).json();
}

// How the index is and came to be; `limit` items that were left out of each side, from `offset` on.
export async function readIndexState(offset, limit) {
  return (await ask(`v1/index/state?offset=${offset}&limit=${limit}`)).json();
}

export async function readSlowQueries() {
  return (await ask("v1/index/slow-queries")).json();
}

// What the service takes at most: {max_image_bytes, max_text_chars, max_photo_size_px, ...}.
export async function readLimits() {
  return (await ask("page/limits.json")).json();
}

export async function readItem(target, id) {
  return (await ask(`v1/items/${target}/${encodeURIComponent(id)}`)).json();
}

// A picture as a blob, for what cannot send a key itself; waits where the service asks for it.
export async function readPicture(address, request = {}) {
  return (await ask(address, request, RETRIES)).blob();
}

export async function isUp() {
  try {
    return (await fetch("healthz", { cache: "no-store" })).ok;
  } catch {
    return false;
  }
}

// The OpenAPI document.
export async function readDescription() {
  return (await ask("openapi.json")).json();
}

// The answer whatever its status.
export function sendWithKey(address, request) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...request.headers };
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  return send(address, { ...request, headers });
}

async function ask(address, request = {}, retries = 0) {
  const key = sessionStorage.getItem(KEY);
  const response = await sendWithKey(address, request);
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (response.status === 429 && retries > 0) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * (problem.retryAfterS ?? 1)));
    return ask(address, request, retries - 1);
  }
  // The user may have given another one meanwhile.
  if (response.status === 401 && sessionStorage.getItem(KEY) === key) {
    sessionStorage.removeItem(KEY);
  }
  throw problem;
}

async function send(address, request) {
  try {
    return await fetch(address, request);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
}

async function readProblem(response) {
  const { status } = response;
  const retryAfterS = Number(response.headers.get("Retry-After")) || null;
  const Kind = status === 401 ? NeedsKey : Problem;
  try {
    const { error } = await response.json();
    const requestId = error.request_id;
    return new Kind(error.message, { status, code: error.code, requestId, retryAfterS });
  } catch {
    // Something in between answered, a proxy for one.
    return new Kind(`The service answered with status ${status}.`, { status, retryAfterS });
  }
}
