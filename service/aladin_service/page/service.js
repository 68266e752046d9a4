// Requests to the service: authentication, errors, and the limits that apply before a request.

import { itemPath } from "./formats.js";
import { termsInOrder, requestOptions } from "./search.js";

// In the session storage, which ends with the tab, if a person has typed it; in the local storage,
// which other services of this machine cannot read, if it came with the address.
const KEY = "aladin-key";
const RETRIES = 3;
const NOT_LISTABLE = "not_listable"; // the code for an index in a vector database

// An error that the service reported, or a failure to reach it.
export class Problem extends Error {
  // code, requestId: from the service's error; null if something else answered.
  // retryAfterS: when to try again, if the service says so. title: in place of that of the status.
  constructor(message, about = {}) {
    super(message);
    const { status = 0, code = null, requestId = null, retryAfterS = null, title = null } = about;
    Object.assign(this, { status, code, requestId, retryAfterS, title });
  }
}

// The API key is missing or not accepted.
export class NeedsKey extends Problem {}

// No response: the network or the service is down.
export class Unreachable extends Problem {
  constructor() {
    super("The service cannot be reached.");
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

// Keep the key of an address that `aladin photos` prints, and remove it from the address.
export function takeToken() {
  const address = new URL(location.href);
  const token = address.searchParams.get("token");
  if (token === null) return;
  localStorage.setItem(KEY, token);
  sessionStorage.removeItem(KEY);
  address.searchParams.delete("token");
  history.replaceState(history.state, "", address);
}

function currentKey() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY);
}

export function hasKey() {
  return currentKey() !== null;
}

// --- What the service offers ---

// The answer to a search; `more` holds further fields of the request.
export async function askSearch(search, signal, more = {}) {
  const { query, terms, target } = search;
  const options = { ...requestOptions(search), ...more };
  const request = { method: "POST", signal };
  if (terms.length) {
    request.headers = { "Content-Type": "application/json" };
    request.body = JSON.stringify({ ...(await partFields(search)), ...options });
  } else if (query.file) {
    request.body = new FormData();
    request.body.append("image", query.file);
    if (query.box) request.body.append("box", JSON.stringify(query.box));
    for (const [name, value] of Object.entries(options)) {
      request.body.append(name, typeof value === "object" ? JSON.stringify(value) : value);
    }
  } else {
    const what = "id" in query ? { id: query.id, box: query.box } : { text: query.text };
    request.headers = { "Content-Type": "application/json" };
    request.body = JSON.stringify({ ...what, ...options });
  }
  return (await ask(`v1/search/${target}`, request)).json();
}

// The fields of a query of several terms: of each role what it asks for.
async function partFields(search) {
  const fields = {};
  for (const { role, ...term } of termsInOrder(search)) {
    fields[role] ??= [];
    if (role === "like") fields[role].push(term.id);
    else if (term.file) fields[role].push({ image: await base64Of(term.file), box: term.box });
    else fields[role].push("id" in term ? { id: term.id, box: term.box } : { text: term.text });
  }
  return fields;
}

function base64Of(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.split(",")[1] ?? "");
    reader.onerror = () => reject(new Problem("the file cannot be read", { status: 415 }));
    reader.readAsDataURL(file);
  });
}

export async function describeIndex() {
  return (await ask("v1/index")).json();
}

// The metadata fields of each collection; null for an index in a vector database.
export async function readFields() {
  try {
    return await (await ask("v1/index/fields")).json();
  } catch (error) {
    if (error.code === NOT_LISTABLE) return null;
    throw error;
  }
}

// How often values are within a search, as {facets: {field: [{value, count}]}, among}: all items that
// pass the filter, or the `among` nearest ones, for a search leaves nothing out.
export async function countValues(search, names) {
  const { query, filter, target } = search;
  if (query === null) {
    const given = Object.keys(filter).length ? `?${new URLSearchParams({ filter: JSON.stringify(filter) })}` : "";
    const fields = (await (await ask(`v1/index/fields${given}`)).json())[target];
    const valuesOf = (name) => fields.filter((field) => field.name === name).flatMap(({ values }) => values ?? []);
    return { facets: Object.fromEntries(names.map((name) => [name, valuesOf(name)])), among: null };
  }
  const only = { facets: names, k: 1, offset: 0, rerank: false };
  const { facets } = await askSearch(search, undefined, only);
  return {
    facets: Object.fromEntries(names.map((name) => [name, facets[name].values])),
    among: Math.max(...names.map((name) => facets[name].among)),
  };
}

