// Why a hit is here: the words of the text beside the regions of the photo, in a dialog. Evidence is
// asked for when a hit is opened: for a whole page of hits it would be most of the answer.

import { at, make, makeButton, percent } from "./elements.js";
import { lightRegion, photoElement } from "./evidence_photo.js";
import { sumElement, wordsElement } from "./evidence_words.js";
import { photoAddress, showBlob, showPhoto } from "./photos.js";
import { crossesKinds, nameOf } from "./search.js";
import { Problem, askSearch, hasKey, readItem, readPicture } from "./service.js";

const PHOTO_PX = 1024;

const dialog = at("evidence");
let shown = null; // {hit, search, hits}
let pinned = null; // the word or region that was clicked on stays lit: {word} | {region}
let largestPx = PHOTO_PX;

// act: {similar(hit), cross(hit), filter(field, value), step(hit, hits, search), close()}
let act = {};

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
    if (event.target === dialog) dialog.close(); // beside it
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft") step(-1);
    if (event.key === "ArrowRight") step(1);
  });
}

export function limitPhotos(maxPx) {
  largestPx = Math.min(PHOTO_PX, maxPx);
}

export function closeEvidence() {
  if (dialog.open) dialog.close();
}

// hits: of the list that the hit is in, for the ones before and after; search: that found them.
export async function openEvidence(hit, hits, search) {
  const mine = (shown = { hit, hits, search });
  pinned = null;
  const place = hits.indexOf(hit);
  at("evidence-previous").disabled = place <= 0;
  at("evidence-next").disabled = place === hits.length - 1;
  at("evidence-rank").textContent = `Hit ${hit.rank}`;
  at("evidence-title").textContent = search.target === "images" ? "Why this photo" : "Why this text";
  showFacts(hit);
  showActions();
  showAlone(hit);
  if (!dialog.open) {
    dialog.showModal();
    at("evidence-title").focus();
  }
  if (!crossesKinds(search)) {
    const kind = search.target === "images" ? "photos" : "texts";
    say(`Two ${kind} are compared by their embeddings alone: no word has found a region.`);
    return;
  }
  say("Reading the evidence…");
  try {
    const [explained, text] = await Promise.all([explain(hit, search), textOf(hit, search)]);
    if (shown === mine) showEvidence(explained, text);
  } catch (error) {
    if (shown === mine) say(error instanceof Problem ? `No evidence: ${error.message}.` : String(error));
  }
}

// The same search for this one hit, with its evidence.
async function explain(hit, search) {
  const one = { k: 1, offset: hit.rank - 1, explain: true };
  const { minProbability, ...rest } = search; // its place is counted with those left out
  const answer = await askSearch({ ...rest, minProbability: null }, undefined, one);
  const found = answer.hits.find(({ id }) => id === hit.id);
  if (!found) throw new Problem("the index has changed since; search again");
  if (!found.evidence?.length) throw new Problem("this index has no words and regions to show");
  return found;
}

// The text of the pair: the hit's own, or the query's.
async function textOf(hit, { query, target }) {
  if (target === "texts") return hit.text;
  return "text" in query ? query.text : (await readItem("texts", query.id)).text;
}

function showEvidence({ evidence, stages }, text) {
  const words = wordsElement(text, evidence, (word, pin) => look(evidence, word === null ? null : { word }, pin));
  const onRegion = (region, pin) => look(evidence, region === null ? null : { region }, pin);
  at("evidence-words").replaceChildren(words);
  at("evidence-photo").replaceChildren(photoElement(photoOf(shown), evidence, onRegion));
  at("evidence-sum").replaceChildren(...sumElement(evidence, stages.align.score));
  at("evidence-sum").hidden = false;
  say("Point at a word to see the part of the photo that it found, or at a part to see its words.");
}

