// The page /docs: the OpenAPI document, readable, and each operation ready to be tried.

import { operationElement } from "./docs_operation.js";
import { schemaElement } from "./docs_schema.js";
import { at, make } from "./elements.js";
import { hideProblem, showProblem } from "./problems.js";
import { hasKey, readDescription, setKey } from "./service.js";

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

// The operation or schema that the address names.
function openNamed() {
  const named = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(named instanceof HTMLDetailsElement)) return;
  named.open = true;
  named.scrollIntoView();
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key").value.trim());
  at("key").value = "";
  showKey();
});
addEventListener("hashchange", openNamed);
load();
