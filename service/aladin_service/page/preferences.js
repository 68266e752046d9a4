// The reader's choices, kept in this browser: whether details are shown, the size of the photos, and
// the recent searches.

import { at } from "./elements.js";

const KEY = "aladin-view";
const DEFAULTS = { details: false, size: 220, recent: [] };
const MOST_RECENT = 8;

let kept = { ...DEFAULTS, ...read() };

export const preference = (name) => kept[name];

function read() {
  try {
    return JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {}; // the browser keeps nothing, or something else was kept there
  }
}

function prefer(name, value) {
  kept = { ...kept, [name]: value };
  try {
    localStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // The choice lasts until the page is closed.
  }
}

// --- Details: scores, timings, options and the words of the method ---

const details = at("details-toggle");

export const hasDetails = () => document.body.classList.contains("details");

// Show or hide the details until the page is closed.
export function showDetails(shown) {
  document.body.classList.toggle("details", shown);
  details.setAttribute("aria-pressed", shown);
  if (!shown) at("options").hidden = true;
}

// onSize(): called when the photos have another size.
export function startPreferences(onSize) {
  showDetails(kept.details === true);
  details.addEventListener("click", () => {
    showDetails(!hasDetails());
    prefer("details", hasDetails());
  });
  const size = at("size");
  size.value = kept.size;
  showSize();
  size.addEventListener("input", showSize);
  size.addEventListener("change", () => {
    prefer("size", Number(size.value));
    onSize();
  });
}

function showSize() {
  document.documentElement.style.setProperty("--row", `${at("size").value}px`);
}

// --- Recent searches ---

export function remember(text) {
  const others = kept.recent.filter((one) => one !== text);
  prefer("recent", [text, ...others].slice(0, MOST_RECENT));
}

export function forgetRecent() {
  prefer("recent", []);
}
