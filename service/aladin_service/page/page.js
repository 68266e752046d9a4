// The page at /: one search at a time, from the address, the field, a photo or a hit.

import { fromAddress, toAddress } from "./address.js";
import { clearAnswer, showAnswer, showWaiting, shownHit } from "./answer.js";
import { startComparison } from "./compare.js";
import { at } from "./elements.js";
import { closeEvidence, openEvidence, startEvidence } from "./evidence.js";
import { narrowed } from "./filter_language.js";
import { showFilter, startFilters } from "./filters.js";
import { showIndexFacts } from "./index_facts.js";
import { askForKey, startKeyForm } from "./key_form.js";
import { startKeyboard } from "./keyboard.js";
import { checkQuery, learnLimits } from "./limits.js";
import { startOffline, waitForService } from "./offline.js";
import { showOptions, startOptions } from "./options.js";
import { startPaging } from "./paging.js";
import { startPhotoInput } from "./photo_input.js";
import { hideProblem, showProblem } from "./problems.js";
import { showQuery, startQueryField, typeWords, typedWords } from "./query_field.js";
import { NEW_SEARCH, changed, crossesKinds, nameOf, titleOf } from "./search.js";
import { NeedsKey, Unreachable, askSearch } from "./service.js";
import { hideSharing, showSharing, startSharing } from "./sharing.js";

const PATIENCE_MS = 150; // an answer that comes sooner needs no sign of waiting
const FINAL = [400, 403, 404, 413, 415, 421, 422]; // the same request would get the same answer

let search = NEW_SEARCH; // what the page shows, or is about to
let answered = false;
let running = null; // the AbortController of the search under way

// --- One search ---

// Show another search, and keep it in the history.
function go(next) {
  const address = toAddress(next);
  if (location.hash !== address) history.pushState(null, "", address);
  show(next);
}

// Another search, on its first page. Before there is a query, what is chosen waits for one, and
// what is typed stays.
function change(difference) {
  const next = changed(search, difference);
  if (next.query) {
    go(next);
    return;
  }
  const typed = typedWords();
  show(next);
  typeWords(typed);
}

// The same, with the words that are typed and not yet searched for.
function changeWithTyped(difference) {
  const text = typedWords();
  const isNew = text !== "" && text !== search.query?.text;
  change(isNew ? { ...difference, query: { text }, offset: 0 } : difference);
}

// A choice beside the words: it starts no search, and changes the one that there is.
function choose(difference) {
  if (search.query) changeWithTyped(difference);
  else change(difference);
}

function show(next, openId = null) {
  search = next;
  document.title = titleOf(search);
  closeEvidence();
  showQuery(search);
  showOptions(search);
  showFilter(search.filter);
  at("compare").checked = search.compare;
  document.body.classList.toggle("starting", search.query === null);
  if (search.query) run(openId);
  else stop();
}

function stop() {
  running?.abort();
  running = null;
  answered = false;
  hideProblem();
  hideSharing();
  clearAnswer();
}

async function run(openId = null) {
  running?.abort();
  const mine = (running = new AbortController());
  answered = false;
  hideProblem();
  const patience = setTimeout(() => showWaiting(search), PATIENCE_MS);
  try {
    checkQuery(search.query);
    const [timed, matching] = await Promise.all([ask(mine), askMatching(mine)]);
    if (mine !== running) return;
    showAnswer({ search, ...timed, matching }, { open, similar });
    answered = true;
    showSharing(search);
    const opened = shownHit(openId);
    if (opened) openEvidence(opened.hit, opened.list);
  } catch (error) {
    if (mine === running) fail(error);
  } finally {
    clearTimeout(patience);
  }
}

function runAgain() {
  run();
}

async function ask({ signal }) {
  const started = performance.now();
  const answer = await askSearch(search, signal);
  return { answer, ms: performance.now() - started };
}

// Without a second stage there is nothing to compare with.
function askMatching({ signal }) {
  const comparable = search.compare && search.rerank && crossesKinds(search);
  return comparable ? askSearch(search, signal, { rerank: false }) : null;
}

function fail(error) {
  stop();
  if (error instanceof Unreachable) waitForService(runAgain);
  else if (error instanceof NeedsKey) askForKey(error);
  else showProblem(error, FINAL.includes(error.status) ? null : runAgain);
}

// --- From a hit ---

function open(hit, list) {
  const address = toAddress(search, hit.id);
  // From hit to hit there is one way back: to the search.
  if (history.state?.open) history.replaceState({ open: true }, "", address);
  else history.pushState({ open: true }, "", address);
  openEvidence(hit, list);
}

// The user closed the hit: its address is left the way it was come to.
function forgetOpen() {
  if (fromAddress(location.hash).openId === null) return;
  if (history.state?.open) history.back();
  else history.replaceState(null, "", toAddress(search));
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

// --- The address ---

// Do what the address says: at the start, and when the user goes back or forward.
function recall() {
  const { search: wanted, openId, lostPhoto } = fromAddress(location.hash);
  const isHere = answered && toAddress(wanted) === toAddress(search);
  const opened = isHere ? shownHit(openId) : null;
  if (opened) openEvidence(opened.hit, opened.list);
  else if (isHere) closeEvidence();
  else show(wanted, openId);
  if (lostPhoto) {
    at("status").textContent = "A search with your own photo is in no address: choose it again.";
  }
}

// --- The index ---

async function learnIndex() {
  try {
    const targets = await showIndexFacts();
    if (targets.length === 1 && search.target !== targets[0]) change({ target: targets[0] });
  } catch (error) {
    if (error instanceof Unreachable) waitForService(learnIndex);
    else if (error instanceof NeedsKey) askForKey(error);
    else showProblem(error, learnIndex);
  }
}

// --- Starting ---

startQueryField({
  submit(text) {
    if (search.query && !("text" in search.query)) run();
    else if (text) go(changed(search, { query: { text } }));
  },
  target: (target) => choose({ target }),
  remove: () => go(changed(search, { query: null })),
});
startPhotoInput((file) => go(changed(search, { query: { file } })));
startFilters((filter) => changeWithTyped({ filter }));
startOptions(choose);
startPaging((offset) => {
  go(changed(search, { offset }));
  at("found").scrollIntoView();
  at("found").focus({ preventScroll: true });
});
startComparison((compare) => choose({ compare, offset: search.offset }));
startEvidence({
  similar,
  cross,
  filter: (field, value) => change({ filter: narrowed(search.filter, field, value) }),
  step: open,
  close: forgetOpen,
});
startKeyForm(() => {
  learnIndex();
  if (search.query) run();
});
startKeyboard();
startOffline();
startSharing();
addEventListener("popstate", recall);
recall();
learnIndex();
learnLimits();
