// Why a photo and a text match: requested when a hit is opened, and shown beside and on the photo.

import { at, make } from "./elements.js";
import { showHeat, showRegions, sumOf, wordsElement } from "./heat.js";
import { indexFacts } from "./index_facts.js";
import { comparedQueries } from "./search.js";
import { mapEvidence } from "./service.js";

const HINT = "Point at a word to see where in the photo it was found.";
const TOUCH_HINT = "Tap a word to see where in the photo it was found.";
const UNPLACED = "The places of the photo's regions are not known.";

const why = at("why");
const words = at("why-words");

let current = null; // the frame that evidence is shown for
let pinned = null; // {part, word} or {region} that was clicked: it stays highlighted

// frame: of the pair's photo, or null. Resolves when everything is shown.
export async function showEvidence(hit, search, frame) {
  const mine = (current = { frame });
  pinned = null;
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
    const parts = all.map((maps, part) => ({ maps, role: asked[part].role }));
    if (mine === current) showMaps(parts.filter(({ maps }) => maps.words.length > 0), frame);
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

// parts: {maps, role} of each text that was compared; the parts of one query have equal regions.
function showMaps(parts, frame) {
  if (parts.length === 0) {
    note("No explanation: this index has no words and regions to compare.");
    return;
  }
  words.replaceChildren(
    ...parts.flatMap(({ maps, role }, part) => {
      const lookAt = (word, pin) => look(parts, word === null ? null : { part, word }, pin);
      const title = make("h4", { className: "faint" }, role === "not" ? "Without" : "With");
      return [...(parts.length > 1 ? [title] : []), wordsElement(maps, lookAt)];
    }),
  );
  const [{ maps: first }] = parts;
  // Of several parts, none adds up to the score of the hit.
  if (parts.length === 1) at("why-sum").replaceChildren(...sumOf(first));
  const every = { regions: first.regions, words: parts.flatMap(({ maps }) => maps.words) };
  const lookAtRegion = (region, pin) => look(parts, region === null ? null : { region }, pin);
  if (frame) showRegions(frame, every, lookAtRegion);
  const touch = matchMedia("(hover: none)").matches;
  const isPlaced = first.regions.some(({ box }) => box !== null);
  note("", isPlaced ? (touch ? TOUCH_HINT : HINT) : UNPLACED);
}

// Highlight a word and where it fits, or a region and its words; null: what is pinned, or nothing.
function look(parts, pointed, pin) {
  if (pin) pinned = isSame(pinned, pointed) ? null : pointed;
  const seen = pin ? pinned : (pointed ?? pinned);
  const own = seen?.word === undefined ? [] : parts[seen.part].maps.words;
  const word = own[seen?.word] ?? null;
  const region = word ? word.region : (seen?.region ?? null);
  const every = parts.flatMap(({ maps }, part) => maps.words.map((one, at) => ({ one, part, at })));
  const isLit = ({ one, part, at }) =>
    seen !== null && (word ? part === seen.part && at === seen.word : one.region === region);
  words.querySelectorAll(".word").forEach((element, place) => {
    element.classList.toggle("lit", isLit(every[place]));
    const isPinned = pinned?.word === every[place].at && pinned?.part === every[place].part;
    element.setAttribute("aria-pressed", isPinned);
  });
  if (!current?.frame) return;
  const label = every.filter(isLit).map(({ one }) => one.text).join(" · ");
  const largest = Math.max(...own.map(({ score }) => score));
  const weight = word && largest > 0 ? Math.max(0, word.score) / largest : 1;
  showHeat(current.frame, { cosines: word ? word.cosines : null, weight, region, label });
}

function isSame(one, other) {
  const keys = ["part", "word", "region"];
  return keys.every((key) => one?.[key] === other?.[key]);
}

// Screen readers announce the note; the hint that takes its place is not announced for every hit.
function note(text, hint = "") {
  at("why-note").textContent = text;
  at("why-hint").textContent = hint;
  at("why-hint").hidden = text !== "" || hint === "";
}
