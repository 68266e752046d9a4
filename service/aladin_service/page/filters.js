// The form of filters: rows for most, JSON for the rest. The JSON is what counts; the rows write it.

import { at, make, makeButton } from "./elements.js";
import { OPERATORS, describe, filterOf, rowsOf } from "./filter_language.js";

const form = at("filter-form");
const rows = at("filter-rows");
const json = at("filter-json");
const join = at("filter-join");
const toggle = at("filter-toggle");
const wrong = at("filter-wrong");

const fields = new Set(); // seen in the metadata of hits: the index does not list its fields

// onFilter(filter): there is another one to search with.
export function startFilters(onFilter) {
  toggle.addEventListener("click", () => showForm(form.hidden));
  at("filter-add").addEventListener("click", () => {
    if (!rows.hidden) addRow({ field: "", operator: "eq", value: "" }).querySelector("input").focus();
  });
  rows.addEventListener("input", writeJson);
  join.addEventListener("change", writeJson);
  // As it is typed: rows that grow when it is left would take the button from under the pointer.
  json.addEventListener("input", () => {
    try {
      showRows(parseJson());
    } catch {
      // It is not finished.
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
    if (button) onFilter(button.leftOut);
  });
}

// Put a search's filter into the form, and beside the results.
export function showFilter(filter) {
  const inForce = Object.keys(filter).length > 0;
  json.value = inForce ? JSON.stringify(filter) : "";
  wrong.hidden = true;
  showRows(filter);
  showInForce(filter, inForce);
}

// Offer the fields of what was found.
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

// One condition is not joined to anything.
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

// The filter that the JSON says, or null, and what is wrong with it.
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
    throw new Error(`This is not JSON: ${error.message}.`);
  }
  if (filter === null || typeof filter !== "object" || Array.isArray(filter)) {
    throw new Error("A filter is an object: {…}.");
  }
  return filter;
}

// What each says, with a way to be rid of it.
function showInForce(filter, inForce) {
  const known = rowsOf(filter);
  const list = at("filters-in-force");
  const chip = (text, leftOut) => {
    const button = make("button", { type: "button", ariaLabel: `Without: ${text}` }, text, " ×");
    button.leftOut = leftOut;
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
