// What the index has: collections, metadata fields, and whether its evidence means something.

import { at, make } from "./elements.js";
import { DATE_FIELD, NOUNS, capital, count, counted, dayOf, isDate, shownValue } from "./formats.js";
import { leftOutLink, showLeftOut } from "./left_out.js";
import { describeIndex, listItems, readFields } from "./service.js";

const COLLECTIONS = Object.entries(NOUNS);
const ID_CHARS = 12; // of a model's SHA-256
const ONE_STAGE =
  "In one stage, by whole photos: no part of a photo is shown for a word. The model's alignment of words" +
  " with parts was not trained; aladin train finetune-clip --library trains one.";
const TWO_STAGES =
  "In two stages: first by whole photos, then word by word by the parts of the best ones. An open hit" +
  " shows which part was found for a word.";
// Fields, and what the photos that have them are counted with.
const TOLD = {
  taken_at: "a date",
  place: "a place",
  lat: "coordinates",
  people: "people",
  title: "a title",
  keywords: "keywords",
};
const MOMENT = new Intl.DateTimeFormat("en", { dateStyle: "long", timeStyle: "short" });

let learn;
// Resolves to {index, targets, fields, isAligned} when they are known; `fields` is null if the index does
// not describe them.
export const indexFacts = new Promise((resolve) => (learn = resolve));

// The second stage of an alignment that was not trained is not offered.
function hideSecondStage() {
  at("option-candidates").closest("label").hidden = true;
  for (const id of ["option-rerank", "option-fusion"]) at(id).closest("div").hidden = true;
  at("option-unaligned").hidden = false;
}

let described = null; // the index that "About this library" describes, as JSON

// "About this library": what it has, what it lacks of its sources, how it is searched, its last change.
function showAbout(index) {
  const state = JSON.stringify(index);
  if (state === described) return;
  described = state;
  const { skipped, model, changed_at: changedAt } = index;
  const facts = [
    ["Contains", countsOf(index), ...(index.images ? [make("span", { id: "about-told" })] : [])],
    skipped && ["Left out", leftOutLink(skipped) ?? "Nothing"],
    ["Search", index.alignment_trained === false ? ONE_STAGE : TWO_STAGES],
    ["Model", ...(model.name ? [`${model.name} `] : []), make("code", { title: model.id }, model.id.slice(0, ID_CHARS))],
    changedAt && ["Last change", MOMENT.format(new Date(changedAt))],
  ].filter(Boolean);
  at("about-facts").replaceChildren(
    ...facts.map(([name, ...values]) => make("div", {}, make("dt", {}, name), make("dd", {}, ...values))),
  );
  at("about").hidden = false;
  if (at("about").open) tell();
}

// How many photos have a date, a place and the like, and from when they are: asked for when it is read.
async function tell() {
  const line = at("about-told");
  const { fields } = await indexFacts;
  const known = fields?.images ?? [];
  const dates = known.find(({ name, least }) => name === DATE_FIELD && isDate(least));
  const told = Object.keys(TOLD).filter((field) => known.some(({ name }) => name === field));
  if (line === null || told.length === 0) return;
  const having = (field) => ({ limit: 1, filter: JSON.stringify({ [field]: { exists: true } }) });
  const asked = told.map((field) => listItems("images", having(field)));
  const pages = await Promise.all(asked).catch(() => null);
  if (pages === null) return; // the rest is told without them
  const parts = told.map((field, place) => `${count(pages[place].total)} with ${TOLD[field]}`);
  const days = dates && [dates.least, dates.greatest].map((date) => shownValue(dayOf(date)));
  line.textContent = ` · ${parts.join(" · ")}${days ? `, from ${days.join(" to ")}` : ""}`;
}

// Say why the order of hits is random, and that folders are not followed.
function showWarnings({ skipped, untrained }) {
  const stopped = skipped?.not_followed;
  const warnings = [
    untrained && `${capital(untrained)}.`,
    stopped && `The folders are not followed any more (${stopped}). Start aladin photos again.`,
  ].filter(Boolean);
  at("index-warning").hidden = warnings.length === 0;
  at("index-warning").textContent = warnings.join(" ");
}

function countsOf(index) {
  const present = COLLECTIONS.filter(([target]) => index[target] !== null);
  return present.map(([target, noun]) => counted(index[target].count, noun)).join(" · ");
}

// Show the size of the index. grows: whether items are being added.
export function showCounts(index, grows = false) {
  at("index-info").textContent = countsOf(index) + (grows ? " · more are being added" : "");
  showAbout(index);
  showLeftOut(index.skipped);
  showWarnings(index);
  // A count that changes every few seconds is read aloud when it is final.
  at("status").ariaBusy = String(grows);
}

at("about").addEventListener("toggle", () => {
  if (at("about").open) tell();
});

// Show the size of the index, and return its description.
export async function loadIndexFacts() {
  const [index, fields] = await Promise.all([describeIndex(), readFields()]);
  const present = COLLECTIONS.filter(([target]) => index[target] !== null);
  for (const [target] of COLLECTIONS) {
    const choice = document.querySelector(`input[name=target][value=${target}]`);
    choice.closest("label").hidden = index[target] === null;
    choice.closest("fieldset").hidden = present.length < 2; // there is nothing to choose
  }
  showCounts(index);
  at("option-candidates").placeholder = index.default_candidates;
  if (index.alignment_trained === false) hideSecondStage();
  learn({
    index,
    targets: present.map(([target]) => target),
    fields,
    // An alignment that was not trained finds regions at random.
    isAligned: index.alignment_trained !== false,
  });
  return indexFacts;
}
