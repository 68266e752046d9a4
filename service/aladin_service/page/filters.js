// The filter form: rows for common filters, JSON for all others. The rows write the JSON, which is
// what is applied.

import { at, make, makeButton } from "./elements.js";
import { OPERATORS, describe, filterOf, rowsOf } from "./filter_language.js";

const form = at("filter-form");
const rows = at("filter-rows");
const json = at("filter-json");
const join = at("filter-join");
const toggle = at("filter-toggle");
const wrong = at("filter-wrong");

const fields = new Set(); // those in the metadata of hits: the API does not list an index's fields

// onFilter(filter): called with the filter to apply.
export function startFilters(onFilter) {
  toggle.addEventListener("click", () => showForm(form.hidden));
  at("filter-add").addEventListener("click", () => {
    if (!rows.hidden) addRow({ field: "", operator: "eq", value: "" }).querySelector("input").focus();
  });
  rows.addEventListener("input", writeJson);
  join.addEventListener("change", writeJson);
  // On every input: rows added when the field loses focus would move the button under the pointer.
  json.addEventListener("input", () => {
    try {
      showRows(parseJson());
    } catch {
      // The JSON is incomplete.
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const filter = readJson();
    if (filter) onFilter(filter);
  });
  at("filter-clear").addEventListener("click", () => onFilter({}));
  at("filters-in-force").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) onFilter(button.filterWithout);
  });
}

// Show a search's filter in the form and beside the results.
export function showFilter(filter) {
  const inForce = Object.keys(filter).length > 0;
  json.value = inForce ? JSON.stringify(filter) : "";
  wrong.hidden = true;
  showRows(filter);
  showInForce(filter, inForce);
}

// Suggest the metadata fields of the hits.
export function learnFields(hits) {
  for (const hit of hits) for (const field of Object.keys(hit.metadata)) fields.add(field);
  const options = [...fields].sort().map((field) => make("option", { value: field }));
  at("filter-fields").replaceChildren(...options);
}

function showForm(open) {
  form.hidden = !open;
  toggle.setAttribute("aria-expanded", open);
  if (open) form.querySelector("input, textarea")?.focus();
}

function showRows(filter) {
  const known = rowsOf(filter);
  for (const element of [rows, at("filter-add")]) element.hidden = known === null;
  at("filter-note").hidden = known !== null;
  if (known === null) form.querySelector("details").open = true;
  rows.replaceChildren();
  showJoin();
  if (known === null) return;
  join.value = known.join;
  const filled = known.rows.length ? known.rows : [{ field: "", operator: "eq", value: "" }];
  filled.forEach(addRow);
}

function addRow({ field, operator, value }) {
  const name = make("input", { value: field, ariaLabel: "Field", placeholder: "field" });
  name.setAttribute("list", "filter-fields");
  name.autocomplete = "off";
  const choice = make("select", { ariaLabel: "Comparison" });
  for (const [key, words] of Object.entries(OPERATORS)) {
    choice.append(make("option", { value: key, selected: key === operator }, words));
  }
  const wanted = make("input", { value, ariaLabel: "Value", placeholder: "value", autocomplete: "off" });
  const hint = () => (wanted.placeholder = ["in", "nin"].includes(choice.value) ? "one, another" : "value");
  choice.addEventListener("change", hint);
  const remove = makeButton("×", () => removeRow(line), {
    className: "quiet",
    ariaLabel: "Remove this condition",
  });
  const line = make("div", { className: "line row" }, name, choice, wanted, remove);
  rows.append(line);
  showJoin();
  return line;
}

function removeRow(line) {
  (line.nextElementSibling?.querySelector("input") ?? at("filter-add")).focus();
  line.remove();
  showJoin();
  writeJson();
}

// A single condition needs no choice between "all" and "any".
function showJoin() {
  at("filter-join-label").hidden = rows.children.length < 2;
}

function writeJson() {
  const typed = [...rows.children].map((line) => {
    const [field, operator, value] = line.querySelectorAll("input, select");
    return { field: field.value.trim(), operator: operator.value, value: value.value };
  });
  const filter = filterOf(typed, join.value);
  json.value = Object.keys(filter).length ? JSON.stringify(filter) : "";
  wrong.hidden = true;
}

// The filter in the JSON field, or null after showing why it is invalid.
function readJson() {
  wrong.hidden = true;
  try {
    return parseJson();
  } catch (error) {
    wrong.textContent = error.message;
  }
  wrong.hidden = false;
  form.querySelector("details").open = true;
  return null;
}

function parseJson() {
  if (json.value.trim() === "") return {};
  let filter;
  try {
    filter = JSON.parse(json.value);
  } catch (error) {
    throw new Error(`Invalid JSON: ${error.message}.`);
  }
  if (filter === null || typeof filter !== "object" || Array.isArray(filter)) {
    throw new Error("A filter must be a JSON object: {…}.");
  }
  return filter;
}

// The active conditions, each with a button that removes it.
function showInForce(filter, inForce) {
  const known = rowsOf(filter);
  const list = at("filters-in-force");
  const chip = (text, filterWithout) => {
    const label = `Remove the condition: ${text}`;
    const button = make("button", { type: "button", ariaLabel: label }, text, " ×");
    button.filterWithout = filterWithout;
    return make("li", {}, button);
  };
  if (known && known.join === "and") {
    const without = (gone) => filterOf(known.rows.filter((row) => row !== gone), "and");
    list.replaceChildren(...known.rows.map((row) => chip(describe(row), without(row))));
  } else {
    list.replaceChildren(chip(known ? known.rows.map(describe).join(" or ") : json.value, {}));
  }
  list.hidden = !inForce;
  toggle.classList.toggle("in-force", inForce);
}
