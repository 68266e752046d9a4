// The answer to a search: the lists of hits, the summary above them, and further hits as they are
// asked for.

import { hideComparison, showComparison } from "./compare.js";
import { hideTimings, methodOf, showTimings } from "./details.js";
import { at, make, percent } from "./elements.js";
import { NOUNS, count, counted } from "./formats.js";
import { appendItems, showItems, showSkeletons, sortItems } from "./grid.js";
import { offerMore } from "./more.js";
import { showUsed } from "./options.js";
import { orderWords, showOrder } from "./order.js";
import { readingWords, showReading } from "./reading.js";
import { offerSplit } from "./terms.js";
import { hitsAtOnce, isSorted, withMoreSorted } from "./search.js";

// The lists on the page, each {hits, search} with the search that found them; that of both stages has
// the other as `matching`.
let lists = [];

// answered: {search, answer, ms, matching}; matching is the answer of the first stage alone, or null.
// act: {open(hit, list), similar(hit), further(search)}; further: asks for {answer, matching} of
// another page.
export function showAnswer({ search, answer, ms, matching }, act) {
  showUsed(answer);
  lists = [];
  const list = showList("hits", answer, search, act);
  hideComparison();
  list.matching = matching && showList("matching-hits", matching, { ...search, rerank: false }, act);
  showNoMatch(answer);
  showReading(search, answer);
  offerSplit(search, answer.suggestion);
  at("found").classList.remove("waiting");
  at("found").classList.toggle("empty", answer.hits.length === 0);
  showSummary(list, search, answer);
  showOrder(search, answer.hits.length).then(() => {
    // The words of an order are those of its field.
    if (isSorted(search) && lists.includes(list)) showSummary(list, search, answer);
  });
  if (answer.hits.length) showTimings(answer.took_ms, ms);
  else hideTimings();
  offerFurther(list, search, answer, act);
}

// What is above the hits: how many there are, and how they were found.
function showSummary(list, search, answer) {
  const moved = list.matching ? showComparison(list.hits, list.matching.hits) : "";
  at("status").replaceChildren(...summary(search, answer, list.hits.length, moved));
}

// answer: the last one for the list, to this search.
function offerFurther(list, search, answer, act) {
  list.isLast = isLast(search, answer);
  if (!isSorted(search)) {
    const next = { ...search, offset: search.offset + hitsAtOnce(search) };
    offerMore(list.isLast ? null : () => showFurther(list, next, act));
    if (list.matching) list.matching.isLast = list.isLast;
    return;
  }
  const more = list.isLast ? null : withMoreSorted(search);
  list.isLast = true; // what is loaded next is sorted in
  const words = more && `Include ${count(hitsAtOnce(more) - hitsAtOnce(search))} more`;
  offerMore(more && (() => sortMore(list, more, act)), words ?? undefined);
}

// Append the hits of another page.
async function showFurther(list, search, act) {
  const { answer, matching } = await act.further(search);
  if (!lists.includes(list)) return; // another search is shown by now
  append("hits", list, answer, act);
  if (matching) append("matching-hits", list.matching, matching, act);
  showSummary(list, search, answer);
  offerFurther(list, search, answer, act);
}

function append(id, list, { hits }, act) {
  list.hits.push(...hits);
  appendItems(at(id), hits, list.search.target, actionsOf(list, act));
}

// Sort more hits among those on the page, which stay where the reader sees them.
async function sortMore(list, search, act) {
  const { answer } = await act.further(search);
  if (!lists.includes(list)) return;
  const { hits: old } = list;
  list.hits = answer.hits;
  const known = new Set(old.map(({ id }) => id));
  const fresh = answer.hits.filter(({ id }) => !known.has(id));
  appendItems(at("hits"), fresh, search.target, actionsOf(list, act));
  sortItems(at("hits"), answer.hits);
  showSummary(list, search, answer);
  offerFurther(list, search, answer, act);
}

// With a smallest probability, hidden hits make a page shorter although others may follow.
function isLast(search, { hits }) {
  return hits.length === 0 || (hits.length < hitsAtOnce(search) && search.minProbability === null);
}

export function showWaiting(search) {
  at("status").textContent = "Searching…";
  at("found").classList.add("waiting");
  if (!at("hits").children.length) showSkeletons(at("hits"), search.target, search.k);
}

export function clearAnswer() {
  lists = [];
  for (const id of ["hits", "matching-hits"]) at(id).replaceChildren();
  hideComparison();
  hideTimings();
  showReading(null, null);
  offerMore(null);
  at("no-match").hidden = true;
  at("found").classList.remove("waiting", "empty", "no-match");
  at("status").textContent = "";
}

// {hit, list} of a hit on the page, or null.
export function shownHit(id) {
  for (const list of lists) {
    const hit = list.hits.find((one) => one.id === id);
    if (hit) return { hit, list };
  }
  return null;
}

function showList(id, { hits, searched }, search, act) {
  // Words that were read as filters are not compared with the photos.
  const compared = searched ? { ...search, query: { text: searched } } : search;
  const list = { hits: [...hits], search: compared };
  lists.push(list);
  showItems(at(id), hits, search.target, actionsOf(list, act));
  return list;
}

function actionsOf(list, { open, similar }) {
  return { open: (hit) => open(hit, list), similar };
}

// --- The summary ---

function showNoMatch(answer) {
  const none = answer.no_match === true;
  at("no-match").hidden = !none;
  at("found").classList.toggle("no-match", none);
  at("nearest").hidden = answer.hits.length === 0;
}

// What is shown, and under "Details" how it was found.
function summary(search, answer, shown, moved = "") {
  if (shown === 0) return [emptiness(search, answer)];
  const noun = NOUNS[search.target];
  const unjudged = answer.degraded.includes("min_probability")
    ? " Probabilities are not reliable for this query, so no hit was hidden."
    : "";
  const method = make("span", { className: "detail" }, ` ${methodOf(answer)}. ${moved}`);
  const order = orderOf(search, answer);
  // Less likely items are left out of a sorted list.
  const kept =
    isSorted(search) && !isLast(search, answer)
      ? `The best ${counted(shown, noun)}`
      : `${counted(shown, noun)} shown`;
  return [order ? `${kept}, ${order}.` : `${kept}.`, method, unjudged];
}

function orderOf(search, { unknown_fields: unknown }) {
  if (!isSorted(search)) return "best first";
  const field = search.sort.replace(/^-/, "");
  if (!unknown.includes(field)) return orderWords(search);
  return `best first: no ${NOUNS[search.target]} has the metadata field “${field}”`;
}

function emptiness({ offset, minProbability, filter, target }, answer) {
  if (offset > 0) return "Nothing follows.";
  const unknown = unknownFields(target, answer.unknown_fields);
  if (unknown) return unknown;
  if (minProbability !== null && answer.probabilities_reliable) {
    return "No hit is that likely. Lower the limit or rephrase the query.";
  }
  if (Object.keys(filter).length) return nothingPasses(target);
  if (answer.read.length) return `No ${NOUNS[target]} passes what was read: ${readingWords(answer)}.`;
  return nothingThere(target);
}

export function unknownFields(target, fields) {
  if (fields.length === 0) return null;
  const names = fields.map((field) => `“${field}”`).join(" or ");
  return `No ${NOUNS[target]} has the metadata field ${names}.`;
}

export const nothingPasses = (target) => `No ${NOUNS[target]} passes this filter.`;
export const nothingThere = (target) => `There are no ${NOUNS[target]}s in this index yet.`;
export const allOf = (target, total) => counted(total, NOUNS[target]);
