// What the index has: collections, metadata fields, and whether its evidence means something.

import { at, make } from "./elements.js";
import { NOUNS, capital, counted } from "./formats.js";
import { leftOutLink, showLeftOut } from "./left_out.js";
import { describeIndex, readFields } from "./service.js";

const COLLECTIONS = Object.entries(NOUNS);
const ID_CHARS = 12; // of a model's SHA-256
const ONE_STAGE =
  "In one stage, by whole photos: no part of a photo is shown for a word. The model's alignment of words" +
  " with parts was not trained; aladin train finetune-clip --library trains one.";
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

// "About this library": what it has, what it lacks of its sources, its model, its last change.
function showAbout(index) {
  const { skipped, model, changed_at: changedAt } = index;
  const facts = [
    ["Contains", countsOf(index)],
    skipped && ["Left out", leftOutLink(skipped) ?? "Nothing"],
    index.alignment_trained === false && ["Search", ONE_STAGE],
    ["Model", make("code", { title: model.id }, model.id.slice(0, ID_CHARS))],
    changedAt && ["Last change", MOMENT.format(new Date(changedAt))],
  ].filter(Boolean);
  at("about-facts").replaceChildren(
    ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
  );
  at("about").hidden = false;
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
