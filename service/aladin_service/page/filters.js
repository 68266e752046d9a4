// The filter form: choices from the fields of the index, rows for other common filters, JSON for the
// rest. Choices are applied at once; rows write the JSON, which is applied by its button.

import { at, make, makeButton } from "./elements.js";
import { showFacets } from "./facets.js";
import { OPERATORS, describe, filterOf, rowsOf, writeValue } from "./filter_language.js";
import { indexFacts } from "./index_facts.js";

const form = at("filter-form");
const rows = at("filter-rows");
const json = at("filter-json");
const join = at("filter-join");
const toggle = at("filter-toggle");
const wrong = at("filter-wrong");

let apply = null;
let fields = []; // of the collection that is searched

// onFilter(filter): called with the filter to apply.
export function startFilters(onFilter) {
  apply = onFilter;
  toggle.addEventListener("click", () => showForm(form.hidden));
  at("filter-close").addEventListener("click", () => {
    showForm(false);
    toggle.focus();
  });
  rows.addEventListener("focusin", suggestValues);
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
export async function showFilter({ filter, target }) {
  const inForce = Object.keys(filter).length > 0;
  json.value = inForce ? JSON.stringify(filter) : "";
  wrong.hidden = true;
  showRows(filter);
  showInForce(filter, inForce);
  at("filter-clear").hidden = !inForce;
  const known = (await indexFacts).fields;
  fields = known?.[target] ?? [];
  const isUseless = known !== null && fields.length === 0 && !inForce; // no item has metadata
  toggle.hidden = isUseless;
  if (isUseless) showForm(false);
  if (json.value !== (inForce ? JSON.stringify(filter) : "")) return; // the reader went on
  const stated = rowsOf(filter);
  const mayChoose = stated !== null && (stated.join === "and" || stated.rows.length === 1);
  showFacets(at("facets"), fields, mayChoose ? stated.rows : null, (all) => apply(filterOf(all, "and")));
  const names = [...new Set(fields.map(({ name }) => name))];
  at("filter-fields").replaceChildren(...names.map((value) => make("option", { value })));
  // Without choices, the conditions are all there is.
  if (at("facets").children.length === 0) at("conditions").open = true;
}

// Suggest the values of the row's field.
function suggestValues(event) {
  const line = event.target.closest(".row");
  const name = line.querySelector("input").value.trim();
  const known = fields.filter((field) => field.name === name);
  const values = known.flatMap((field) => field.values ?? []);
  at("filter-values").replaceChildren(
    ...values.map(({ value }) => make("option", { value: writeValue(value) })),
  );
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
  if (known === null) at("conditions").open = at("as-json").open = true;
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
  wanted.setAttribute("list", "filter-values");
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
  at("conditions").open = at("as-json").open = true;
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
