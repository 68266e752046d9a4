// Converts between rows and the service's filter language. A row is {field, operator, value}: one
// condition. Filters that rows cannot express (not, nested filters) stay JSON.

import { dayOf, fieldLabel, isDate, shownValue } from "./formats.js";

const OPERATORS = {
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

const OF_DATES = { gt: "after", gte: "from", lt: "before", lte: "until" };

// join: "and" | "or".
export function filterOf(rows, join) {
  const parts = rows.map(partOf);
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

export const rowOf = (field, operator, value) => ({ field, operator, value });

function partOf({ field, operator, value }) {
  return { [field]: operator === "eq" || operator === "in" ? value : { [operator]: value } };
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
  if (operator === "exists") return `${name} ${value === false ? "does not exist" : "exists"}`;
  if (operator in OF_DATES && isDate(value)) return `${name} ${OF_DATES[operator]} ${shownValue(value)}`;
  const values = [value].flat().map((one) => shownValue(one, field));
  const isOne = operator === "in" && values.length === 1;
  return `${name} ${OPERATORS[isOne ? "eq" : operator]} ${values.join(", ")}`;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
