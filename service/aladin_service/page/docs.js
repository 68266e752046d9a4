// The page at /docs: the OpenAPI document, with a form to try each operation.

import { constraintsOf, schemaElement, typeOf } from "./docs_schema.js";
import { makeTryForm } from "./docs_try.js";
import { at, make } from "./elements.js";
import { hideProblem, showProblem } from "./problems.js";
import { hasKey, readDescription, setKey } from "./service.js";
import { dataTable } from "./tables.js";

async function load() {
  hideProblem();
  try {
    show(await readDescription());
  } catch (error) {
    showProblem(error, load);
  }
}

function show(description) {
  const { components, info, paths, tags } = description;
  at("version").textContent = `${info.description} Version ${info.version}.`;
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ path, method, operation })));
  at("operations").replaceChildren(...tags.map((tag) => groupElement(tag, operations, components)));
  const schemas = Object.entries(components.schemas);
  at("schemas-body").replaceChildren(...schemas.map(([name, schema]) => schemaElement(name, schema)));
  at("schemas").hidden = false;
  at("key-form").hidden = !operations.some(({ operation }) => operation.security);
  showKey();
  openNamed();
}

function groupElement({ name, description }, operations, components) {
  const own = operations.filter(({ operation }) => operation.tags.includes(name));
  const title = make("h2", { id: `tag-${name}` }, name);
  const group = make("section", { className: "group-of-operations" }, title,
    make("p", { className: "faint" }, description),
    ...own.map((each) => operationElement(each, components)));
  group.setAttribute("aria-labelledby", title.id);
  return group;
}

function showKey() {
  at("key-note").textContent = hasKey() ? "Sent with each request until you close this tab." : "";
}

// Open the operation or schema that the address names.
function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(named instanceof HTMLDetailsElement)) return;
  named.open = true;
  named.scrollIntoView();
}

// --- One operation ---

// {path, method, operation}: from the document, like its components.
function operationElement({ path, method, operation }, components) {
  const { operationId, summary, description } = operation;
  const parameters = (operation.parameters ?? []).map((each) => resolve(each, components));
  const heading = make("summary", {},
    make("span", { className: `method ${method}` }, method.toUpperCase()),
    make("code", { className: "path" }, path),
    make("span", { className: "in-words" }, summary));
  const element = make("details", { id: operationId, className: "operation panel" }, heading);
  const fill = () => {
    if (element.childElementCount > 1) return;
    element.append(
      make("p", {}, ...inline(description ?? "")),
      accessElement(operation),
      ...parametersElements(parameters),
      ...bodyElements(operation.requestBody),
      make("h3", {}, "Responses"),
      dataTable({
        caption: `Responses of ${operationId}`,
        head: ["Status", "Type", "Description"],
        rows: Object.entries(operation.responses).map(responseCells),
      }),
      makeTryForm({ path, method, operation, parameters }, components),
    );
  };
  // Filled when opened: there are many operations, and readers open few of them.
  element.addEventListener("toggle", fill);
  return element;
}

function resolve(parameter, { parameters }) {
  return parameter.$ref ? parameters[parameter.$ref.split("/").at(-1)] : parameter;
}

function accessElement({ security }) {
  const line = make("p", { className: "faint" });
  if (!security) {
    line.append("No key required.");
    return line;
  }
  const [scope] = Object.values(security[0])[0];
  const optional = security.some((way) => Object.keys(way).length === 0);
  line.append(optional ? "If the service uses keys, requires" : "Requires",
    " a key with the scope ", make("code", {}, scope), ", sent as ",
    make("code", {}, "Authorization: Bearer"), " or ", make("code", {}, "X-API-Key"), ".");
  return line;
}

function parametersElements(parameters) {
  if (parameters.length === 0) return [];
  const cells = ({ name, in: place, required, schema, description }) => [
    make("code", {}, name),
    `${place}${required ? ", required" : ""}`,
    typeOf(schema),
    [constraintsOf(schema), description].filter(Boolean).flatMap((each) => [...inline(each), " "]),
  ];
  return [
    make("h3", {}, "Parameters"),
    dataTable({
      caption: "Parameters",
      head: ["Name", "In", "Type", "Description"],
      rows: parameters.map(cells),
    }),
  ];
}

function bodyElements(requestBody) {
  if (!requestBody) return [];
  const rows = Object.entries(requestBody.content).map(([type, { schema }]) => [
    make("code", {}, type), typeOf(schema),
  ]);
  return [
    make("h3", {}, requestBody.required ? "Request body, required" : "Request body"),
    dataTable({ caption: "Request body", head: ["Content type", "Type"], rows }),
  ];
}

function responseCells([status, { description, content }]) {
  const types = Object.entries(content ?? {}).flatMap(([type, { schema }], place) => [
    place ? ", " : "",
    ...(schema && type === "application/json" ? typeOf(schema) : [make("code", {}, type)]),
  ]);
  return [make("code", {}, status), types.length ? types : null, description];
}

// Text in backticks is code.
function inline(text) {
  return text.split(/`([^`]*)`/).map((part, place) => (place % 2 ? make("code", {}, part) : part));
}

// --- Start ---

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key").value.trim());
  at("key").value = "";
  showKey();
});
addEventListener("hashchange", openNamed);
load();
