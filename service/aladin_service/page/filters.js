// The filter form: choices from the fields of the index, which are applied at once, and JSON for the
// rest, which is applied by its button.

import { at, make } from "./elements.js";
import { countedFields, showCounts, showFacets } from "./facets.js";
import { describe, filterOf, rowsOf } from "./filter_language.js";
import { NOUNS, counted } from "./formats.js";
import { indexFacts } from "./index_facts.js";
import { countValues } from "./service.js";

const form = at("filter-form");
const json = at("filter-json");
const toggle = at("filter-toggle");
const wrong = at("filter-wrong");

let apply = null;
let shown = null; // the search whose filter the form has
let lastCounts = null; // the last numbers that were counted within a search

// onFilter(filter): called with the filter to apply.
export function startFilters(onFilter) {
  apply = onFilter;
  toggle.addEventListener("click", () => showForm(form.hidden));
  at("filter-close").addEventListener("click", () => {
    showForm(false);
    toggle.focus();
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
export async function showFilter(search) {
  const { filter, target } = (shown = search);
  const inForce = Object.keys(filter).length > 0;
  json.value = inForce ? JSON.stringify(filter) : "";
  wrong.hidden = true;
  showInForce(filter, inForce);
  at("filter-clear").hidden = !inForce;
  const all = (await indexFacts).fields;
  const fields = all?.[target] ?? [];
  const isUseless = all !== null && fields.length === 0 && !inForce; // no item has metadata
  toggle.hidden = isUseless;
  if (isUseless) showForm(false);
  if (json.value !== (inForce ? JSON.stringify(filter) : "")) return; // the reader went on
  const stated = rowsOf(filter);
  const mayChoose = stated !== null && (stated.join === "and" || stated.rows.length === 1);
  showFacets(at("facets"), fields, mayChoose ? stated.rows : null, (all) => apply(filterOf(all, "and")));
  countWithin();
  // What the choices do not show is shown as JSON.
  if (!mayChoose || at("facets").children.length === 0) at("as-json").open = true;
}

function showForm(open) {
  form.hidden = !open;
  toggle.setAttribute("aria-expanded", open);
  if (open) form.querySelector("input, textarea")?.focus();
  countWithin();
}

// Count the values within the search, beside each field's own conditions, while the form is open.
async function countWithin() {
  const search = shown;
  const names = countedFields(at("facets"));
  if (form.hidden || search === null || names.length === 0) return;
  if (lastCounts) showCounts(at("facets"), lastCounts);
  try {
    const { facets, among } = await countValues(search, names);
    if (search !== shown) return;
    lastCounts = facets;
    showCounts(at("facets"), facets);
    at("facets-among").textContent = amongWords(search, among);
  } catch {
    at("facets-among").textContent = ""; // the search itself says what is wrong
  }
}

function amongWords({ filter, target }, among) {
  const others = Object.keys(filter).length ? " that pass the other conditions" : "";
  if (among !== null) return `Counted among the ${counted(among, NOUNS[target])} nearest to the query${others}.`;
  return others && `Counted among the ${NOUNS[target]}s${others}.`;
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
  at("as-json").open = true;
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
