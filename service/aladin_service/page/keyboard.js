// The keyboard of the page: / focuses the query, arrows move between items.

import { at } from "./elements.js";
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

// The item that an arrow key, Home or End leads to from another one; undefined if there is none.
export function neighbour(item, key) {
  const items = [...item.closest("#library, ol").querySelectorAll(".hit")];
  const here = items.indexOf(item);
  if (key === "Home") return items[0];
  if (key === "End") return items.at(-1);
  if (key === "ArrowRight") return items[here + 1];
  if (key === "ArrowLeft") return items[here - 1];
  if (key === "ArrowDown") return inNextRow(items, here, 1);
  if (key === "ArrowUp") return inNextRow(items, here, -1);
  return undefined;
}

// The item of the next row whose middle is the nearest: rows have different numbers of photos.
function inNextRow(items, here, step) {
  const own = items[here].getBoundingClientRect();
  let best;
  let [top, least] = [null, Infinity];
  for (let place = here + step; items[place]; place += step) {
    const box = items[place].getBoundingClientRect();
    if (Math.abs(box.top - own.top) < 2) continue;
    if (top !== null && Math.abs(box.top - top) > 2) break;
    top = box.top;
    const distance = Math.abs(box.left + box.width / 2 - own.left - own.width / 2);
    if (distance < least) [best, least] = [items[place], distance];
  }
  return best;
}