// A page of items: {items, total, next}; null for an index in a vector database.
// order: {sort, order, filter, limit, after}, without those that are null.
export async function listItems(target, order, signal) {
  const wanted = Object.entries(order).filter(([, value]) => value !== null);
  const address = `v1/items/${target}?${new URLSearchParams(wanted)}`;
  try {
    return await (await ask(address, { signal })).json();
  } catch (error) {
    if (error.code === NOT_LISTABLE) return null;
    throw error;
  }
}

// Each word of a pair, or each region in the query's box, compared with each region. query: that of
// a search; id: of the item.
export async function mapEvidence(query, id) {
  if (query.file) {
    return (await ask("v1/explain", { method: "POST", body: pairForm(query, id) })).json();
  }
  return (await ask(`v1/explain?${pairOf(query, id)}`)).json();
}

// The form of a pair of an uploaded photo and an item.
export function pairForm({ file, box }, id) {
  const body = new FormData();
  body.append("image", file);
  body.append("id", id);
  if (box) body.append("box", JSON.stringify(box));
  return body;
}

// The parameters of a pair of a text or an item, and an item.
export function pairOf(query, id) {
  const what = "text" in query ? { text: query.text } : { query_id: query.id };
  return new URLSearchParams({ ...what, id, ...(query.box && { box: query.box }) });
}

// Whether the service says that a photo does not exist.
export async function isMissing(address) {
  try {
    return (await fetch(address, { method: "GET" })).status === 404;
  } catch {
    return false;
  }
}

export async function readItem(target, id) {
  return (await ask(`v1/items/${target}/${itemPath(id)}`)).json();
}

// An image as a blob, for elements that cannot send a key; retries when the service asks for it.
export async function readPicture(address, request = {}) {
  return (await ask(address, request, RETRIES)).blob();
}

// Several photos as one zip; onBytes(number): called as they come.
export async function readArchive(ids, signal, onBytes) {
  const headers = { "Content-Type": "application/json" };
  const request = { method: "POST", headers, body: JSON.stringify({ ids }), signal };
  const response = await ask("v1/images.zip", request, RETRIES);
  const parts = [];
  let bytes = 0;
  try {
    for (const reader = response.body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) return new Blob(parts, { type: "application/zip" });
      parts.push(value);
      onBytes((bytes += value.length));
    }
  } catch {
    throw new Problem("The download was interrupted; try again.");
  }
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

// --- Limits, checked before a request is sent ---

// Until the limits are loaded, or if they cannot be, the service itself rejects what is too large.
let limits = { max_image_bytes: Infinity, max_text_chars: Infinity, max_photo_size_px: Infinity };

export async function learnLimits() {
  try {
    limits = await (await ask("page/limits.json")).json();
  } catch {
    // Keep the defaults above.
  }
}

export function largestPhotoPx() {
  return limits.max_photo_size_px;
}

// Throws the Problem that the service would answer with.
export function checkQuery({ file, text }) {
  if (file?.size === 0) throw new Problem("the file is empty", { status: 415 });
  if (file?.size > limits.max_image_bytes) {
    throw new Problem(
      `expected at most ${megabytes(limits.max_image_bytes)}, the file has ${megabytes(file.size)}`,
      { status: 413 },
    );
  }
  const characters = text ? [...text].length : 0;
  if (characters > limits.max_text_chars) {
    throw new Problem(
      `expected at most ${limits.max_text_chars} characters, got ${characters}`,
      { status: 422 },
    );
  }
}

function megabytes(bytes) {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

// --- Sending ---

// Resolves to the response whatever its status is.
export function sendWithKey(address, request) {
  const key = currentKey();
  const headers = { ...request.headers };
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  return send(address, { ...request, headers });
}

async function ask(address, request = {}, retries = 0) {
  const key = currentKey();
  const response = await sendWithKey(address, request);
  if (response.ok) return response;
  const problem = await readProblem(response);
  if (response.status === 429 && retries > 0) {
    await new Promise((resolve) => setTimeout(resolve, 1000 * (problem.retryAfterS ?? 1)));
    return ask(address, request, retries - 1);
  }
  // Keep a key that the user entered in the meantime.
  if (response.status === 401 && key !== null) {
    for (const storage of [sessionStorage, localStorage]) {
      if (storage.getItem(KEY) === key) storage.removeItem(KEY);
    }
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
    // Another server answered, such as a proxy.
    return new Kind(`The service answered with status ${status}.`, { status, retryAfterS });
  }
}