// Light up a word and its region, or a region and its words; null: what is pinned, or nothing.
function look(evidence, at_, pin) {
  if (pin) pinned = same(pinned, at_) ? null : at_;
  const seen = at_ ?? pinned;
  const region = seen === null ? null : (seen.region ?? evidence[seen.word].region);
  const lit = (entry, index) =>
    seen !== null && (seen.word === undefined ? entry.region === region : index === seen.word);
  const found = evidence.filter(lit);
  dialog.querySelectorAll(".word").forEach((word, index) => {
    word.classList.toggle("lit", lit(evidence[index], index));
    word.setAttribute("aria-pressed", pinned !== null && pinned.word === index);
  });
  at("evidence-words").classList.toggle("lighting", seen !== null);
  lightRegion(at("evidence-photo").firstElementChild, region, found.map(({ token }) => token).join(" · "));
}

function same(one, other) {
  return one !== null && one.word === other.word && one.region === other.region;
}

// The photo of the pair: the hit's, or the query's.
function photoOf({ hit, search: { query, target } }) {
  const ofQuery = target === "texts";
  const image = make("img", { alt: ofQuery ? "The photo of the query" : nameOf(hit) });
  if (ofQuery && query.file) showBlob(image, query.file);
  else showPhoto(image, ofQuery ? query.id : hit.id, largestPx);
  return image;
}

// What there is without evidence: the photo, the text.
function showAlone(hit) {
  const { query, target } = shown.search;
  const hasPhoto = target === "images" || crossesKinds(shown.search);
  const photo = hasPhoto ? [make("div", { className: "frame" }, photoOf(shown))] : [];
  at("evidence-photo").replaceChildren(...photo);
  dialog.classList.toggle("no-photo", !hasPhoto);
  const words = target === "texts" ? hit.text : (query.text ?? "");
  at("evidence-words").replaceChildren(make("p", { className: "words" }, words));
  at("evidence-sum").hidden = true;
}

function showFacts(hit) {
  const { match, align } = hit.stages;
  const facts = [["Score", hit.score.toFixed(4)]];
  if (hit.probability != null) facts.push(["Probability", percent(hit.probability)]);
  facts.push(["Matching", `${match.score.toFixed(4)}, place ${match.rank}`]);
  if (align) {
    facts.push(["Alignment", `${align.score.toFixed(4)}, place ${align.rank}`]);
    facts.push(["A word, on average", hit.per_word.toFixed(4)]);
  }
  facts.push(["Item", hit.id]);
  if (hit.text !== null && shown.search.target === "images") facts.push(["Caption", hit.text]);
  const rows = facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)));
  at("evidence-facts").replaceChildren(...rows, ...metadataRows(hit.metadata));
}

// Each value of the metadata, as a way to find others with it.
function metadataRows(metadata) {
  return Object.entries(metadata).map(([field, value]) => {
    const values = (Array.isArray(value) ? value : [value]).map((one) => {
      if (one === null || typeof one === "object") return JSON.stringify(one);
      const only = () => act.filter(field, one);
      return makeButton(String(one), only, { className: "chip", ariaLabel: `Only with ${field} ${one}` });
    });
    return make("div", {}, make("dt", {}, field), make("dd", {}, ...values));
  });
}

function showActions() {
  const { hit, search } = shown;
  const other = search.target === "images" ? "Texts for this photo" : "Photos for this text";
  const actions = [
    makeButton("More like this", () => act.similar(hit)),
    makeButton(other, () => act.cross(hit)),
  ];
  if (search.target === "images") {
    const size = make("a", { href: photoAddress(hit.id, largestPx), target: "_blank" }, "Photo");
    if (!hasKey()) actions.push(size);
  }
  if (crossesKinds(search)) actions.push(pictureAction());
  at("evidence-actions").replaceChildren(...actions);
}

// The evidence as one picture: a link, or fetched where a link cannot ask for it.
function pictureAction() {
  const { hit, search } = shown;
  const { query } = search;
  const name = "As PNG";
  if (!query.file && !hasKey()) {
    return make("a", { href: pictureAddress(query, hit), target: "_blank" }, name);
  }
  return makeButton(name, async () => {
    try {
      save(await fetchPicture(query, hit));
    } catch (error) {
      say(`No picture: ${error.message}.`);
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
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function step(by) {
  const next = shown?.hits[shown.hits.indexOf(shown.hit) + by];
  if (next) act.step(next, shown.hits, shown.search);
}

function say(text) {
  at("evidence-note").textContent = text;
}
