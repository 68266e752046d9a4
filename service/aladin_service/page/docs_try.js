// A form that sends the request of one operation and shows the response unchanged.

import { exampleOf } from "./docs_schema.js";
import { make } from "./elements.js";
import { itemPath } from "./formats.js";
import { sendWithKey } from "./service.js";

const MOST_CHARS = 100_000; // of a response body, the rest is cut off
const JSON_TYPE = "application/json";

// {path, method, operation, parameters}: of the operation; {schemas}: of the document.
export function makeTryForm({ path, method, operation, parameters }, { schemas }) {
  const fields = parameters.filter((each) => each.in !== "header").map(fieldOf);
  const content = operation.requestBody?.content[JSON_TYPE];
  const body = content ? bodyField(exampleOf(content.schema, schemas)) : null;
  const command = make("pre", { className: "command", tabIndex: 0 });
  command.setAttribute("role", "group");
  command.setAttribute("aria-label", "The request as a curl command");
  const answer = make("div", { className: "answer" });
  answer.setAttribute("role", "status");
  const form = make("form", { className: "try" }, make("h3", {}, "Try it"),
    ...fields.map(({ element }) => element), ...(body ? [body.element] : []),
    command, make("p", { className: "line" }, make("button", { className: "main" }, "Send")), answer);

  const request = () => ({
    method: method.toUpperCase(),
    address: addressOf(path, fields),
    body: body?.input.value,
  });
  const showCommand = () => (command.textContent = commandOf(request()));
  form.addEventListener("input", showCommand);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(request(), answer);
  });
  showCommand();
  return form;
}

function fieldOf({ name, in: place, required, schema }) {
  const options = schema.enum;
  const input = options
    ? make("select", {}, ...options.map((each) => make("option", {}, each)))
    : make("input", { autocomplete: "off", spellcheck: false });
  input.required = required === true;
  if (options && schema.default !== undefined) input.value = schema.default;
  return { name, place, input, element: labelled(name, input) };
}

function bodyField(example) {
  const text = JSON.stringify(example, null, 2);
  const input = make("textarea", { value: text, spellcheck: false, autocomplete: "off" });
  input.rows = Math.min(12, text.split("\n").length + 1);
  return { input, element: labelled("Body as JSON", input) };
}

function labelled(name, input) {
  return make("label", {}, make("span", {}, name), input);
}

function addressOf(path, fields) {
  const query = new URLSearchParams();
  let filled = path;
  for (const { name, place, input } of fields) {
    if (place === "path") filled = filled.replace(`{${name}}`, () => itemPath(input.value));
    else if (input.value !== "") query.set(name, input.value);
  }
  const asked = query.toString();
  return new URL(filled.slice(1) + (asked ? `?${asked}` : ""), document.baseURI).href;
}

function commandOf({ method, address, body }) {
  const quoted = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const parts = ["curl", ...(method === "GET" ? [] : ["-X", method]), quoted(address)];
  if (body !== undefined) parts.push("-H", quoted(`Content-Type: ${JSON_TYPE}`), "-d", quoted(body));
  return parts.join(" ");
}

async function send({ method, address, body }, answer) {
  answer.replaceChildren("Waiting for the response…");
  const headers = body === undefined ? {} : { "Content-Type": JSON_TYPE };
  const started = performance.now();
  try {
    const response = await sendWithKey(address, { method, headers, body });
    const shown = await shownBody(response);
    const took = `${Math.round(performance.now() - started)} ms`;
    const line = `${response.status} ${response.statusText}`.trim();
    answer.replaceChildren(make("p", {}, make("strong", {}, line), ` in ${took}`), shown);
  } catch (error) {
    answer.replaceChildren(make("p", { className: "wrong" }, error.message));
  }
}

async function shownBody(response) {
  const type = response.headers.get("Content-Type") ?? "";
  if (type.startsWith("image/")) {
    const source = URL.createObjectURL(await response.blob());
    const image = make("img", { src: source, alt: "The image in the response" });
    image.addEventListener("load", () => URL.revokeObjectURL(source));
    return image;
  }
  const text = await response.text();
  const readable = type.startsWith(JSON_TYPE) ? JSON.stringify(JSON.parse(text), null, 2) : text;
  const cut = readable.length > MOST_CHARS ? `${readable.slice(0, MOST_CHARS)}\n…` : readable;
  const box = make("pre", { tabIndex: 0 }, cut);
  box.setAttribute("role", "group");
  box.setAttribute("aria-label", "Response body");
  return box;
}
