// Between rows of a form and the service's language of filters. A row is {field, operator, value};
// what rows cannot say (not, filters within filters) stays JSON.

export const OPERATORS = {
  eq: "is",
  ne: "is not",
  in: "is one of",
  nin: "is none of",
  gt: "is over",
  gte: "is at least",
  lt: "is under",
  lte: "is at most",
  exists: "is there",
};

const LISTS = ["in", "nin"];

// rows: as typed; join: "and" | "or". A row without a field is not finished and says nothing.
export function filterOf(rows, join) {
  const parts = rows.filter(({ field }) => field !== "").map(partOf);
  if (parts.length < 2) return parts[0] ?? {};
  return { [join]: parts };
}

// {rows, join}, or null where rows cannot say it.
export function rowsOf(filter) {
  const entries = Object.entries(filter);
  if (entries.length === 1 && isJoin(...entries[0])) {
    const [join, parts] = entries[0];
    const rows = parts.map(rowsOfTests);
    // A part of several tests is an "and" of its own.
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
      rows.push(Array.isArray(wanted) ? row(field, "in", wanted) : row(field, "eq", wanted));
      continue;
    }
    for (const [operator, value] of Object.entries(wanted)) {
      if (!(operator in OPERATORS)) return null;
      rows.push(row(field, operator, value));
    }
  }
  return rows;
}

function row(field, operator, value) {
  const values = Array.isArray(value) ? value : [value];
  return { field, operator, value: values.map(writeValue).join(", ") };
}

function partOf({ field, operator, value }) {
  if (operator === "eq") return { [field]: readValue(value) };
  if (operator === "exists") return { [field]: { exists: readValue(value) !== false } };
  const values = LISTS.includes(operator) ? splitList(value).map(readValue) : readValue(value);
  return { [field]: { [operator]: values } };
}

// "1" is not 1 to the service: a number or a bool is one unless it is written in quotes.
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

function writeValue(value) {
  const looksOtherwise = typeof value === "string" && readValue(value) !== value;
  return looksOtherwise || /,/.test(value) ? JSON.stringify(value) : String(value);
}

// Commas within quotes do not part.
function splitList(text) {
  return text.match(/\s*"(?:[^"\\]|\\.)*"\s*|[^,]+/g)?.filter((part) => part.trim()) ?? [];
}

// A filter, and a field's value besides.
export function narrowed(filter, field, value) {
  const known = rowsOf(filter);
  if (known?.join !== "and") return { and: [filter, { [field]: value }] };
  return filterOf([...known.rows, row(field, "eq", value)], "and");
}

export function describe({ field, operator, value }) {
  if (operator === "exists") return `${field} is ${value === "false" ? "not " : ""}there`;
  return `${field} ${OPERATORS[operator]} ${value}`;
}

function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}
