// Items that come into the index while the page is open: the index is described again at intervals,
// the counts follow it, and what is new is shown or offered, without moving what is being read.

import { at, makeButton } from "./elements.js";
import { NOUNS, counted } from "./formats.js";
import { showCounts } from "./index_facts.js";
import { waitForService } from "./problems.js";
import { NeedsKey, Unreachable, describeIndex } from "./service.js";

const SHORTEST_MS = 2000; // after a change
const LONGEST_MS = 30_000; // when nothing has changed for a while
const GROWTH = 1.5;

const notice = at("arrived");

let act = null;
let seen = null; // the index at the last look
let found = null; // the counts when the search on the page was answered; null: not known yet
let pauseMs = SHORTEST_MS;
let timer = null;
let looking = false;

// Follow the index from `index` on, its description at the start. May be called again.
// reactions: {searched(): the collection that the search on the page is for, or null without one;
// search(): search again; list(): bring the list of items up to date}
export function followIndex(index, reactions) {
  if (act === null) document.addEventListener("visibilitychange", onVisible);
  act = reactions;
  seen = index;
  found ??= countsOf(index);
  lookSoon();
}

// Something else is shown now.
export function forgetArrivals() {
  notice.replaceChildren();
  found = null;
  if (seen !== null) lookSoon();
}

// Offer items that are not on the page. show(): called when that is chosen.
export function offerArrivals(number, target, show) {
  const words = counted(number, `new ${NOUNS[target]}`);
  offer(words, show);
}

export const withdrawArrivals = () => notice.replaceChildren();

// The element stays while its words are the same: its focus, and what was read aloud.
function offer(words, onClick) {
  if (notice.textContent === words) return;
  const button = makeButton(words, () => {
    at("found").focus({ preventScroll: true }); // the button is gone then
    notice.replaceChildren();
    onClick();
  });
  notice.replaceChildren(button);
}

function lookSoon() {
  pauseMs = SHORTEST_MS;
  wait();
}

function wait() {
  clearTimeout(timer);
  if (document.hidden) return;
  timer = setTimeout(look, pauseMs);
}

function onVisible() {
  clearTimeout(timer);
  if (!document.hidden) look();
}

async function look() {
  if (looking) return;
  looking = true;
  try {
    await compare(await describeIndex());
  } catch (error) {
    if (error instanceof NeedsKey) return; // followed again when there is a key
    if (error instanceof Unreachable) {
      waitForService(lookSoon);
      return;
    }
    pauseMs = LONGEST_MS; // the service is busy, or has no index at the moment
  } finally {
    looking = false;
  }
  wait();
}

async function compare(index) {
  const isOther = JSON.stringify(index) !== JSON.stringify(seen);
  const [before, now] = [countsOf(seen), countsOf(index)];
  const grows = Object.keys(now).some((target) => now[target] > before[target]);
  pauseMs = isOther ? SHORTEST_MS : Math.min(LONGEST_MS, GROWTH * pauseMs);
  showCounts(index, grows);
  const target = act.searched();
  if (target === null) {
    // The list was perhaps read before the last change was seen.
    if (isOther || found === null) await act.list();
  } else if (found !== null && now[target] > found[target]) {
    offer(`New ${NOUNS[target]}s since this search: search again`, act.search);
  }
  seen = index; // not before: a list that could not be read is read again
  found ??= now;
}

const countsOf = (index) =>
  Object.fromEntries(Object.keys(NOUNS).map((target) => [target, index[target]?.count ?? 0]));
