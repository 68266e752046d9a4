// What the page opens on: all items without a query, the newest first, photos under the month in
// which they were taken.

import { offerArrivals, withdrawArrivals } from "./arrivals.js";
import { allOf, nothingPasses, nothingThere, unknownFields } from "./answer.js";
import { at, make, makeButton } from "./elements.js";
import { rowsOf } from "./filter_language.js";
import { DATE_FIELD } from "./formats.js";
import { appendItems, showItems } from "./grid.js";
import { indexFacts } from "./index_facts.js";
import { offerMore } from "./more.js";
import { showOrder } from "./order.js";
import { listItems } from "./service.js";
import { isStacked } from "./stacks.js";
import { hideYears, isLate, itemsBefore, joined, partOf, partsOf, showYears } from "./timeline.js";

const PAGE = 60;
const TOP_PX = 40; // scrolled no further, the reader is at the top of the page
const LOADING_AFTER_MS = 150; // a faster list needs no such state
const BEGINNING = { part: 0, after: null };

const library = at("library");
const before = at("before");

// {key, hits, search, dated, stacked, late, parts, total, following, heading} of the list on the page; late:
// whether dates in the future may be in it; parts: their filters; following: where the next page begins, or
// null.
let shown = null;

// Show the items of a search that has no query; returns them, or null if the index lists none.
// act: {open(item, list), similar(item)}
export async function showLibrary(search, act, signal) {
  const { fields } = await indexFacts;
  const known = fields?.[search.target] ?? [];
  const { target, filter, order, sort, from, stack } = search;
  const key = JSON.stringify([target, filter, order, sort, from, stack]);
  if (shown?.key !== key) {
    const dates = target === "images" ? known.filter(({ name }) => name === DATE_FIELD) : [];
    const dated = dates.length > 0 && sort === null && order !== "added";
    const late = dated && dates.some(({ greatest }) => isLate(greatest));
    const parts = dated ? partsOf(search, late) : [null];
    const stacked = await isStacked(search);
    const list = { key, hits: [], search, dated, stacked, late, parts, following: BEGINNING, heading: null };
    if (dates.length === 1) list.span = [dates[0].least, dates[0].greatest].map(String);
    const waiting = setTimeout(() => (at("status").textContent = "Loading…"), LOADING_AFTER_MS);
    const page = await nextPage(list, signal).finally(() => clearTimeout(waiting));
    if (page === null) return null;
    shown = list;
    library.replaceChildren();
    append(page, act);
    if (from !== null) at("timeline").scrollIntoView({ behavior: "instant" });
  }
  showOrder(search, shown.total);
  showTimeline(act);
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
  const page = await nextPage({ ...list, following: BEGINNING });
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
  act.choose(isFirst ? {} : { sort: null, order: list.dated ? "added" : "desc", from: null });
}

// Show a list from its first page on.
async function begin(list, page, act) {
  const old = new Map([...library.querySelectorAll(".hit")].map((each) => [each.dataset.id, each]));
  list.hits = [];
  list.heading = null;
  list.years = undefined;
  library.replaceChildren();
  append(page, act);
  for (const element of library.querySelectorAll(".hit")) {
    const before = old.get(element.dataset.id);
    if (before) element.replaceWith(before);
  }
  const { fields } = await indexFacts;
  at("status").textContent = summary(fields?.[list.search.target] ?? []);
  at("found").classList.toggle("empty", list.total === 0);
  showTimeline(act);
  offerNext(act);
}

