// What is beside the photo in the viewer: its file, date and other metadata, the searches that start
// from it, and its scores.

import { scoresOf } from "./details.js";
import { at, make, makeButton } from "./elements.js";
import { byLabel, dayOf, fieldLabel, isDate, shownValue } from "./formats.js";
import { indexFacts } from "./index_facts.js";
import { markButton } from "./marks.js";
import { fileOf, hasEvidence } from "./search.js";
import { hasKey, pairForm, pairOf, readPicture } from "./service.js";

const COPIED_MS = 2000;
const REVOKE_AFTER_MS = 10_000;

// act: {similar(hit), cross(hit), filter(field, value)}
export function showSide(hit, search, act) {
  at("viewer-facts").replaceChildren(...factRows(hit, search, act).map(rowElement));
  at("viewer-actions").replaceChildren(...actionButtons(hit, search, act));
  const found = hit.stages !== undefined;
  at("scores").hidden = !found;
  if (!found) return;
  at("viewer-scores").replaceChildren(...[...scoresOf(hit, search), ["Id", hit.id]].map(rowElement));
  const picture = at("viewer-detail-actions");
  picture.replaceChildren();
  indexFacts.then(({ isAligned }) => {
    if (hasEvidence(search) && isAligned) picture.replaceChildren(pictureButton(hit, search.query));
  });
}

// --- What is known of an item ---

function factRows(hit, { target }, act) {
  const facts = [];
  if (target === "images") {
    facts.push(["File", fileOf(hit), copyButton(fileOf(hit))]);
    if (hit.text !== null) facts.push(["Caption", hit.text]);
    if (hit.size_px) facts.push(["Size", `${hit.size_px[0]} × ${hit.size_px[1]}`]);
  } else {
    facts.push(["Text", hit.text]);
  }
  const { lat, lon, ...metadata } = hit.metadata;
  const data = byLabel(Object.keys(metadata)).map((field) => [
    fieldLabel(field),
    ...[metadata[field]].flat().map((one) => valueElement(field, one, act)),
  ]);
  const isPlaced = typeof lat === "number" && typeof lon === "number";
  if (isPlaced) data.push(["Coordinates", `${lat}, ${lon}`]); // nothing else is at just this place
  return [...facts, ...data];
}

function rowElement([name, ...values]) {
  const row = make("div", {}, make("dt", {}, name), make("dd", {}, ...values));
  row.classList.toggle("detail", values.some((value) => value.className === "nested"));
  return row;
}

// A metadata value; a click filters by it.
function valueElement(field, value, act) {
  // Filters compare texts, numbers and booleans.
  if (value === null || typeof value === "object") {
    return make("code", { className: "nested" }, JSON.stringify(value));
  }
  const words = shownValue(value, field);
  if (field === "description") return words; // of one photo alone
  const title = isDate(value)
    ? `Only from ${shownValue(dayOf(value))}`
    : `Only with ${fieldLabel(field)} ${words}`;
  return makeButton(words, () => act.filter(field, value), { className: "chip", title });
}

function copyButton(text) {
  if (!navigator.clipboard) return "";
  const button = makeButton("Copy", async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), COPIED_MS);
  }, { className: "chip", ariaLabel: "Copy the path" });
  return button;
}

// --- Searches from the item ---

function actionButtons(hit, { target }, act) {
  const [other, name] = target === "images"
    ? ["texts", "Texts for this photo"]
    : ["images", "Photos for this text"];
  const cross = makeButton(name, () => act.cross(hit), { hidden: true });
  indexFacts.then(({ targets }) => (cross.hidden = !targets.includes(other)));
  const marks = hit.rank === undefined ? [] : [markButton(hit, target)];
  return [makeButton("More like this", () => act.similar(hit)), cross, ...marks];
}

// --- The evidence as a PNG file ---

// A link, or a button if the request needs a key or an uploaded photo.
function pictureButton(hit, query) {
  const name = "Evidence as PNG";
  const address = query.file ? null : `v1/explain.png?${pairOf(query, hit.id)}`;
  if (address !== null && !hasKey()) {
    return make("a", { className: "button", href: address, target: "_blank" }, name);
  }
  return makeButton(name, async () => {
    try {
      saveAs(await fetchPicture(address, query, hit), "evidence.png");
    } catch (error) {
      at("why-note").textContent = `No picture: ${error.message}.`;
    }
  });
}

function fetchPicture(address, query, hit) {
  if (address !== null) return readPicture(address);
  return readPicture("v1/explain.png", { method: "POST", body: pairForm(query, hit.id) });
}

export function saveAs(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), REVOKE_AFTER_MS);
}
