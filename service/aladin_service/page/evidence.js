// Why a photo and a text match: requested when a hit is opened, and shown beside and on the photo.

import { at, make } from "./elements.js";
import { showHeat, showRegions, sumOf, wordsElement } from "./heat.js";
import { indexFacts } from "./index_facts.js";
import { crossesKinds } from "./search.js";
import { mapEvidence } from "./service.js";

const HINT = "Point at a word to see where in the photo it was found.";
const TOUCH_HINT = "Tap a word to see where in the photo it was found.";
const UNPLACED = "The places of the photo's regions are not known.";

const why = at("why");
const words = at("why-words");

let current = null; // the frame that evidence is shown for
let pinned = null; // {word} or {region} that was clicked: it stays highlighted

// frame: of the pair's photo, or null. Resolves when everything is shown.
export async function showEvidence(hit, search, frame) {
  const mine = (current = { frame });
  pinned = null;
  why.hidden = true;
  at("why-sum").replaceChildren();
  words.replaceChildren(...plainText(hit, search));
  // Two photos, or two texts, have no words and regions to compare.
  if (!crossesKinds(search) || !(await indexFacts).isAligned || mine !== current) return;
  why.hidden = false;
  note("Loading…");
  try {
    const maps = await mapEvidence(search.query, hit.id);
    if (mine === current) showMaps(maps, frame);
  } catch (error) {
    if (mine === current) note(`No explanation: ${error.message}.`);
  }
}

export function forgetEvidence() {
  current = null;
}

function plainText(hit, { query, target }) {
  const text = target === "texts" ? hit.text : query?.text;
  return text ? [make("p", { className: "words" }, text)] : [];
}

function showMaps(maps, frame) {
  if (maps.words.length === 0) {
    note("No explanation: this index has no words and regions to compare.");
    return;
  }
  words.replaceChildren(
    wordsElement(maps, (word, pin) => look(maps, word === null ? null : { word }, pin)),
  );
  at("why-sum").replaceChildren(...sumOf(maps));
  if (frame) showRegions(frame, maps, (region, pin) => look(maps, region === null ? null : { region }, pin));
  const touch = matchMedia("(hover: none)").matches;
  const isPlaced = maps.regions.some(({ box }) => box !== null);
  note("", isPlaced ? (touch ? TOUCH_HINT : HINT) : UNPLACED);
}

// Highlight a word and where it fits, or a region and its words; null: what is pinned, or nothing.
function look(maps, pointed, pin) {
  if (pin) pinned = isSame(pinned, pointed) ? null : pointed;
  const seen = pin ? pinned : (pointed ?? pinned);
  const word = seen?.word === undefined ? null : maps.words[seen.word];
  const region = word ? word.region : (seen?.region ?? null);
  const isLit = (one, index) =>
    seen !== null && (word ? index === seen.word : one.region === region);
  words.querySelectorAll(".word").forEach((element, index) => {
    element.classList.toggle("lit", isLit(maps.words[index], index));
    element.setAttribute("aria-pressed", pinned?.word === index);
  });
  if (!current?.frame) return;
  const label = maps.words.filter(isLit).map(({ text }) => text).join(" · ");
  const largest = Math.max(...maps.words.map(({ score }) => score));
  const weight = word && largest > 0 ? Math.max(0, word.score) / largest : 1;
  showHeat(current.frame, { cosines: word ? word.cosines : null, weight, region, label });
}

function isSame(one, other) {
  return one?.word === other?.word && one?.region === other?.region;
}

// Screen readers announce the note; the hint that takes its place is not announced for every hit.
function note(text, hint = "") {
  at("why-note").textContent = text;
  at("why-hint").textContent = hint;
  at("why-hint").hidden = text !== "" || hint === "";
}