export function hideLibrary() {
  library.hidden = true;
  before.hidden = true;
  hideYears();
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

// {items, total, following} of the next page of a list; total: of the whole list.
async function nextPage({ search, dated, stacked, parts, following: { part, after }, total }, signal) {
  const { target, filter } = search;
  const ask = (more, options) => listItems(target, { filter: joined(filter, more), ...options }, signal);
  const isCounted = total !== undefined && after !== null;
  const [page, all] = await Promise.all([
    ask(parts[part], { limit: PAGE, ...orderOf(search, dated), after, stack: stacked || null }),
    parts[part] === null || isCounted ? null : ask(null, { limit: 1 }),
  ]);
  if (page === null) return null;
  const next = page.next === null ? { part: part + 1, after: null } : { part, after: page.next };
  const following = next.part < parts.length ? next : null;
  return { items: page.items, total: all?.total ?? (parts[part] === null ? page.total : total), following };
}

// The fields of the request.
function orderOf({ order, sort }, dated) {
  if (sort === null) return { sort: dated ? DATE_FIELD : null, order: order === "asc" ? "asc" : "desc" };
  return sort.startsWith("-") ? { sort: sort.slice(1), order: "desc" } : { sort, order: "asc" };
}

function offerNext(act) {
  const list = shown;
  if (list.following === null) {
    offerMore(null);
    return;
  }
  offerMore(async () => {
    const { following } = list;
    const page = await nextPage(list);
    // Something else is shown by now, or the same list from its beginning.
    if (list !== shown || library.hidden || list.following !== following) return;
    append(page, act);
    offerNext(act);
  });
}

function append({ items, total, following }, act) {
  const list = shown;
  Object.assign(list, { total, following });
  list.hits.push(...items);
  for (const { from, heading, items: ofPart } of byMonth(items, list.dated)) {
    const last = library.lastElementChild;
    if (heading === list.heading && last) {
      appendItems(last.querySelector("ol"), ofPart, list.search.target, actionsOf(list, act));
    } else {
      list.heading = heading;
      library.append(partElement({ from, heading }, ofPart, list, act));
    }
  }
}

function partElement({ from, heading }, items, list, act) {
  const part = make("section", { className: "part" });
  const ol = make("ol");
  ol.setAttribute("role", "list");
  if (heading === null) ol.ariaLabel = "All items";
  else part.append(make("h2", {}, heading));
  if (from !== null) part.dataset.from = from;
  showItems(ol, items, list.search.target, actionsOf(list, act));
  part.append(ol);
  return part;
}

const actionsOf = (list, act) => ({ open: (item) => act.open(item, list), similar: act.similar });

// [{from, heading, items}]: neighbours of the same month together; null if items have no dates at all.
function byMonth(items, dated) {
  const parts = [];
  for (const item of items) {
    const { from, heading } = dated ? partOf(item) : { from: null, heading: null };
    if (parts.at(-1)?.heading === heading) parts.at(-1).items.push(item);
    else parts.push({ from, heading, items: [item] });
  }
  return parts;
}

// --- The years, and what is before a list that begins with one of them ---

function showTimeline(act) {
  const list = shown;
  const { from, order } = list.search;
  const isYear = list.dated && /^\d+$/.test(from ?? "") && list.hits.length > 0;
  before.hidden = !isYear || list.isWhole === true;
  const name = order === "asc" ? "Older photos" : "Newer photos";
  before.replaceChildren(makeButton(name, () => showBefore(list, act)));
  if (!list.dated) {
    hideYears();
    return;
  }
  showYears(list, (start, place) => {
    const part = library.querySelector(`.part[data-from="${place}"]`);
    if (part) part.scrollIntoView();
    else act.choose({ from: start });
  });
}

async function showBefore(list, act) {
  const button = before.querySelector("button");
  button.disabled = true; // asked once at a time
  const [items, hasMore] = await itemsBefore(list, PAGE).catch(() => [[], true]);
  button.disabled = false;
  if (list !== shown || library.hidden) return;
  const first = library.querySelector(".part");
  const photo = first.querySelector(".hit");
  const top = photo.getBoundingClientRect().top;
  list.isWhole = !hasMore;
  before.hidden = !hasMore;
  list.hits.unshift(...items);
  for (const { from, heading, items: ofPart } of byMonth(items, true)) {
    const part = partElement({ from, heading }, ofPart, list, act);
    if (heading === first.querySelector("h2").textContent) {
      first.querySelector("ol").prepend(...part.querySelectorAll(".hit"));
    } else {
      first.before(part);
    }
  }
  scrollBy({ top: photo.getBoundingClientRect().top - top, behavior: "instant" });
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
