// The page at /: opens on all items, and shows one search at a time, started from the address, the
// text field, a photo or an item.

import { clearAnswer, showAnswer, showWaiting, shownHit } from "./answer.js";
import { followIndex, forgetArrivals } from "./arrivals.js";
import { startComparison } from "./compare.js";
import { at } from "./elements.js";
import { learnExamples, showSuggestions, startSuggestions } from "./examples.js";
import { narrowed } from "./filter_language.js";
import { showFilter, startFilters } from "./filters.js";
import { refreshPhotos } from "./grid.js";
import { loadIndexFacts } from "./index_facts.js";
import { forgetLibrary, hideLibrary, listedItem, refreshLibrary, showLibrary } from "./library.js";
import { startKeyboard } from "./keyboard.js";
import { forgetMarks, startMarks } from "./marks.js";
import { loadMore, startMore } from "./more.js";
import { showOptions, startOptions } from "./options.js";
import { hideOrder, startOrder } from "./order.js";
import { startReading } from "./reading.js";
import { forgetPicks, startPicks } from "./picks.js";
import { hideSplit, showTerms, startTerms } from "./terms.js";
import { remember, showDetails, startPreferences } from "./preferences.js";
import {
  askForKey,
  hideProblem,
  showProblem,
  startKeyForm,
  startOffline,
  waitForService,
} from "./problems.js";
import {
  showQuery,
  startPhotoInput,
  startQueryField,
  typeWords,
  typedWords,
} from "./query_field.js";
import {
  NEW_SEARCH,
  changed,
  fromAddress,
  isCompared,
  itemQuery,
  titleOf,
  toAddress,
} from "./search.js";
import {
  NeedsKey,
  Problem,
  Unreachable,
  askSearch,
  checkQuery,
  learnLimits,
  readItem,
  takeToken,
} from "./service.js";
import { isStacked, showStacking, startStacking } from "./stacks.js";
import { closeViewer, openViewer, startViewer } from "./viewer.js";

const WAITING_AFTER_MS = 150; // faster answers need no waiting state
const FINAL = [400, 403, 404, 413, 415, 421, 422]; // repeating the request would not help

let search = NEW_SEARCH; // what the page shows or is about to show
let answered = false;
let running = null; // the AbortController of the current request
let libraryTop = 0; // where the reader was among all items

// --- One search ---

// Show another search, and add it to the history.
function go(next) {
  const address = toAddress(next);
  if (location.hash !== address) history.pushState(null, "", address);
  show(next);
}

function change(difference) {
  go(changed(search, difference));
}

// The same, with the text that was typed but not yet searched for.
function changeWithTyped(difference) {
  const text = typedWords();
  const isNew = text !== "" && text !== search.query?.text;
  change(isNew ? { ...difference, query: { text }, offset: 0 } : difference);
}

// A choice beside the text field: it changes what is shown, and searches for no text that was typed.
function choose(difference) {
  if (search.query) {
    changeWithTyped(difference);
    return;
  }
  const typed = typedWords();
  change(difference);
  typeWords(typed);
}

function show(next, openId = null) {
  if (search.query === null && answered) libraryTop = scrollY;
  const wasSearch = search.query !== null;
  search = next;
  if (wasSearch !== (search.query !== null)) hideOrder();
  document.title = titleOf(search);
  closeViewer();
  forgetMarks();
  forgetPicks();
  showQuery(search);
  showTerms(search);
  showOptions(search);
  showFilter(search);
  showStacking(search);
  at("compare").checked = search.compare;
  if (search.compare) showDetails(true);
  document.body.classList.toggle("starting", search.query === null);
  document.body.classList.toggle("texts-shown", search.target === "texts");
  showSuggestions(search.query === null);
  stop();
  if (search.query) run(openId);
  else browse(openId, wasSearch ? libraryTop : null);
}

function stop() {
  running?.abort();
  running = null;
  answered = false;
  hideProblem();
  forgetArrivals();
}

async function run(openId = null) {
  stop();
  const mine = (running = new AbortController());
  const waiting = setTimeout(() => {
    hideLibrary();
    showWaiting(search);
  }, WAITING_AFTER_MS);
  try {
    checkQuery(search.query);
    const [timed, matching] = await Promise.all([ask(mine, search), askMatching(mine, search)]);
    if (mine !== running) return;
    hideLibrary();
    showAnswer({ search, ...timed, matching }, { open, similar, further });
    answered = true;
    if (search.query.text) remember(search.query.text);
    reopen(openId);
  } catch (error) {
    if (mine === running) fail(error, runAgain);
  } finally {
    clearTimeout(waiting);
  }
}

function runAgain() {
  run();
}

// Show all items; top: where to scroll to, or null.
async function browse(openId = null, top = null) {
  stop();
  clearAnswer();
  const mine = (running = new AbortController());
  try {
    const list = await showLibrary(search, { open, similar, choose }, mine.signal);
    if (mine !== running) {
      if (search.query) hideLibrary();
      return;
    }
    if (list === null) {
      hideLibrary();
      hideOrder();
    }
    answered = true;
    if (top !== null) scrollTo(0, top);
    reopen(openId);
  } catch (error) {
    if (mine === running) fail(error, () => browse(openId));
  }
}

