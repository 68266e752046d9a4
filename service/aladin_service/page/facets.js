// Choices for the filter from the index's own fields: values to tick, dates and numbers from and to.

import { make } from "./elements.js";
import { COORDINATES, count, dayOf, fieldLabel, isDate, shownValue } from "./formats.js";
import { rowOf } from "./filter_language.js";

const MOST_TICKED = 12; // a field of numbers with more values is a range
const SHOWN = 8; // of a field's values; the others unfold
const OPERATORS = { ticks: ["eq", "in"], dates: ["gte", "lt"], numbers: ["gte", "lte"] };

let stated = null; // the fields and rows that the choices on the page state

// Show the choices, unless they state these rows already: the reader may be in the middle of them.
// fields: of the index; rows: those of the filter, all of which have to hold, or null if the filter
// has another form. onRows(rows): called with the rows in their place.
export function showFacets(box, fields, rows, onRows) {
  const state = JSON.stringify([fields, rows]);
  if (state === stated) return;
  stated = state;
  const facets = rows === null ? [] : facetsOf(fields);
  const change = (facet, mine) => {
    const others = rows.filter((row) => !isOf(facet, row));
    rows = [...others, ...mine];
    stated = JSON.stringify([fields, rows]);
    onRows(rows);
  };
  box.replaceChildren(
    ...facets.map((facet) => {
      const own = rows.filter((row) => isOf(facet, row));
      return MAKERS[facet.kind](facet, own, (mine) => change(facet, mine));
    }),
  );
}

// The fields on the page whose values are counted.
export const countedFields = (box) =>
  [...new Set([...box.querySelectorAll(".items")].map((number) => number.closest(".facet").dataset.field))];

// Show other numbers beside the values. facets: {field: [{value, count}]}; of a value that it lacks,
// there is none.
export function showCounts(box, facets) {
  for (const number of box.querySelectorAll(".items")) {
    const values = facets[number.closest(".facet").dataset.field] ?? [];
    const found = values.find(({ value }) => JSON.stringify(value) === number.dataset.value);
    number.textContent = count(found?.count ?? 0);
  }
}

const isOf = ({ name, kind }, { field, operator }) =>
  field === name && OPERATORS[kind].includes(operator);

// [{name, kind, parts}]: fields that can be offered as choices; parts: their values of each kind.
function facetsOf(fields) {
  const byName = new Map();
  for (const field of fields) byName.set(field.name, [...(byName.get(field.name) ?? []), field]);
  return [...byName]
    .filter(([name]) => !COORDINATES.includes(name))
    .map(([name, parts]) => ({ name, parts, kind: kindOf(parts) }))
    .filter(({ kind }) => kind !== null)
    .sort((one, other) => (other.kind === "dates") - (one.kind === "dates"));
}

function kindOf(parts) {
  const [{ kind, least, greatest }] = parts;
  const isAlone = parts.length === 1;
  if (isAlone && isDate(least) && isDate(greatest)) return "dates";
  const values = parts.flatMap((part) => part.values ?? []);
  const isCounted = parts.every((part) => part.values !== null);
  if (isAlone && kind === "number" && !(isCounted && values.length <= MOST_TICKED)) return "numbers";
  return isCounted && values.length > 0 ? "ticks" : null;
}

const MAKERS = { ticks: makeTicks, dates: makeDates, numbers: makeNumbers };

function fieldset(name, ...children) {
  const element = make("fieldset", { className: "facet" }, make("legend", {}, fieldLabel(name)), ...children);
  element.dataset.field = name;
  return element;
}

// --- Values to tick ---

function makeTicks({ name, parts }, rows, onRows) {
  const chosen = new Set(rows.flatMap(({ value }) => value).map((value) => JSON.stringify(value)));
  const values = parts.flatMap((part) => part.values);
  const ticks = values.map(({ value, count: items }) => {
    const box = make("input", { type: "checkbox", checked: chosen.has(JSON.stringify(value)) });
    box.addEventListener("change", () => {
      const key = JSON.stringify(value);
      if (box.checked) chosen.add(key);
      else chosen.delete(key);
      const wanted = [...chosen].map((one) => JSON.parse(one));
      onRows(wanted.length ? [rowOf(name, "in", wanted)] : []);
    });
    const number = make("span", { className: "items faint" }, count(items));
    number.dataset.value = JSON.stringify(value);
    return make("label", { className: "tick" }, box, make("span", {}, shownValue(value, name)), number);
  });
  const few = ticks.slice(0, SHOWN);
  if (ticks.length <= SHOWN) return fieldset(name, ...few);
  const rest = make("details", {}, make("summary", {}, `${ticks.length - SHOWN} more`), ...ticks.slice(SHOWN));
  rest.open = rest.querySelector("input:checked") !== null;
  return fieldset(name, ...few, rest);
}

// --- Ranges ---

function makeRange(name, inputs, onChange) {
  for (const input of inputs) input.addEventListener("change", onChange);
  const labels = ["From", "To"].map((text, place) => make("label", {}, `${text} `, inputs[place]));
  return fieldset(name, make("div", { className: "range" }, ...labels));
}

const valueOf = (rows, operator) => rows.find((row) => row.operator === operator)?.value;

// The end of a range of days is the day after the last one, because a date may be followed by a time.
function makeDates({ name, parts: [{ least, greatest }] }, rows, onRows) {
  const [min, max] = [least.slice(0, 10), greatest.slice(0, 10)];
  const [start, end] = ["gte", "lt"].map((operator) => valueOf(rows, operator));
  const from = make("input", { type: "date", min, max, value: isDate(start) ? dayOf(start) : "" });
  const to = make("input", { type: "date", min, max, value: isDate(end) ? dayOf(end, -1) : "" });
  return makeRange(name, [from, to], () => {
    const mine = [];
    if (from.value) mine.push(rowOf(name, "gte", from.value));
    if (to.value) mine.push(rowOf(name, "lt", dayOf(to.value, 1)));
    onRows(mine);
  });
}

function makeNumbers({ name, parts: [{ least, greatest }] }, rows, onRows) {
  const input = (value, placeholder) =>
    make("input", { type: "number", step: "any", value: value ?? "", placeholder });
  const from = input(valueOf(rows, "gte"), least);
  const to = input(valueOf(rows, "lte"), greatest);
  return makeRange(name, [from, to], () => {
    const mine = [];
    if (from.value) mine.push(rowOf(name, "gte", from.valueAsNumber));
    if (to.value) mine.push(rowOf(name, "lte", to.valueAsNumber));
    onRows(mine);
  });
}
