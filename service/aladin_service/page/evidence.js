// Why a hit is here: the words of the text beside the regions of the photo, in a dialog. Evidence is
// asked for when a hit is opened: for a whole page of hits it would be most of the answer.

import { at, make } from "./elements.js";
import { actionButtons } from "./evidence_actions.js";
import { factRows } from "./evidence_facts.js";
import { lightRegion, photoElement } from "./evidence_photo.js";
import { sumElement, wordsElement } from "./evidence_words.js";
import { largestPhotoPx } from "./limits.js";
import { showBlob, showPhoto } from "./photos.js";
import { crossesKinds, nameOf } from "./search.js";
import { Problem, askSearch, readItem } from "./service.js";

const PHOTO_PX = 1024;

const dialog = at("evidence");
let act = {};
let shown = null; // {hit, list, photo}
let pinned = null; // {word} or {region} that was clicked on: it stays lit

// actions: {similar(hit), cross(hit), filter(field, value), step(hit, list), close()}
export function startEvidence(actions) {
  act = actions;
  at("evidence-close").addEventListener("click", () => dialog.close());
  at("evidence-previous").addEventListener("click", () => step(-1));
  at("evidence-next").addEventListener("click", () => step(1));
  dialog.addEventListener("close", () => {
    shown = null;
    act.close();
  });
  dialog.addEventListener("click", (event) => {
    if (isBeside(event)) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
}

export function closeEvidence() {
  if (dialog.open) dialog.close();
}

// list: {hits, search} that the hit is of: for those before and after it, and to ask again.
export async function openEvidence(hit, list) {
  const { hits, search } = list;
  const mine = (shown = { hit, list, photo: photoOf(hit, search) });
  pinned = null;
  at("evidence-previous").disabled = hit === hits[0];
  at("evidence-next").disabled = hit === hits.at(-1);
  at("evidence-rank").textContent = `Hit ${hit.rank}`;
  at("evidence-title").textContent = search.target === "images" ? "Why this photo" : "Why this text";
  at("evidence-facts").replaceChildren(...factRows(hit, search, act.filter));
  at("evidence-actions").replaceChildren(...actionButtons(hit, search, { ...act, say }));
  showAlone();
  if (!dialog.open) dialog.showModal();
  at("evidence-title").focus();
  if (!crossesKinds(search)) {
    const kind = search.target === "images" ? "photos" : "texts";
    say(`Two ${kind} are compared by their embeddings alone: no word looks for a region.`);
    return;
  }
  say("Reading the evidence…");
  try {
    const [explained, text] = await Promise.all([explain(hit, search), textOf(hit, search)]);
    if (shown === mine) showEvidence(explained, text);
  } catch (error) {
    if (shown === mine) say(`No evidence: ${error.message}.`);
  }
}

// The same search for this one hit, with its evidence.
async function explain(hit, search) {
  // Its place is counted with those that were too unlikely.
  const one = { k: 1, offset: hit.rank - 1, explain: true };
  const { hits } = await askSearch({ ...search, minProbability: null }, undefined, one);
  const found = hits.find(({ id }) => id === hit.id);
  if (!found) throw new Problem("the index has changed since, search again");
  if (!found.evidence?.length) throw new Problem("this index has no words and regions");
  return found;
}

// The text of the pair: the hit's own, or the query's.
async function textOf(hit, { query, target }) {
  if (target === "texts") return hit.text;
  return "text" in query ? query.text : (await readItem("texts", query.id)).text;
}

// The photo of the pair: the hit's, or the query's; between two texts there is none.
function photoOf(hit, search) {
  const { query, target } = search;
  const ofQuery = target === "texts";
  if (ofQuery && !crossesKinds(search)) return null;
  const photo = make("img", { alt: ofQuery ? "The photo of the query" : nameOf(hit) });
  if (ofQuery && query.file) showBlob(photo, query.file);
  else showPhoto(photo, ofQuery ? query.id : hit.id, Math.min(PHOTO_PX, largestPhotoPx()));
  return photo;
}

// What there is before the evidence, or without any.
function showAlone() {
  const { hit, list, photo } = shown;
  const { query, target } = list.search;
  at("evidence-photo").replaceChildren(...(photo ? [photoElement(photo, [])] : []));
  dialog.classList.toggle("no-photo", photo === null);
  const text = target === "texts" ? hit.text : (query.text ?? "");
  at("evidence-words").replaceChildren(make("p", { className: "words" }, text));
  at("evidence-sum").replaceChildren();
}

function showEvidence({ evidence, stages }, text) {
  const onWord = (word, pin) => look(evidence, word === null ? null : { word }, pin);
  const onRegion = (region, pin) => look(evidence, region === null ? null : { region }, pin);
  at("evidence-words").replaceChildren(wordsElement(text, evidence, onWord));
  at("evidence-photo").replaceChildren(photoElement(shown.photo, evidence, onRegion));
  at("evidence-sum").replaceChildren(...sumElement(evidence, stages.align.score));
  say("");
}

// Light up a word and its region, or a region and its words; null: what is pinned, or nothing.
function look(evidence, pointed, pin) {
  if (pin) pinned = isSame(pinned, pointed) ? null : pointed;
  const seen = pointed ?? pinned;
  const region = seen && (seen.region ?? evidence[seen.word].region);
  const isLit = ({ region: its }, index) =>
    seen !== null && (seen.word === undefined ? its === region : index === seen.word);
  dialog.querySelectorAll(".word").forEach((word, index) => {
    word.classList.toggle("lit", isLit(evidence[index], index));
    word.setAttribute("aria-pressed", pinned?.word === index);
  });
  const words = evidence.filter(isLit).map(({ token }) => token);
  lightRegion(at("evidence-photo").firstElementChild, region, words.join(" · "));
}

function isSame(one, other) {
  return one?.word === other?.word && one?.region === other?.region;
}

function step(by) {
  const { hit, list } = shown;
  const next = list.hits[list.hits.indexOf(hit) + by];
  if (next) act.step(next, list);
}

function isBeside({ target, clientX, clientY }) {
  const { left, right, top, bottom } = dialog.getBoundingClientRect();
  const isIn = left <= clientX && clientX <= right && top <= clientY && clientY <= bottom;
  return target === dialog && !isIn;
}

// What is said is read out; the hint in its place is not, at every hit anew.
function say(text) {
  at("evidence-note").textContent = text;
  at("evidence-hint").hidden = text !== "";
}
