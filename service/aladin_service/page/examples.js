// Searches to begin with: some from the texts of the index, and the reader's own recent ones.

import { at, make, makeButton } from "./elements.js";
import { forgetRecent, preference } from "./preferences.js";
import { listItems } from "./service.js";

const EXAMPLES = 4;
const LOOKED_AT = 100;
const WORDS = [2, 8]; // what is shorter or longer is no good example

const examples = at("examples");
const history = at("history");

// onSearch(text): called with the text of a search that was chosen.
export function startSuggestions(onSearch) {
  for (const line of [examples, history]) {
    line.addEventListener("click", (event) => {
      const text = event.target.closest("button")?.dataset.text;
      if (text) onSearch(text);
    });
  }
}

export function showSuggestions(shown) {
  showHistory();
  at("suggestions").hidden = !shown || (examples.hidden && history.hidden);
}

// Take examples from the texts of the index, or from the captions of its photos.
export async function learnExamples(targets) {
  const target = targets.includes("texts") ? "texts" : "images";
  const page = await listItems(target, { limit: LOOKED_AT });
  const chosen = choose((page?.items ?? []).map(({ text }) => text ?? ""));
  examples.append(...chosen.map((text) => suggestion(text)));
  examples.hidden = chosen.length === 0;
}

// Short ones, of different beginnings, from all over the list.
function choose(texts) {
  const clean = texts.map((text) => text.replace(/\s*[.!]?\s*$/, "").replace(/\s+/g, " "));
  const fitting = [...new Set(clean)].filter((text) => {
    const words = text.split(" ").length;
    return words >= WORDS[0] && words <= WORDS[1];
  });
  const step = Math.max(1, Math.floor(fitting.length / EXAMPLES));
  const chosen = [];
  for (let start = 0; start < fitting.length && chosen.length < EXAMPLES; start += step) {
    const some = fitting.slice(start, start + step);
    chosen.push(some.reduce((one, other) => (other.length < one.length ? other : one)));
  }
  return chosen;
}

function showHistory() {
  const recent = preference("recent");
  at("recent").replaceChildren(...recent.map((value) => make("option", { value })));
  const clear = makeButton("Clear", () => {
    forgetRecent();
    showSuggestions(true);
    at("words").focus();
  }, { className: "quiet", ariaLabel: "Clear recent searches" });
  const label = history.firstElementChild;
  history.replaceChildren(label, ...recent.map((text) => suggestion(text)), clear);
  history.hidden = recent.length === 0;
}

function suggestion(text) {
  const button = make("button", { type: "button", className: "chip", title: text }, text);
  button.dataset.text = text;
  return button;
}
