// The field of the query: words, or the photo or item in their place.

import { at, make } from "./elements.js";
import { showBlob, showPhoto } from "./photos.js";

const EXAMPLE_PX = 96;

const words = at("words");
const box = at("example");

// on: {submit(text), target(name), remove()}
export function startQueryField(on) {
  const form = at("search");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    on.submit(words.value.trim());
    if (matchMedia("(hover: none)").matches) words.blur(); // its keyboard would hide the hits
  });
  form.addEventListener("change", (event) => {
    if (event.target.name === "target") on.target(event.target.value);
  });
  at("example-remove").addEventListener("click", () => {
    on.remove();
    words.focus();
  });
}

export function showQuery({ query, target }) {
  at("search").elements.target.value = target;
  const byWords = query === null || "text" in query;
  box.hidden = byWords;
  words.hidden = !byWords;
  if (byWords) {
    words.value = query?.text ?? "";
    return;
  }
  at("example-name").textContent = query.file ? query.file.name || "A photo" : query.name;
  // A new element each time: nothing of the photo before can arrive late.
  const photo = make("img", { id: "example-photo", alt: "" });
  box.querySelector("img").replaceWith(photo);
  if (query.file) showBlob(photo, query.file);
  else if (query.of === "images") showPhoto(photo, query.id, EXAMPLE_PX);
  else photo.hidden = true; // a text
}

// The words in the field; none where a photo or an item stands in its place.
export function typedWords() {
  return words.hidden ? "" : words.value.trim();
}

export function typeWords(text) {
  words.value = text;
}

// Where to type next: the field, or what stands in its place.
export function focusQuery() {
  if (words.hidden) at("example-remove").focus();
  else words.select();
}
