// An answer on the page: the hits, what is said of them, the other order beside them.

import { hideComparison, showComparison } from "./compare.js";
import { at, percent } from "./elements.js";
import { learnFields } from "./filters.js";
import { showUsed } from "./options.js";
import { hidePages, showPages } from "./paging.js";
import { showHits, showSkeletons } from "./results.js";
import { hideTimings, showTimings } from "./timings.js";

// The lists that are shown, each {hits, search}: the search that found them.
let lists = [];

// answered: {search, answer, ms, matching}, the last the answer of matching alone or null.
// act: {open(hit, list), similar(hit)}
export function showAnswer({ search, answer, ms, matching }, act) {
  learnFields(answer.hits);
  showUsed(answer);
  lists = [];
  showList("hits", answer, search, act);
  hideComparison();
  let moved = "";
  if (matching) {
    showList("matching-hits", matching, { ...search, rerank: false }, act);
    moved = showComparison(answer, matching);
  }
  showNoMatch(answer);
  at("found").classList.remove("waiting");
  at("found").classList.toggle("empty", answer.hits.length === 0);
  at("status").textContent = `${summary(search, answer)} ${moved}`.trim();
  if (answer.hits.length) showTimings(answer.took_ms, ms);
  else hideTimings();
  showPages(search, answer.hits.length);
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
  hidePages();
  at("no-match").hidden = true;
  at("found").classList.remove("waiting", "empty", "no-match");
  at("status").textContent = "";
}

// {hit, list} of a hit that is shown, or null.
export function shownHit(id) {
  for (const list of lists) {
    const hit = list.hits.find((one) => one.id === id);
    if (hit) return { hit, list };
  }
  return null;
}

function showList(id, { hits }, search, { open, similar }) {
  const list = { hits, search };
  lists.push(list);
  showHits(at(id), hits, search.target, { open: (hit) => open(hit, list), similar });
}

function showNoMatch(answer) {
  const chance = answer.match_probability ?? null;
  // A chance of 0: nothing was searched, and the status says why.
  const none = answer.no_match === true && chance !== 0;
  at("no-match").hidden = !none;
  at("found").classList.toggle("no-match", none);
  at("nearest").hidden = answer.hits.length === 0;
  at("no-match-chance").textContent =
    chance === null ? "" : `The chance that anything does is ${percent(chance)}.`;
}

function summary(search, answer) {
  const { hits } = answer;
  const unjudged = answer.degraded.includes("min_probability");
  if (hits.length === 0) return emptiness(search, answer);
  const noun = search.target === "images" ? "Photos" : "Texts";
  const [first, last] = [hits[0].rank, hits.at(-1).rank];
  const which = first === last ? `${noun.slice(0, -1)} ${first}` : `${noun} ${first} to ${last}`;
  const how = answer.reranked ? `the best of ${answer.candidates} re-ranked` : "by embedding alone";
  const lacking = answer.degraded.filter((each) => each !== "min_probability");
  const without = lacking.length ? `, without ${lacking.join(", ")}` : "";
  const all = unjudged ? " How likely these are cannot be told here, so none was left out." : "";
  return `${which}, ${how}${without}.${all}`;
}

function emptiness({ offset, minProbability, filter, target }, answer) {
  if (offset > 0) return "No more hits.";
  const unknown = answer.unknown_fields.map((field) => `“${field}”`).join(" or ");
  if (unknown) return `No ${target === "images" ? "photo" : "text"} has a field ${unknown} to filter by.`;
  if (minProbability !== null && answer.probabilities_reliable) return "Nothing is that likely: ask for less, or in other words.";
  if (Object.keys(filter).length) return "Nothing passes this filter.";
  return "Nothing found: the index holds nothing of this kind.";
}
