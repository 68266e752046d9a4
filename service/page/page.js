// The page at /: one search at a time, from the address, the field, a photo or a hit.

import { fromAddress, toAddress } from "./address.js";
import { hideComparison, showComparison, startComparison } from "./compare.js";
import { at } from "./elements.js";
import { closeEvidence, limitPhotos, openEvidence, startEvidence } from "./evidence.js";
import { narrowed } from "./filter_language.js";
import { learnFields, showFilter, startFilters } from "./filters.js";
import { askForKey, startKeyForm } from "./key_form.js";
import "./keyboard.js";
import { startOffline, waitForService } from "./offline.js";
import { showDefaults, showOptions, showUsed, startOptions } from "./options.js";
import { hidePages, showPages, startPaging } from "./paging.js";
import { startPhotoInput } from "./photo_input.js";
import { hideProblem, showProblem } from "./problems.js";
import { showQuery, startQueryField } from "./query_field.js";
import { showHits, showSkeletons } from "./results.js";
import { NEW_SEARCH, changed, crossesKinds, nameOf } from "./search.js";
import { NeedsKey, Problem, Unreachable, askSearch, describeIndex, readLimits } from "./service.js";
import { hideTimings, showTimings } from "./timings.js";

const FINAL = [400, 403, 404, 413, 415, 421, 422]; // the same request would get the same answer
const PATIENCE_MS = 150; // an answer that comes sooner needs no sign of waiting

let search = NEW_SEARCH;
let found = null; // {answer, matching}: of the search, once it is answered
let running = null; // the AbortController of the search under way
let limits = {};

// --- One search ---

// Show another search, and keep it in the history.
function go(next) {
  const address = toAddress(next);
  if (location.hash !== address) history.pushState(null, "", address);
  show(next);
}

function show(next, openId = null) {
  search = next;
  closeEvidence();
  showQuery(search);
  showOptions(search);
  showFilter(search.filter);
  at("compare").checked = search.compare;
  showSharing();
  if (search.query) run(openId);
  else rest();
}

// Nothing is looked for yet.
function rest() {
  running?.abort();
  running = null;
  hideProblem();
  clear();
  at("status").textContent = "";
  document.body.classList.add("starting");
}

async function run(openId = null) {
  running?.abort();
  const mine = (running = new AbortController());
  hideProblem();
  document.body.classList.remove("starting");
  const patience = setTimeout(showWaiting, PATIENCE_MS);
  try {
    checkLimits(search.query);
    const answers = await Promise.all([
      timed(askSearch(search, mine.signal)),
      comparing() ? askSearch({ ...search, rerank: false }, mine.signal) : null,
    ]);
    if (mine !== running) return;
    showAnswer(...answers);
    const opened = hitWith(openId);
    if (opened) openEvidence(opened, found.answer.hits, search);
  } catch (error) {
    if (mine === running) fail(error);
  } finally {
    clearTimeout(patience);
    if (mine === running) at("found").classList.remove("waiting");
  }
}

// Without a second stage there is nothing to compare with.
function comparing() {
  return search.compare && crossesKinds(search) && search.rerank;
}

async function timed(answering) {
  const started = performance.now();
  const answer = await answering;
  return { answer, ms: performance.now() - started };
}

function checkLimits({ file, text }) {
  if (file?.size > limits.max_image_bytes) {
    const message = `it has ${file.size} bytes, and at most ${limits.max_image_bytes} are taken`;
    throw new Problem(message, { status: 413 });
  }
  if (file?.size === 0) throw new Problem("the file is empty", { status: 415 });
  if (text && [...text].length > limits.max_text_chars) {
    const message = `the text has ${[...text].length} characters, at most ${limits.max_text_chars} are taken`;
    throw new Problem(message, { status: 422 });
  }
}

// --- Showing ---

function showWaiting() {
  at("status").textContent = "Searching…";
  at("found").classList.add("waiting");
  if (!at("hits").children.length) showSkeletons(at("hits"), search.target, search.k);
}

function showAnswer({ answer, ms }, matching) {
  found = { answer, matching };
  learnFields(answer.hits);
  showUsed(answer);
  showList("hits", answer.hits, search);
  hideComparison();
  let moved = "";
  if (matching) {
    showList("matching-hits", matching.hits, { ...search, rerank: false });
    moved = showComparison(answer, matching);
  }
  const none = answer.no_match === true;
  at("no-match").hidden = !none || answer.hits.length === 0;
  at("found").classList.toggle("no-match", none);
  at("status").textContent = `${statusLine(answer)} ${moved}`.trim();
  showTimings(answer.took_ms, ms);
  showPages(search, answer.hits.length);
}

function showList(id, hits, listSearch) {
  showHits(at(id), hits, search.target, {
    open: (hit) => open(hit, hits, listSearch),
    similar,
  });
}

function statusLine(answer) {
  const { hits } = answer;
  if (hits.length === 0) return emptyLine();
  const noun = search.target === "images" ? "photos" : "texts";
  const how = answer.reranked ? `the best of ${answer.candidates} re-ranked` : "by embedding alone";
  const without = answer.degraded.length ? `, without ${answer.degraded.join(", ")}` : "";
  const which = hits.length > 1 ? `${noun} ${hits[0].rank} to ${hits.at(-1).rank}` : `1 of the ${noun}`;
  return `${which.charAt(0).toUpperCase()}${which.slice(1)}, ${how}${without}.`;
}