async function ask({ signal }, wanted, more = {}) {
  const stack = await isStacked(wanted);
  const started = performance.now();
  const answer = await askSearch(wanted, signal, stack ? { ...more, stack } : more);
  return { answer, ms: performance.now() - started };
}

// The ranking of the first stage; null if there is no second stage to compare it with.
async function askMatching(mine, wanted) {
  return isCompared(wanted) ? (await ask(mine, wanted, { rerank: false })).answer : null;
}

// {answer, matching} of another page, as in `run`.
async function further(wanted) {
  const mine = running ?? new AbortController();
  const [{ answer }, matching] = await Promise.all([ask(mine, wanted), askMatching(mine, wanted)]);
  return { answer, matching };
}

function fail(error, again) {
  stop();
  hideLibrary();
  hideOrder();
  hideSplit();
  clearAnswer();
  if (error instanceof Unreachable) waitForService(again);
  else if (error instanceof NeedsKey) askForKey(error);
  else showProblem(error, FINAL.includes(error.status) ? null : again);
}

// --- From an item ---

const shownItem = (id) => shownHit(id) ?? listedItem(id);

// Open the item of an address; one that is not on the page is looked up.
async function reopen(id) {
  if (id === null) return;
  const found = shownItem(id);
  if (found) {
    openViewer(found.hit, found.list);
    return;
  }
  const mine = search;
  try {
    const hit = await readItem(search.target, id);
    if (mine === search) openViewer(hit, { hits: [hit], search });
  } catch ({ status }) {
    const what = status === 404 ? "is no longer in the index" : "could not be loaded";
    if (mine === search) at("status").append(` The item of this address ${what}.`);
  }
}

function open(hit, list) {
  const address = toAddress(search, hit.id);
  // However many items are opened in turn, Back returns to the list.
  if (history.state?.open) history.replaceState({ open: true }, "", address);
  else history.pushState({ open: true }, "", address);
  openViewer(hit, list);
}

// After the dialog was closed: leave its address the way it was reached.
function forgetOpen() {
  if (fromAddress(location.hash).openId === null) return;
  if (history.state?.open) history.back();
  else history.replaceState(null, "", toAddress(search));
}

function searchBy(query, target = search.target) {
  change({ query, terms: [], target });
  scrollTo(0, 0);
}

const similar = (hit) => searchBy(itemQuery(hit, search.target));

function cross(hit) {
  searchBy(itemQuery(hit, search.target), search.target === "images" ? "texts" : "images");
}

// box: null for the whole photo.
function part({ box: _, ...whole }, box) {
  searchBy(box === null ? whole : { ...whole, box }, "images");
}

// --- The address ---

// Show what the address describes: at the start, and after Back or Forward.
function recall() {
  const { search: wanted, openId, lostPhoto } = fromAddress(location.hash);
  const isHere = answered && toAddress(wanted) === toAddress(search);
  const opened = isHere ? shownItem(openId) : null;
  if (opened) openViewer(opened.hit, opened.list);
  else if (isHere && openId === null) closeViewer();
  else show(wanted, openId);
  if (lostPhoto) {
    const title = "Your photo is not here.";
    showProblem(new Problem("A link does not contain your photo; choose it again.", { title }));
  }
}

// --- The index ---

async function learnIndex() {
  try {
    const { index, targets } = await loadIndexFacts();
    if (targets.length === 1 && search.target !== targets[0]) show(changed(search, { target: targets[0] }));
    followIndex(index, {
      searched: () => (search.query && answered ? search.target : null),
      search: runAgain,
      list: () => (search.query === null && answered ? refreshLibrary({ open, similar, choose }) : null),
    });
    await learnExamples(targets);
    showSuggestions(search.query === null);
  } catch (error) {
    if (error instanceof Unreachable) waitForService(learnIndex);
    else if (error instanceof NeedsKey) askForKey(error);
    else showProblem(error, learnIndex);
  }
}

// --- Start ---

const searchFor = (text) => {
  go(changed(search, { query: { text } }));
  scrollTo(0, 0);
};

takeToken(); // first: all that follows asks the service
startPreferences(refreshPhotos);
startQueryField({
  submit(text) {
    if (search.query && !("text" in search.query)) run();
    else if (text) searchFor(text);
    else if (search.query) change({ query: null });
  },
  target: (target) => choose({ target }),
  remove: () => change({ query: null }),
  part: (box) => part(search.query, box),
});
startPhotoInput((file) => change({ query: { file } }));
startSuggestions(searchFor);
startFilters((filter) => changeWithTyped({ filter }));
startOptions(choose);
startTerms(changeWithTyped);
startReading(choose);
startMarks((examples) => {
  const marked = new Set(examples.map(({ id }) => id));
  change({ terms: [...search.terms.filter(({ id }) => !marked.has(id)), ...examples] });
  scrollTo(0, 0);
});
startMore();
startComparison((compare) => choose({ compare, offset: search.offset }));
startViewer({
  similar,
  cross,
  part,
  filter: (field, value) => change({ filter: narrowed(search.filter, field, value) }),
  step: open,
  more: loadMore,
  close: forgetOpen,
});
startOrder(choose);
startStacking(choose);
startKeyForm(() => {
  learnIndex();
  forgetLibrary();
  if (search.query) run();
  else browse();
});
startPicks(); // before the keyboard's moves: it looks where they start
startKeyboard();
startOffline();
addEventListener("popstate", recall);
recall();
learnIndex();
learnLimits();
