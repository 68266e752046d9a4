// The order of the items: relevance or time, or a field of the index.

import { at } from "./elements.js";
import { DATE_FIELD, SIDE_FIELDS, capital, fieldLabel, isDate } from "./formats.js";
import { indexFacts } from "./index_facts.js";
import { isCompared } from "./search.js";

const label = at("sort-label");
const select = at("sort");

let orders = []; // those on offer: [{name, words, sort, order}]
let shown = null; // the search that they are for

// onOrder(difference): called with the fields of the search that changed.
export function startOrder(onOrder) {
  select.addEventListener("change", () => {
    const { sort, order } = orders[select.selectedIndex];
    onOrder({ sort, order });
  });
}

// Offer the orders of a search or of the library, if there are at least two items.
export async function showOrder(search, items) {
  shown = search;
  const { fields } = await indexFacts;
  if (shown !== search) return;
  orders = ordersOf(search, fields?.[search.target] ?? []);
  select.replaceChildren(...orders.map(({ name, sort, order }) => new Option(name, sort ?? order)));
  select.selectedIndex = Math.max(0, orders.findIndex((one) => isChosen(one, search)));
  // Two rankings are compared by relevance.
  label.hidden = items < 2 || orders.length < 2 || isCompared(search);
}

export function hideOrder() {
  shown = null;
  label.hidden = true;
}

// The order of the search that is shown in words: "newest first", "by Camera, A to Z".
export const orderWords = ({ sort }) => orders.find((one) => one.sort === sort)?.words ?? "";

const isChosen = (one, { sort, order }) =>
  one.sort === sort && (sort !== null || one.order === order);

function ordersOf(search, fields) {
  const { query, target, sort, order } = search;
  const isDated = fields.some(({ name }) => name === DATE_FIELD);
  const byTime = query === null && target === "images" && isDated;
  const own = query ? [{ name: "Best match", sort: null, order }] : timeOrders(byTime);
  const offered = fields.filter(
    ({ name, kind, least, greatest }) =>
      kind !== "bool" &&
      least !== greatest &&
      !SIDE_FIELDS.includes(name) &&
      !(byTime && name === DATE_FIELD) &&
      fields.filter((one) => one.name === name).length === 1, // values of one kind
  );
  offered.sort((one, other) => (other.name === DATE_FIELD) - (one.name === DATE_FIELD));
  const all = [...own, ...offered.flatMap((field) => fieldOrders(field, query, order))];
  // An address may name any field.
  if (sort !== null && !all.some((one) => one.sort === sort)) all.push(namedOrder(sort, order));
  return all;
}

function timeOrders(isDated) {
  const orders = [
    { name: "Newest first", sort: null, order: "desc" },
    { name: "Oldest first", sort: null, order: "asc" },
  ];
  return isDated ? [...orders, { name: "Last added first", sort: null, order: "added" }] : orders;
}

function fieldOrders({ name: field, kind, least, greatest }, query, order) {
  const make = (sort, words) => {
    const isPlain = query !== null && field === DATE_FIELD;
    const name = isPlain ? capital(words) : `${fieldLabel(field)}, ${words}`;
    return { name, words: isPlain ? words : `by ${name}`, sort, order };
  };
  if (isDate(least) && isDate(greatest)) {
    return [make(`-${field}`, "newest first"), make(field, "oldest first")];
  }
  if (kind === "number") return [make(`-${field}`, "largest first"), make(field, "smallest first")];
  return [make(field, "A to Z")];
}

function namedOrder(sort, order) {
  const isFalling = sort.startsWith("-");
  const field = fieldLabel(isFalling ? sort.slice(1) : sort);
  const name = `${field}, ${isFalling ? "largest" : "smallest"} first`;
  return { name, words: `by ${name}`, sort, order };
}
