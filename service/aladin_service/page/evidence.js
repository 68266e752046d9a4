// Why a photo and a text match: requested when a hit is opened, and shown beside and on the photo.

import { at, make } from "./elements.js";
import { frameElement, showHeat, showRegions, sumOf, wordsElement } from "./heat.js";
import { indexFacts } from "./index_facts.js";
import { showBlob, showPhoto } from "./photos.js";
import { comparedQueries } from "./search.js";
import { outlineBox, placeBox } from "./selection.js";
import { mapEvidence } from "./service.js";

const HINT = "Point at a word to see where in the photo it was found.";
const TOUCH_HINT = "Tap a word to see where in the photo it was found.";
const REGION_HINT = "Numbers are the regions of the query; point at one to see where it was found.";
const UNPLACED = "The places of the photo's regions are not known.";
const PHOTO_PX = 320;

const why = at("why");
const words = at("why-words");
const partButton = at("why-part");

let current = null; // the frame that evidence is shown for
let pinned = null; // {term, word} or {region} that was clicked: it stays highlighted

// frame: of the pair's photo, or null. onPart(box): searches for a part of that photo, or null.
// Resolves when everything is shown.
export async function showEvidence(hit, search, frame, onPart) {
  const mine = (current = { frame, onPart });
  pinned = null;
  partButton.hidden = true;
  why.hidden = true;
  at("why-sum").replaceChildren();
  words.replaceChildren(...plainText(hit, search));
  // Two photos, or two texts, have no words and regions to compare.
  const asked = comparedQueries(search);
  if (asked.length === 0 || !(await indexFacts).isAligned || mine !== current) return;
  why.hidden = false;
  note("Loading…");
  try {
    const all = await Promise.all(asked.map(({ query }) => mapEvidence(query, hit.id)));
    const terms = all.map((maps, place) => ({ maps: withWords(maps), ...asked[place] }));
    if (mine === current) showMaps(terms.filter(({ maps }) => maps.words.length > 0), frame);
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

// Regions of the query's photo take the place of words: they are called by their numbers.
function withWords(maps) {
  if (!maps.query_regions) return maps;
  const names = maps.query_regions.map((_, place) => String(place + 1));
  let start = 0;
  const words = maps.query_regions.map((region, place) => {
    const end = start + names[place].length;
    const word = { ...region, text: names[place], start, end };
    start = end + 1;
    return word;
  });
  return { ...maps, text: names.join(" "), words };
}

// The photo of the query with its box and the numbered regions inside.
function queryPart({ file, id, box }, { query_regions: regions }, place) {
  const photo = make("img", { alt: "The photo of the query" });
  if (file) showBlob(photo, file);
  else showPhoto(photo, id, PHOTO_PX);
  const frame = frameElement(photo, null);
  regions.forEach((region, word) => {
    const number = make("span", { className: "region-number", ariaHidden: "true" }, String(word + 1));
    Object.assign(number.dataset, { term: place, word });
    placeBox(number, region.box);
    frame.append(number);
  });
  outlineBox(frame, box, "asked-box");
  return make("div", { className: "query-part" }, frame);
}

// terms: {maps, role, query} of each text or box that was compared; the terms of one query have equal regions.
function showMaps(terms, frame) {
  if (terms.length === 0) {
    note("No explanation: this index has no words and regions to compare.");
    return;
  }
  words.replaceChildren(
    ...terms.flatMap(({ maps, role, query }, term) => {
      const lookAt = (word, pin) => look(terms, word === null ? null : { term, word }, pin);
      const title = make("h4", { className: "faint" }, role === "not" ? "Without" : "With");
      const photo = maps.query_regions ? [queryPart(query, maps, term)] : [];
      return [...(terms.length > 1 ? [title] : []), ...photo, wordsElement(maps, lookAt)];
    }),
  );
  const [{ maps: first }] = terms;
  // Of several terms, none adds up to the score of the hit.
  const ofRegions = Boolean(first.query_regions);
  if (terms.length === 1) {
    at("why-sum").replaceChildren(...sumOf(first, ofRegions ? "region" : "word"));
  }
  const every = { regions: first.regions, words: terms.flatMap(({ maps }) => maps.words) };
  const lookAtRegion = (region, pin) => look(terms, region === null ? null : { region }, pin);
  if (frame) showRegions(frame, every, lookAtRegion);
  const found = terms.find(({ maps }) => maps.found)?.maps.found;
  if (frame && found) outlineBox(frame, found, "found-box");
  const touch = matchMedia("(hover: none)").matches;
  const isPlaced = first.regions.some(({ box }) => box !== null);
  const hint = ofRegions ? REGION_HINT : touch ? TOUCH_HINT : HINT;
  note("", isPlaced ? hint : UNPLACED);
}

// Highlight a word and where it fits, or a region and its words; null: what is pinned, or nothing.
function look(terms, pointed, pin) {
  if (pin) pinned = isSame(pinned, pointed) ? null : pointed;
  const seen = pin ? pinned : (pointed ?? pinned);
  const own = seen?.word === undefined ? [] : terms[seen.term].maps.words;
  const word = own[seen?.word] ?? null;
  const region = word ? word.region : (seen?.region ?? null);
  const every = terms.flatMap(({ maps }, term) => maps.words.map((one, at) => ({ one, term, at })));
  const isLit = ({ one, term, at }) =>
    seen !== null && (word ? term === seen.term && at === seen.word : one.region === region);
  words.querySelectorAll(".word").forEach((element, place) => {
    element.classList.toggle("lit", isLit(every[place]));
    const isPinned = pinned?.word === every[place].at && pinned?.term === every[place].term;
    element.setAttribute("aria-pressed", isPinned);
  });
  words.querySelectorAll(".region-number").forEach((element) => {
    const [term, at] = [element.dataset.term, element.dataset.word].map(Number);
    element.classList.toggle("lit", isLit({ one: terms[term].maps.words[at], term, at }));
  });
  if (!current?.frame) return;
  offerPart(terms);
  const label = every.filter(isLit).map(({ one }) => one.text).join(" · ");
  const largest = Math.max(...own.map(({ score }) => score));
  const weight = word && largest > 0 ? Math.max(0, word.score) / largest : 1;
  showHeat(current.frame, { cosines: word ? word.cosines : null, weight, region, label });
}

// Offer to search by the region that is pinned, or that of the word.
function offerPart(terms) {
  const { maps } = terms[pinned?.term ?? 0];
  const region = pinned === null ? null : (pinned.region ?? maps.words[pinned.word].region);
  const box = region === null ? null : maps.regions[region].box;
  const { onPart } = current;
  partButton.hidden = box === null || !onPart;
  partButton.onclick = () => onPart(box);
}

function isSame(one, other) {
  const keys = ["term", "word", "region"];
  return keys.every((key) => one?.[key] === other?.[key]);
}

// Screen readers announce the note; the hint that takes its place is not announced for every hit.
function note(text, hint = "") {
  at("why-note").textContent = text;
  at("why-hint").textContent = hint;
  at("why-hint").hidden = text !== "" || hint === "";
}
