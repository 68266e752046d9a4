// What the page opens on: all items without a query, the newest first, photos under the month in
// which they were taken.

import { offerArrivals, withdrawArrivals } from "./arrivals.js";
import { allOf, nothingPasses, nothingThere, unknownFields } from "./answer.js";
import { at, make } from "./elements.js";
import { rowsOf } from "./filter_language.js";
import { DATE_FIELD } from "./formats.js";
import { appendItems, showItems } from "./grid.js";
import { indexFacts } from "./index_facts.js";
import { offerMore } from "./more.js";
import { showOrder } from "./order.js";
import { listItems } from "./service.js";

const PAGE = 60;
const TOP_PX = 40; // scrolled no further, the reader is at the top of the page
const LOADING_AFTER_MS = 150; // a faster list needs no such state
const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });
const UNDATED = "Without a date";

const library = at("library");

let shown = null; // {key, hits, search, dated, total, after, month} of the list on the page

// Show the items of a search that has no query; returns them, or null if the index lists none.
// act: {open(item, list), similar(item)}
export async function showLibrary(search, act, signal) {
  const { fields } = await indexFacts;
  const known = fields?.[search.target] ?? [];
  const { target, filter, order, sort } = search;
  const key = JSON.stringify([target, filter, order, sort]);
  if (shown?.key !== key) {
    const hasDates = target === "images" && known.some(({ name }) => name === DATE_FIELD);
    const dated = hasDates && sort === null && order !== "added";
    const list = { key, hits: [], search, dated, after: null, month: null };
    const waiting = setTimeout(() => (at("status").textContent = "Loading…"), LOADING_AFTER_MS);
    const page = await nextPage(list, signal).finally(() => clearTimeout(waiting));
    if (page === null) return null;
    shown = list;
    library.replaceChildren();
    append(page, act);
  }
  showOrder(search, shown.total);
  at("status").textContent = summary(known);
  at("found").classList.toggle("empty", shown.total === 0);
  library.hidden = false;
  offerNext(act);
  return shown;
}

// Show or offer what is new in the list on the page; photos on it keep their elements.
// act: that of showLibrary, and choose(difference): shows the list in another order
export async function refreshLibrary(act) {
  const list = shown;
  if (list === null || library.hidden) return;
  const page = await nextPage({ ...list, after: null });
  if (list !== shown || library.hidden || page === null) return;
  const known = new Set(list.hits.map(({ id }) => id));
  const isFirst = page.items.some(({ id }) => !known.has(id)); // there are new ones at the beginning
  const isSame = !isFirst && page.items.every(({ id }, place) => list.hits[place].id === id);
  if (isSame && page.total === list.total) return;
  const isRead =
    scrollY > TOP_PX || library.contains(document.activeElement) || document.querySelector("dialog[open]");
  const more = page.total - list.total;
  if (isRead || (isSame && more > 0)) {
    if (more > 0) offerArrivals(more, list.search.target, () => showNew(list, isFirst, act));
    else withdrawArrivals();
    return;
  }
  withdrawArrivals();
  begin(list, page, act);
}

function showNew(list, isFirst, act) {
  scrollTo(0, 0);
  forgetLibrary();
  // Where they are not at the beginning, they are in the order of addition.
  act.choose(isFirst ? {} : { sort: null, order: list.dated ? "added" : "desc" });
}

// Show a list from its first page on.
async function begin(list, page, act) {
  const old = new Map([...library.querySelectorAll(".hit")].map((each) => [each.dataset.id, each]));
  list.hits = [];
  list.month = null;
  library.replaceChildren();
  append(page, act);
  for (const element of library.querySelectorAll(".hit")) {
    const before = old.get(element.dataset.id);
    if (before) element.replaceWith(before);
  }
  const { fields } = await indexFacts;
  at("status").textContent = summary(fields?.[list.search.target] ?? []);
  at("found").classList.toggle("empty", list.total === 0);
  offerNext(act);
}

export function hideLibrary() {
  library.hidden = true;
}

// Read the list anew when it is shown next: the index was changed, or a key was entered.
export function forgetLibrary() {
  shown = null;
}

// {hit, list} of an item on the page, or null.
export function listedItem(id) {
  const hit = library.hidden ? null : shown?.hits.find((one) => one.id === id);
  return hit ? { hit, list: shown } : null;
}

function nextPage({ search, dated, after }, signal) {
  const filter = Object.keys(search.filter).length ? JSON.stringify(search.filter) : null;
  return listItems(search.target, { limit: PAGE, ...orderOf(search, dated), filter, after }, signal);
}

// The fields of the request.
function orderOf({ order, sort }, dated) {
  if (sort === null) return { sort: dated ? DATE_FIELD : null, order: order === "asc" ? "asc" : "desc" };
  return sort.startsWith("-") ? { sort: sort.slice(1), order: "desc" } : { sort, order: "asc" };
}

function offerNext(act) {
  const list = shown;
  if (list.after === null) {
    offerMore(null);
    return;
  }
  offerMore(async () => {
    const { after } = list;
    const page = await nextPage(list);
    // Something else is shown by now, or the same list from its beginning.
    if (list !== shown || library.hidden || list.after !== after) return;
    append(page, act);
    offerNext(act);
  });
}

function append(page, act) {
  const list = shown;
  const { target } = list.search;
  const actions = { open: (item) => act.open(item, list), similar: act.similar };
  list.total = page.total;
  list.after = page.next;
  list.hits.push(...page.items);
  for (const [month, items] of byMonth(page.items, list.dated)) {
    if (month === list.month && library.lastElementChild) {
      appendItems(library.lastElementChild.querySelector("ol"), items, target, actions);
      continue;
    }
    list.month = month;
    const part = make("section", { className: "part" });
    const ol = make("ol");
    ol.setAttribute("role", "list");
    if (month === null) ol.ariaLabel = "All items";
    else part.append(make("h2", {}, month));
    showItems(ol, items, target, actions);
    part.append(ol);
    library.append(part);
  }
}

// [[month, items]]: neighbours of the same month together; null if items have no dates at all.
function byMonth(items, dated) {
  const parts = [];
  for (const item of items) {
    const month = dated ? monthOf(item.metadata[DATE_FIELD]) : null;
    if (parts.length && parts.at(-1)[0] === month) parts.at(-1)[1].push(item);
    else parts.push([month, [item]]);
  }
  return parts;
}

function monthOf(takenAt) {
  const moment = /^\d{4}-\d{2}/.test(takenAt) ? Date.parse(`${takenAt.slice(0, 7)}-01T00:00Z`) : NaN;
  return Number.isNaN(moment) ? UNDATED : MONTH.format(moment);
}

function summary(known) {
  const { target, filter } = shown.search;
  if (shown.total > 0) {
    return `${allOf(target, shown.total)}.`;
  }
  if (Object.keys(filter).length === 0) return nothingThere(target);
  const names = (rowsOf(filter)?.rows ?? []).map(({ field }) => field);
  const unknown = names.filter((field) => !known.some(({ name }) => name === field));
  return unknownFields(target, unknown) ?? nothingPasses(target);
}
