// The photos by time: where a list of them begins, in which parts it is asked for, and the bar of years
// that leads to each of them without those between.

import { at, make, makeButton } from "./elements.js";
import { DATE_FIELD, counted, dayOf } from "./formats.js";
import { listItems } from "./service.js";

const MONTH = new Intl.DateTimeFormat("en", { month: "long", year: "numeric", timeZone: "UTC" });
const UNDATED = { from: "undated", heading: "Without a date" };
const FUTURE = { from: "future", heading: "Date in the future" };
const MOST_YEARS = 200;
const MOST_POSSIBLE = 60; // years between the first and the last date
const BELOW_FIELD_PX = 240; // what is there belongs to the part that is read

// Clocks of other time zones are ahead of this one; what they show from here on is wrong.
const TOO_LATE = dayOf(new Date().toISOString(), 2);

const bar = at("years");

let shown = null; // the list that the bar is for
let go = null;
let isUsed = false; // whether the reader has done anything yet

const dated = (test) => ({ [DATE_FIELD]: test });
const not = (filter) => ({ not: filter });

export const isLate = (date) => date >= TOO_LATE;

// Where an item is: {from: its year, "undated" or "future", heading: its month}.
export function partOf({ metadata }) {
  const date = metadata[DATE_FIELD];
  if (typeof date !== "string" || !/^\d{4}-\d{2}/.test(date)) return UNDATED;
  if (isLate(date)) return FUTURE;
  const moment = Date.parse(`${date.slice(0, 7)}-01T00:00Z`);
  return Number.isNaN(moment) ? UNDATED : { from: date.slice(0, 4), heading: MONTH.format(moment) };
}

// The filters of a list's parts, one after the other, without the reader's own: wrong dates come last.
// from: where it begins, as in `partOf`, or null. Null instead of a filter: all items.
export function partsOf({ from, order }, hasLate) {
  const late = hasLate ? [dated({ gte: TOO_LATE })] : [];
  if (from === FUTURE.from) return late;
  if (from === UNDATED.from) return [dated({ exists: false }), ...late];
  const bounds = late.map(not);
  if (from !== null) {
    bounds.push(not(dated(order === "asc" ? { lt: from } : { gte: String(Number(from) + 1) })));
  }
  return [bounds.length ? { and: bounds } : null, ...late];
}

// A filter and another one, as the parameter of a request; null for none.
export function joined(...filters) {
  const parts = filters.filter((filter) => filter !== null && Object.keys(filter).length);
  if (parts.length === 0) return null;
  return JSON.stringify(parts.length === 1 ? parts[0] : { and: parts });
}

// Those of the photos before the first one of a list, nearest last: [items, whether others are before].
export async function itemsBefore({ hits, search, stacked, late }, limit) {
  const order = search.order === "asc" ? "desc" : "asc";
  const filter = joined(search.filter, late ? not(dated({ gte: TOO_LATE })) : null);
  const asked = { sort: DATE_FIELD, order, filter, limit, after: hits[0].id, stack: stacked || null };
  const { items, next } = await listItems(search.target, asked);
  const found = items.filter((item) => partOf(item) !== UNDATED).reverse();
  return [found, next !== null && found.length === items.length];
}

// --- The bar of years ---

// list: {search, late, stacked, total, span}. jump(from): called with where to go; null: the beginning.
// The years are counted when the reader does something; until then the bar has all that may be.
export async function showYears(list, jump) {
  [shown, go] = [list, jump];
  const possible = list.years || isUsed ? null : yearsWithin(list);
  if (possible) {
    makeBar(possible);
    return;
  }
  list.years ??= await readYears(list).catch(() => []); // the photos are there without them
  if (shown === list) makeBar(list.years);
}

function makeBar(years) {
  bar.replaceChildren(
    ...years.map(({ from, name, photos }, place) => {
      const title = photos === undefined ? "" : counted(photos, "photo");
      const button = makeButton(name, () => go(place === 0 ? null : from, from), { title });
      button.dataset.from = from;
      return make("li", {}, button);
    }),
  );
  bar.parentElement.hidden = bar.hidden = years.length < 2;
  markYear();
}

// All years from the first to the last date of the index; null if these tell little. A single year has
// a bar only if other photos have no date, or one in the future: these have to be counted first.
function yearsWithin({ search: { filter, order }, span }) {
  const [least, greatest] = (span ?? []).map((date) => parseInt(date, 10));
  const last = Math.min(greatest, parseInt(TOO_LATE, 10));
  if (Object.keys(filter).length || !(last > least && last - least < MOST_POSSIBLE)) return null;
  const years = Array.from({ length: last - least + 1 }, (_, place) => String(last - place));
  if (order === "asc") years.reverse();
  return years.map((year) => ({ from: year, name: year }));
}

function onUse() {
  if (isUsed) return;
  isUsed = true;
  if (shown !== null) showYears(shown, go);
}

for (const use of ["pointermove", "pointerdown", "keydown", "scroll"]) {
  addEventListener(use, onUse, { once: true, passive: true });
}

export function hideYears() {
  shown = null;
  bar.parentElement.hidden = true;
}

// The years in the order of the list: the newest photo before each year tells the next one, and the
// number of those before it.
async function readYears({ search, late, total }) {
  const years = [];
  let bound = late ? TOO_LATE : "9999";
  while (years.length < MOST_YEARS) {
    const filter = joined(search.filter, dated({ lt: bound }));
    const page = await listItems("images", { sort: DATE_FIELD, order: "desc", limit: 1, filter });
    const from = page.items.map(partOf)[0]?.from;
    if (!/^\d{4}$/.test(from)) break;
    years.push({ from, name: from, upTo: page.total });
    bound = from;
  }
  years.forEach((year, place) => (year.photos = year.upTo - (years[place + 1]?.upTo ?? 0)));
  if (search.order === "asc") years.reverse();
  const count = async (test) =>
    (await listItems("images", { limit: 1, filter: joined(search.filter, dated(test)) })).total;
  const wrong = late ? await count({ gte: TOO_LATE }) : 0;
  const rest = total - wrong - years.reduce((sum, { photos }) => sum + photos, 0);
  const others = [{ ...UNDATED, name: "No date", photos: rest }, { ...FUTURE, name: "Future", photos: wrong }];
  return [...years, ...others.filter(({ photos }) => photos > 0)];
}

// Mark the year of the photos that are read.
function markYear() {
  if (bar.hidden) return;
  const parts = [...document.querySelectorAll("#library .part")];
  const tops = parts.map((part) => part.getBoundingClientRect().top);
  const row = tops.findLast((top) => top < BELOW_FIELD_PX) ?? tops[0];
  const read = parts[tops.indexOf(row)]; // the first of those side by side
  for (const button of bar.querySelectorAll("button")) {
    const isHere = button.dataset.from === read?.dataset.from;
    if (isHere === (button.ariaCurrent === "true")) continue;
    button.ariaCurrent = isHere ? "true" : null;
    if (!isHere) continue;
    const { offsetLeft: left, offsetTop: top } = button;
    bar.scrollTo({ left: left - bar.clientWidth / 2, top: top - bar.clientHeight / 2 });
  }
}

let waits = false;
addEventListener("scroll", () => {
  if (waits) return;
  waits = true;
  requestAnimationFrame(() => {
    waits = false;
    markYear();
  });
}, { passive: true });
