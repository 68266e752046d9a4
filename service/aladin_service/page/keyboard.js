// Keys: / goes to the field, arrows go from hit to hit.

import { at } from "./elements.js";
import { focusQuery } from "./query_field.js";

const TYPING = "input:not([type=radio], [type=checkbox], [type=range]), textarea, select";

export function startKeyboard() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // what is after # is the search's
    at("found").focus();
  });
  addEventListener("keydown", onKey);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || event.target.matches?.(TYPING)) return;
  if (event.key === "/") {
    event.preventDefault();
    focusQuery();
    return;
  }
  const hit = event.target.closest?.(".hit");
  const next = hit && neighbour(hit, event.key);
  if (!next) return;
  event.preventDefault(); // the page would scroll as well
  next.querySelector(".open").focus();
}

function neighbour(hit, key) {
  const hits = [...hit.parentElement.children];
  const here = hits.indexOf(hit);
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(hits), ArrowUp: -columns(hits) };
  if (key === "Home") return hits[0];
  if (key === "End") return hits.at(-1);
  return steps[key] ? hits[here + steps[key]] : undefined;
}

// As many as stand in the first row: the grid is laid out by the browser.
function columns(hits) {
  const below = hits.findIndex((hit) => hit.offsetTop > hits[0].offsetTop);
  return below === -1 ? hits.length : below;
}
