// The query: the text field, the photo or item in its place, and the ways to provide a photo.

import { at, make } from "./elements.js";
import { frameElement } from "./heat.js";
import { indexFacts } from "./index_facts.js";
import { showBlob, showPhoto } from "./photos.js";
import { termName } from "./search.js";
import { startSelection } from "./selection.js";

const EXAMPLE_PX = 96;
const PART_PX = 640;

const words = at("words");
const box = at("example");
const input = at("photo");
const panel = at("part");
const partToggle = at("example-part");

let shown = null; // the query
let selection = null; // of the photo in the panel

// on: {submit(text), target(name), remove(), part(box): null for the whole photo}
export function startQueryField(on) {
  const form = at("search");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    on.submit(words.value.trim());
    if (matchMedia("(hover: none)").matches) words.blur(); // the on-screen keyboard hides the hits
  });
  form.addEventListener("change", (event) => {
    if (event.target.name === "target") on.target(event.target.value);
  });
  at("example-remove").addEventListener("click", () => {
    on.remove();
    words.focus();
  });
  partToggle.addEventListener("click", () => showPart(panel.hidden, on));
  at("part-search").addEventListener("click", () => selection.draw());
  at("part-whole").addEventListener("click", () => on.part(null));
  at("part-close").addEventListener("click", () => {
    showPart(false, on);
    partToggle.focus();
  });
}

export function showQuery({ query, target }) {
  shown = query;
  showPart(false);
  partToggle.hidden = true;
  at("search").elements.target.value = target;
  const byWords = query === null || "text" in query;
  box.hidden = byWords;
  words.hidden = !byWords;
  if (byWords) {
    words.value = query?.text ?? "";
    return;
  }
  at("example-name").textContent = termName(query);
  // A new element each time, so that an earlier photo cannot arrive late.
  const photo = make("img", { id: "example-photo", alt: "" });
  box.querySelector("img").replaceWith(photo);
  if (!showQueryPhoto(photo, query, EXAMPLE_PX)) {
    photo.hidden = true; // the item is a text
    return;
  }
  if (query.box) photo.style.objectViewBox = viewOf(query.box);
  indexFacts.then(({ isAligned, targets }) => {
    if (shown === query) partToggle.hidden = !(isAligned && targets.includes("images"));
  });
}

// Returns whether there is a photo.
function showQueryPhoto(photo, query, px) {
  if (query.file) showBlob(photo, query.file);
  else if (query.of === "images") showPhoto(photo, query.id, px);
  return Boolean(query.file) || query.of === "images";
}

function viewOf([x0, y0, x1, y1]) {
  return `inset(${[y0, 1 - x1, 1 - y1, x0].map((share) => `${100 * share}%`).join(" ")})`;
}

// Show or hide the photo of the query, to select a part of it.
function showPart(open, on) {
  panel.hidden = !open;
  partToggle.setAttribute("aria-expanded", open);
  if (!open) {
    at("part-photo").replaceChildren();
    return;
  }
  const photo = make("img", { alt: "The photo of the query", draggable: false });
  showQueryPhoto(photo, shown, PART_PX);
  const frame = frameElement(photo, null);
  at("part-whole").hidden = !shown.box;
  at("part-photo").replaceChildren(frame);
  selection = startSelection(frame, { draw: on.part, first: shown.box });
  selection.toggle(true);
}

// The text in the field; empty if a photo or an item is the query.
export function typedWords() {
  return words.hidden ? "" : words.value.trim();
}

export function typeWords(text) {
  words.value = text;
}

// Focus the text field, or the button that brings it back.
export function focusQuery() {
  if (words.hidden) at("example-remove").focus();
  else words.select();
}

// --- A photo as the query: dropped, pasted, chosen, or from the camera roll ---

// onPhoto(file): called with the photo.
export function startPhotoInput(onPhoto) {
  const choose = () => input.click();
  at("choose").addEventListener("click", choose);
  if (matchMedia("(hover: hover)").matches) {
    at("choose").title = "Search with a photo: drop it anywhere, paste it, or choose a file";
  }
  input.addEventListener("change", () => {
    if (input.files.length) onPhoto(input.files[0]);
    input.value = ""; // allows the same file to be chosen again
  });

  addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    // Only when leaving the window, not an element inside it.
    if (event.relatedTarget === null) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer?.files.length) return; // text, which the field under it receives
    event.preventDefault();
    onPhoto(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) onPhoto(event.clipboardData.files[0]);
  });
}
