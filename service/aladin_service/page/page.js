// The page at /: shows one search at a time, started from the address, the text field, a photo or a
// hit.

import {
  clearAnswer,
  showAnswer,
  showWaiting,
  shownHit,
  startPaging,
  startSharing,
} from "./answer.js";
import { startComparison } from "./compare.js";
import { at } from "./elements.js";
import { closeEvidence, openEvidence, startEvidence } from "./evidence.js";
import { narrowed } from "./filter_language.js";
import { showFilter, startFilters } from "./filters.js";
import { showIndexFacts, showOptions, startOptions } from "./options.js";
import {
  askForKey,
  hideProblem,
  showProblem,
  startKeyForm,
  startOffline,
  waitForService,
} from "./problems.js";
import {
  focusQuery,
  showQuery,
  startPhotoInput,
  startQueryField,
  typeWords,
  typedWords,
} from "./query_field.js";
import { neighbour } from "./results.js";
import {
  NEW_SEARCH,
  changed,
  crossesKinds,
  fromAddress,
  nameOf,
  titleOf,
  toAddress,
} from "./search.js";
import { NeedsKey, Unreachable, askSearch, checkQuery, learnLimits } from "./service.js";

const WAITING_AFTER_MS = 150; // faster answers need no waiting state
const FINAL = [400, 403, 404, 413, 415, 421, 422]; // repeating the request would not help

let search = NEW_SEARCH; // what the page shows or is about to show
let answered = false;
let running = null; // the AbortController of the current request

// --- One search ---

// Show another search, and add it to the history.
function go(next) {
  const address = toAddress(next);
  if (location.hash !== address) history.pushState(null, "", address);
  show(next);
}

// Change the search, and return to its first page. Without a query, the choice is kept for the next
// one, and the typed text stays.
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

// The same, with the text that was typed but not yet searched for.
function changeWithTyped(difference) {
  const text = typedWords();
  const isNew = text !== "" && text !== search.query?.text;
  change(isNew ? { ...difference, query: { text }, offset: 0 } : difference);
}

// A choice beside the text field: it changes the current search, and starts none by itself.
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
  clearAnswer();
}

async function run(openId = null) {
  running?.abort();
  const mine = (running = new AbortController());
  answered = false;
  hideProblem();
  const waiting = setTimeout(() => showWaiting(search), WAITING_AFTER_MS);
  try {
    checkQuery(search.query);
    const [timed, matching] = await Promise.all([ask(mine), askMatching(mine)]);
    if (mine !== running) return;
    showAnswer({ search, ...timed, matching }, { open, similar });
    answered = true;
    const opened = shownHit(openId);
    if (opened) openEvidence(opened.hit, opened.list);
  } catch (error) {
    if (mine === running) fail(error);
  } finally {
    clearTimeout(waiting);
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

// The ranking of the first stage; null if there is no second stage to compare it with.
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
  // However many hits are opened in turn, Back returns to the search.
  if (history.state?.open) history.replaceState({ open: true }, "", address);
  else history.pushState({ open: true }, "", address);
  openEvidence(hit, list);
}

// After the dialog was closed: leave its address the way it was reached.
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

// Show what the address describes: at the start, and after Back or Forward.
function recall() {
  const { search: wanted, openId, lostPhoto } = fromAddress(location.hash);
  const isHere = answered && toAddress(wanted) === toAddress(search);
  const opened = isHere ? shownHit(openId) : null;
  if (opened) openEvidence(opened.hit, opened.list);
  else if (isHere) closeEvidence();
  else show(wanted, openId);
  if (lostPhoto) {
    at("status").textContent = "The address does not contain your photo. Choose it again.";
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

// --- The keyboard: / focuses the query, arrows move between hits ---

const TYPING = "input:not([type=radio], [type=checkbox], [type=range]), textarea, select";

function startKeyboard() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part of the address after # is the search
    at("found").focus();
  });
  addEventListener("keydown", onKey);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || event.target.matches?.(TYPING)) return;
  if (event.key === "/") {
    event.preventDefault();
    focusQuery();
    return;
  }
  const hit = event.target.closest?.(".hit");
  const next = hit && neighbour(hit, event.key);
  if (!next) return;
  event.preventDefault(); // arrows would also scroll the page
  next.querySelector(".open").focus();
}

// --- Start ---

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
