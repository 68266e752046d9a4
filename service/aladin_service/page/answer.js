// The answer to a search: the lists of hits, the summary above them, and further hits as they are
// asked for.

import { hideComparison, showComparison } from "./compare.js";
import { hideTimings, methodOf, showTimings } from "./details.js";
import { at, make, percent } from "./elements.js";
import { count, counted } from "./formats.js";
import { appendItems, showItems, showSkeletons } from "./grid.js";
import { offerMore } from "./more.js";
import { showUsed } from "./options.js";

// The lists on the page, each {hits, search} with the search that found them.
let lists = [];

// answered: {search, answer, ms, matching}; matching is the answer of the first stage alone, or null.
// act: {open(hit, list), similar(hit), further(search)}; further: asks for the hits of another page.
export function showAnswer({ search, answer, ms, matching }, act) {
  showUsed(answer);
  lists = [];
  const list = showList("hits", answer, search, act);
  hideComparison();
  let moved = "";
  if (matching) {
    showList("matching-hits", matching, { ...search, rerank: false }, act);
    moved = showComparison(answer, matching);
  }
  showNoMatch(answer);
  at("found").classList.remove("waiting");
  at("found").classList.toggle("empty", answer.hits.length === 0);
  at("status").replaceChildren(...summary(search, answer, list.hits.length, moved));
  if (answer.hits.length) showTimings(answer.took_ms, ms);
  else hideTimings();
  showSharing(search, answer.hits.length);
  // Two rankings are compared on one page: hits that follow would change what moved.
  list.isLast = Boolean(matching) || isLast(search, answer);
  offerFurther(list, search.offset + search.k, act);
}

function offerFurther(list, offset, act) {
  offerMore(list.isLast ? null : () => showFurther(list, offset, act));
}

// Append the hits that start at an offset.
async function showFurther(list, offset, act) {
  const search = { ...list.search, offset };
  const answer = await act.further(search);
  if (!lists.includes(list)) return; // another search is shown by now
  list.hits.push(...answer.hits);
  appendItems(at("hits"), answer.hits, search.target, actionsOf(list, act));
  at("status").replaceChildren(...summary(search, answer, list.hits.length));
  list.isLast = isLast(search, answer);
  offerFurther(list, offset + search.k, act);
}

// With a smallest probability, hidden hits make a page shorter although others may follow.
function isLast(search, { hits }) {
  return hits.length === 0 || (hits.length < search.k && search.minProbability === null);
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
  offerMore(null);
  for (const element of [share, at("no-match")]) element.hidden = true;
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

function showList(id, { hits }, search, act) {
  const list = { hits: [...hits], search };
  lists.push(list);
  showItems(at(id), hits, search.target, actionsOf(list, act));
  return list;
}

function actionsOf(list, { open, similar }) {
  return { open: (hit) => open(hit, list), similar };
}

// --- The summary ---

function showNoMatch(answer) {
  const chance = answer.match_probability ?? null;
  // At a probability of 0 nothing was searched, and the status explains why.
  const none = answer.no_match === true && chance !== 0;
  at("no-match").hidden = !none;
  at("found").classList.toggle("no-match", none);
  at("nearest").hidden = answer.hits.length === 0;
  at("no-match-chance").textContent =
    chance === null ? "" : `Probability that any item matches: ${percent(chance)}.`;
}

// What is shown, and under "Details" how it was found.
function summary(search, answer, shown, moved = "") {
  if (shown === 0) return [emptiness(search, answer)];
  const kept = counted(shown, search.target === "images" ? "photo" : "text");
  const unjudged = answer.degraded.includes("min_probability")
    ? " Probabilities are not reliable for this query, so no hit was hidden."
    : "";
  const method = make("span", { className: "detail" }, ` ${methodOf(answer)}. ${moved}`);
  return [`${kept} shown, best first.`, method, unjudged];
}

function emptiness({ offset, minProbability, filter, target }, answer) {
  if (offset > 0) return "Nothing follows.";
  const unknown = unknownFields(target, answer.unknown_fields);
  if (unknown) return unknown;
  if (minProbability !== null && answer.probabilities_reliable) {
    return "No hit is that likely. Lower the limit or rephrase the query.";
  }
  if (Object.keys(filter).length) return nothingPasses(target);
  return nothingThere(target);
}

const NOUNS = { images: "photo", texts: "text" };

export function unknownFields(target, fields) {
  if (fields.length === 0) return null;
  const names = fields.map((field) => `“${field}”`).join(" or ");
  return `No ${NOUNS[target]} has the metadata field ${names}.`;
}

export const nothingPasses = (target) => `No ${NOUNS[target]} passes this filter.`;
export const nothingThere = (target) => `There are no ${NOUNS[target]}s in this index yet.`;
export const allOf = (target, total) => `${count(total)} ${NOUNS[target]}${total === 1 ? "" : "s"}`;

// --- The link to the search ---

const COPIED_MS = 2000;

const share = at("share");

export function startSharing() {
  share.addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.href);
    share.textContent = "Copied";
    setTimeout(() => (share.textContent = "Copy link"), COPIED_MS);
  });
}

// A link cannot contain a photo, and browsers offer the clipboard only to pages from localhost or
// over HTTPS: there is no button then.
function showSharing({ query }, hits) {
  share.hidden = !navigator.clipboard || Boolean(query.file) || hits === 0;
}