function emptyLine() {
  if (search.offset > 0) return "No more hits.";
  if (search.minProbability !== null) return "Nothing is that likely. Ask for less, or in other words.";
  if (Object.keys(search.filter).length) return "Nothing passes this filter.";
  return "Nothing found: the index holds nothing of this kind.";
}

function clear() {
  found = null;
  for (const id of ["hits", "matching-hits"]) at(id).replaceChildren();
  hideComparison();
  hideTimings();
  hidePages();
  at("no-match").hidden = true;
}

function fail(error) {
  clear();
  at("status").textContent = "";
  if (error instanceof NeedsKey) {
    askForKey();
    if (error.code !== "unauthorized" || triedKey) showProblem(error);
  } else if (error instanceof Unreachable) waitForService(() => run());
  else showProblem(error, FINAL.includes(error.status) ? null : () => run());
}

let triedKey = false; // before it, that one is missing is no news

// --- From a hit to other searches ---

function open(hit, hits, listSearch) {
  if (history.state?.open) history.replaceState({ open: hit.id }, "", toAddress(search, hit.id));
  else history.pushState({ open: hit.id }, "", toAddress(search, hit.id));
  openEvidence(hit, hits, listSearch);
}

function itemQuery(hit) {
  return { id: hit.id, name: nameOf(hit), of: search.target };
}

function similar(hit) {
  go(changed(search, { query: itemQuery(hit) }));
}

function cross(hit) {
  const target = search.target === "images" ? "texts" : "images";
  go(changed(search, { query: itemQuery(hit), target }));
}

// --- Starting ---

function start() {
  startQueryField({
    submit(text) {
      if (search.query && !("text" in search.query)) run();
      else if (text) go(changed(search, { query: { text } }));
    },
    target: (target) => change({ target }),
    remove: () => go(changed(search, { query: null })),
  });
  startPhotoInput((file) => go(changed(search, { query: { file } })));
  startFilters((filter) => change({ filter }));
  startOptions((options) => change(options));
  startPaging((offset) => {
    change({ offset });
    at("found").scrollIntoView();
    at("found").focus({ preventScroll: true });
  });
  startComparison();
  at("compare").addEventListener("change", () => change({ compare: at("compare").checked, offset: search.offset }));
  startEvidence({
    similar,
    cross,
    filter: (field, value) => change({ filter: narrowed(search.filter, field, value) }),
    step: open,
    close: forgetOpen,
  });
  startKeyForm(() => {
    triedKey = true;
    showIndex();
    if (search.query) run();
  });
  startOffline();
  startSharing();
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address is the search's
    at("found").focus();
  });
}

// Before there is a query, what is chosen waits for it.
function change(difference) {
  const next = changed(search, difference);
  if (next.query) go(next);
  else show(next);
}

// --- The address ---

// Do what the address says: at the start, and when the user goes back or forward.
function recall() {
  const { search: wanted, openId, lostPhoto } = fromAddress(location.hash);
  const isHere = found !== null && toAddress(wanted) === toAddress(search);
  const opened = isHere ? hitWith(openId) : undefined;
  if (opened) openEvidence(opened, found.answer.hits, search);
  else if (isHere) closeEvidence();
  else show(wanted, openId);
  if (lostPhoto !== null) {
    at("status").textContent = "This was a search with a photo, which no address can hold. Choose it again.";
  }
}

function hitWith(id) {
  return found.answer.hits.find((hit) => hit.id === id);
}

// The user closed the hit: its address is left the way it was come to.
function forgetOpen() {
  if (fromAddress(location.hash).openId === null) return;
  if (history.state?.open) history.back();
  else history.replaceState(null, "", toAddress(search));
}

// A photo of this machine is in no address.
function showSharing() {
  const button = at("share");
  button.hidden = search.query === null || !navigator.clipboard;
  button.disabled = search.query?.file !== undefined;
  button.textContent = button.disabled ? "Your photo is in no link" : "Copy link";
}

function startSharing() {
  const button = at("share");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy link"), 2000);
  });
}

// --- The index ---

async function showIndex() {
  try {
    const index = await describeIndex();
    const sides = [];
    for (const [target, noun] of [["images", "photos"], ["texts", "texts"]]) {
      const choice = document.querySelector(`input[name=target][value=${target}]`);
      choice.disabled = index[target] === null;
      if (index[target]) sides.push(`${index[target].count.toLocaleString()} ${noun}`);
      else if (choice.checked) change({ target: target === "images" ? "texts" : "images" });
    }
    at("index-info").textContent = sides.join(" · ");
    showDefaults(index.default_candidates);
  } catch (error) {
    if (error instanceof NeedsKey) askForKey();
    else if (error instanceof Unreachable) waitForService(showIndex);
    else showProblem(error, showIndex);
  }
}

async function learnLimits() {
  try {
    limits = await readLimits();
    limitPhotos(limits.max_photo_size_px);
  } catch {
    // Then the service says so when something is too large.
  }
}

start();
recall();
showIndex();
learnLimits();
addEventListener("popstate", recall);
