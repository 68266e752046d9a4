// The keyboard of the page: / focuses the query, arrows move between items.

import { at } from "./elements.js";
import { neighbour } from "./grid.js";
import { focusQuery } from "./query_field.js";

const TYPING = "input:not([type=radio], [type=checkbox], [type=range]), textarea, select";

export function startKeyboard() {
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the part of the address after # is the search
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
  event.preventDefault(); // arrows would also scroll the page
  next.querySelector(".open").focus();
}
