// The answer to a search: the lists of hits, the summary above them, the timings, the link to the
// search, and the pages.

import { hideComparison, showComparison } from "./compare.js";
import { at, make, percent } from "./elements.js";
import { learnFields } from "./filters.js";
import { showUsed } from "./options.js";
import { showHits, showSkeletons } from "./results.js";

// The lists on the page, each {hits, search} with the search that found them.
let lists = [];

// answered: {search, answer, ms, matching}; matching is the answer of the first stage alone, or null.
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
  else timings.hidden = true;
  showPages(search, answer.hits.length);
  showSharing(search);
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
  for (const element of [timings, pages, share, at("no-match")]) element.hidden = true;
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

function showList(id, { hits }, search, { open, similar }) {
  const list = { hits, search };
  lists.push(list);
  showHits(at(id), hits, search.target, { open: (hit) => open(hit, list), similar });
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

function summary(search, answer) {
  const { hits } = answer;
  const unjudged = answer.degraded.includes("min_probability");
  if (hits.length === 0) return emptiness(search, answer);
  const noun = search.target === "images" ? "Photos" : "Texts";
  const [first, last] = [hits[0].rank, hits.at(-1).rank];
  const which = first === last ? `${noun.slice(0, -1)} ${first}` : `${noun} ${first} to ${last}`;
  const how = answer.reranked
    ? `from ${answer.candidates} re-ranked candidates`
    : "ranked by embedding only";
  const lacking = answer.degraded.filter((each) => each !== "min_probability");
  const without = lacking.length ? `, degraded: ${lacking.join(", ")}` : "";
  const all = unjudged
    ? " Probabilities are not reliable for this query, so no hit was hidden."
    : "";
  return `${which}, ${how}${without}.${all}`;
}

function emptiness({ offset, minProbability, filter, target }, answer) {
  if (offset > 0) return "No more hits.";
  const unknown = answer.unknown_fields.map((field) => `“${field}”`).join(" or ");
  if (unknown) return `No ${target === "images" ? "photo" : "text"} has the metadata field ${unknown}.`;
  if (minProbability !== null && answer.probabilities_reliable) {
    return "No hit is that likely. Lower the limit or rephrase the query.";
  }
  if (Object.keys(filter).length) return "No item passes this filter.";
  return "No hits: the index has no items of this kind.";
}

// --- Timings: a bar of the stages, and the duration of each ---

const STAGES = ["decode", "encode", "retrieve", "rerank"];
const NAMES = { decode: "decode", encode: "encode", retrieve: "retrieve", rerank: "re-rank",
  rest: "other" };

const timings = at("timings");

// tookMs: from the answer; roundTripMs: from the request to its answer, as measured by this page.
function showTimings(tookMs, roundTripMs) {
  // Between the stages: waiting for a worker, reading texts, writing the answer.
  const known = STAGES.reduce((sum, stage) => sum + tookMs[stage], 0);
  const parts = { ...tookMs, rest: Math.max(0, tookMs.total - known) };
  const bar = make("div", { className: "bar", ariaHidden: "true" });
  const list = make("ul", { ariaLabel: "Milliseconds by stage" });
  list.setAttribute("role", "list");
  for (const stage of [...STAGES, "rest"]) {
    const ms = parts[stage];
    const segment = make("i", { className: stage });
    segment.style.flexGrow = ms; // the width of the bar is the total
    bar.append(segment);
    const item = make("li", {}, make("i", { className: stage, ariaHidden: "true" }));
    item.append(`${NAMES[stage]} ${milliseconds(ms)}`);
    item.dataset.ms = ms;
    list.append(item);
  }
  const service = make("li", { className: "whole" }, `${milliseconds(tookMs.total)} ms in the service`);
  const trip = make("li", { className: "whole" }, `${milliseconds(roundTripMs)} ms round trip`);
  list.append(service, trip);
  timings.replaceChildren(bar, list);
  timings.hidden = false;
}

function milliseconds(ms) {
  return ms < 10 ? ms.toFixed(1) : String(Math.round(ms));
}

// --- Pages of hits ---

const pages = at("pages");
const previous = pages.querySelector(".previous");
const next = pages.querySelector(".next");
let offsetNow = 0;
let sizeNow = 0;

// turn(offset): show the page that starts there.
export function startPaging(turn) {
  previous.addEventListener("click", () => turn(Math.max(0, offsetNow - sizeNow)));
  next.addEventListener("click", () => turn(offsetNow + sizeNow));
}

function showPages(search, shown) {
  ({ offset: offsetNow, k: sizeNow } = search);
  // With a smallest probability, hidden hits make a page shorter although others may follow.
  const isLast = shown === 0 || (shown < search.k && search.minProbability === null);
  previous.disabled = offsetNow === 0;
  next.disabled = isLast;
  at("page-number").textContent = `Page ${Math.floor(offsetNow / sizeNow) + 1}`;
  pages.hidden = previous.disabled && next.disabled;
}

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

function showSharing({ query }) {
  // Browsers offer the clipboard only to pages from localhost or over HTTPS.
  share.hidden = !navigator.clipboard;
  share.disabled = Boolean(query.file);
  share.textContent = share.disabled ? "No link: it cannot contain your photo" : "Copy link";
}
