// The dialog that explains a hit: its evidence, scores and metadata, and the searches that start
// from it. The evidence is requested when a hit is opened: for a whole page of hits it would be most
// of the answer.

import { at, fourDigits, make, makeButton, percent } from "./elements.js";
import { lightRegion, photoElement, sumElement, wordsElement } from "./evidence_view.js";
import { indexTargets } from "./options.js";
import { showBlob, showPhoto } from "./photos.js";
import { crossesKinds, nameOf } from "./search.js";
import { Problem, askSearch, hasKey, largestPhotoPx, readItem, readPicture } from "./service.js";

const PHOTO_PX = 1024;

const dialog = at("evidence");
let act = {};
let shown = null; // {hit, list, photo}
let pinned = null; // {word} or {region} that was clicked: it stays highlighted

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
    if (isOutside(event)) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
}

export function closeEvidence() {
  if (dialog.open) dialog.close();
}

// list: {hits, search} of the hit, for its neighbours and for the request.
export async function openEvidence(hit, list) {
  const { hits, search } = list;
  const mine = (shown = { hit, list, photo: photoOf(hit, search) });
  pinned = null;
  at("evidence-previous").disabled = hit === hits[0];
  at("evidence-next").disabled = hit === hits.at(-1);
  at("evidence-rank").textContent = `Hit ${hit.rank}`;
  at("evidence-title").textContent = search.target === "images" ? "Why this photo" : "Why this text";
  at("evidence-facts").replaceChildren(...factRows(hit, search));
  at("evidence-actions").replaceChildren(...actionButtons(hit, search));
  showAlone();
  if (!dialog.open) dialog.showModal();
  at("evidence-title").focus();
  if (!crossesKinds(search)) {
    const kind = search.target === "images" ? "photos" : "texts";
    note(`Two ${kind} are compared by their embeddings only, so there is no word-region evidence.`);
    return;
  }
  note("Loading the evidence…");
  try {
    const [explained, text] = await Promise.all([explain(hit, search), textOf(hit, search)]);
    if (shown === mine) showEvidence(explained, text);
  } catch (error) {
    if (shown === mine) note(`No evidence: ${error.message}.`);
  }
}

// Repeat the search for this one hit, with its evidence.
async function explain(hit, search) {
  // Offsets count the hits below the smallest probability, too.
  const one = { k: 1, offset: hit.rank - 1, explain: true };
  const { hits } = await askSearch({ ...search, minProbability: null }, undefined, one);
  const found = hits.find(({ id }) => id === hit.id);
  if (!found) throw new Problem("the index has changed since this search, search again");
  if (!found.evidence?.length) throw new Problem("this index has no tokens");
  return found;
}

// The text of the pair: the hit's or the query's.
async function textOf(hit, { query, target }) {
  if (target === "texts") return hit.text;
  return "text" in query ? query.text : (await readItem("texts", query.id)).text;
}

// The photo of the pair: the hit's or the query's; null between two texts.
function photoOf(hit, search) {
  const { query, target } = search;
  const ofQuery = target === "texts";
  if (ofQuery && !crossesKinds(search)) return null;
  const photo = make("img", { alt: ofQuery ? "The photo of the query" : nameOf(hit) });
  if (ofQuery && query.file) showBlob(photo, query.file);
  else showPhoto(photo, ofQuery ? query.id : hit.id, Math.min(PHOTO_PX, largestPhotoPx()));
  return photo;
}

// Show the hit without evidence, before it arrives or if there is none.
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
  note("");
}

// Highlight a word and its region, or a region and its words; null: what is pinned, or nothing.
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

function isOutside({ target, clientX, clientY }) {
  const { left, right, top, bottom } = dialog.getBoundingClientRect();
  const isIn = left <= clientX && clientX <= right && top <= clientY && clientY <= bottom;
  return target === dialog && !isIn;
}

// Screen readers announce the note; the hint that takes its place is not announced for every hit.
function note(text) {
  at("evidence-note").textContent = text;
  at("evidence-hint").hidden = text !== "";
}

// --- Scores and metadata ---

function factRows(hit, { target }) {
  const { match, align } = hit.stages;
  const facts = [["Score", fourDigits(hit.score)]];
  if (hit.probability != null) facts.push(["Probability", percent(hit.probability)]);
  facts.push(["Matching", `${fourDigits(match.score)}, rank ${match.rank}`]);
  if (align) {
    facts.push(["Alignment", `${fourDigits(align.score)}, rank ${align.rank}`]);
    facts.push(["Mean per word", fourDigits(hit.per_word)]);
  }
  if (hit.text !== null && target === "images") facts.push(["Caption", hit.text]);
  facts.push(["Id", hit.id]);
  const data = Object.entries(hit.metadata).map(([field, value]) => [
    field,
    ...[value].flat().map((one) => valueElement(field, one)),
  ]);
  return [...facts, ...data].map(([name, ...values]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, ...values)),
  );
}

// A metadata value; a click filters by it.
function valueElement(field, value) {
  // Filters compare texts, numbers and booleans.
  if (value === null || typeof value === "object") return JSON.stringify(value);
  const label = `Only with ${field} ${value}`;
  return makeButton(String(value), () => act.filter(field, value), { className: "chip", title: label });
}

// --- Searches from the hit, and its evidence as a PNG file ---

const REVOKE_AFTER_MS = 10_000;

function actionButtons(hit, search) {
  const [other, name] = search.target === "images"
    ? ["texts", "Texts for this photo"]
    : ["images", "Photos for this text"];
  const cross = makeButton(name, () => act.cross(hit), { hidden: true });
  indexTargets.then((targets) => (cross.hidden = !targets.includes(other)));
  const buttons = [makeButton("More like this", () => act.similar(hit)), cross];
  if (crossesKinds(search)) buttons.push(pictureButton(hit, search.query));
  return buttons;
}

// A link, or a button if the request needs a key or an uploaded photo.
function pictureButton(hit, query) {
  const name = "As PNG";
  if (!query.file && !hasKey()) {
    return make("a", { className: "button", href: pictureAddress(query, hit), target: "_blank" }, name);
  }
  return makeButton(name, async () => {
    try {
      save(await fetchPicture(query, hit));
    } catch (error) {
      note(`No picture: ${error.message}.`);
    }
  });
}

function pictureAddress(query, hit) {
  const what = "text" in query ? { text: query.text } : { query_id: query.id };
  return `v1/explain.png?${new URLSearchParams({ ...what, id: hit.id })}`;
}

function fetchPicture(query, hit) {
  if (!query.file) return readPicture(pictureAddress(query, hit));
  const body = new FormData();
  body.append("image", query.file);
  body.append("id", hit.id);
  return readPicture("v1/explain.png", { method: "POST", body });
}

function save(picture) {
  const link = make("a", { href: URL.createObjectURL(picture), download: "evidence.png" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_AFTER_MS);
}
