// Converts between rows of the filter form and the service's filter language. A row is
// {field, operator, value}; filters that rows cannot express (not, nested filters) stay JSON.

import { dayOf, fieldLabel, isDate, shownValue } from "./formats.js";

export const OPERATORS = {
  eq: "is",
  ne: "is not",
  in: "is one of",
  nin: "is none of",
  gt: "is over",
  gte: "is at least",
  lt: "is under",
  lte: "is at most",
  exists: "exists",
};

const LISTS = ["in", "nin"];
const OF_DATES = { gt: "after", gte: "from", lt: "before", lte: "until" };

// rows: as typed; join: "and" | "or". A row without a field is incomplete and ignored.
export function filterOf(rows, join) {
  const parts = rows.filter(({ field }) => field !== "").map(partOf);
  if (parts.length < 2) return parts[0] ?? {};
  return { [join]: parts };
}

// {rows, join}, or null if rows cannot express the filter.
export function rowsOf(filter) {
  const entries = Object.entries(filter);
  if (entries.length === 1 && isJoin(...entries[0])) {
    const [join, parts] = entries[0];
    const rows = parts.map(rowsOfTests);
    // A part with several tests is an "and" of its own.
    if (rows.some((found) => found === null || (join === "or" && found.length !== 1))) return null;
    return { rows: rows.flat(), join };
  }
  const rows = rowsOfTests(filter);
  return rows && { rows, join: "and" };
}

function isJoin(name, value) {
  return ["and", "or"].includes(name) && Array.isArray(value) && value.every(isObject);
}

function rowsOfTests(tests) {
  const rows = [];
  for (const [field, wanted] of Object.entries(tests)) {
    if (field === "not" || isJoin(field, wanted)) return null;
    if (!isObject(wanted)) {
      rows.push(Array.isArray(wanted) ? rowOf(field, "in", wanted) : rowOf(field, "eq", wanted));
      continue;
    }
    for (const [operator, value] of Object.entries(wanted)) {
      if (!(operator in OPERATORS)) return null;
      rows.push(rowOf(field, operator, value));
    }
  }
  return rows;
}

export function rowOf(field, operator, value) {
  const values = Array.isArray(value) ? value : [value];
  return { field, operator, value: values.map(writeValue).join(", ") };
}

function partOf({ field, operator, value }) {
  if (operator === "eq") return { [field]: readValue(value) };
  if (operator === "exists") return { [field]: { exists: readValue(value) !== false } };
  const values = valuesOf({ operator, value });
  if (operator === "in") return { [field]: values };
  return { [field]: { [operator]: LISTS.includes(operator) ? values : values[0] } };
}

// The service distinguishes "1" from 1: unquoted numbers and booleans are read as such.
function readValue(text) {
  const plain = text.trim();
  if (/^(true|false|-?\d+(\.\d+)?([eE][+-]?\d+)?|".*")$/.test(plain)) {
    try {
      return JSON.parse(plain);
    } catch {
      return plain;
    }
  }
  return plain;
}

// A value as it is typed: quoted if it is empty or would be read as something else.
export function writeValue(value) {
  const isPlain = typeof value !== "string" || (/^[^",][^,]*$/.test(value) && readValue(value) === value);
  return isPlain ? String(value) : JSON.stringify(value);
}

// Commas inside quotes do not separate values.
function splitList(text) {
  return text.match(/\s*"(?:[^"\\]|\\.)*"\s*|[^,]+/g)?.filter((part) => part.trim()) ?? [];
}

// The values of a row, as the filter has them.
export function valuesOf({ operator, value }) {
  return LISTS.includes(operator) ? splitList(value).map(readValue) : [readValue(value)];
}

// A filter with one more condition: `field` is `value`, or on the day of a date.
export function narrowed(filter, field, value) {
  const more = isDate(value)
    ? [rowOf(field, "gte", dayOf(value)), rowOf(field, "lt", dayOf(value, 1))]
    : [rowOf(field, "eq", value)];
  const known = rowsOf(filter);
  if (known?.join !== "and") return { and: [filter, filterOf(more, "and")] };
  return filterOf([...known.rows, ...more], "and");
}

export function describe({ field, operator, value }) {
  const name = fieldLabel(field);
  if (operator === "exists") return `${name} ${value === "false" ? "does not exist" : "exists"}`;
  if (operator in OF_DATES && isDate(value)) return `${name} ${OF_DATES[operator]} ${shownValue(value)}`;
  const isOne = operator === "in" && splitList(value).length === 1;
  return `${name} ${OPERATORS[isOne ? "eq" : operator]} ${value}`;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
