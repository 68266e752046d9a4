// Pages of hits.

import { at } from "./elements.js";

const box = at("pages");
const previous = box.querySelector(".previous");
const next = box.querySelector(".next");

// turn(offset): show the page that begins there.
export function startPaging(turn) {
  previous.addEventListener("click", () => turn(Math.max(0, offsetNow - sizeNow)));
  next.addEventListener("click", () => turn(offsetNow + sizeNow));
}

let offsetNow = 0;
let sizeNow = 0;

export function hidePages() {
  box.hidden = true;
}

export function showPages(search, shown) {
  ({ offset: offsetNow, k: sizeNow } = search);
  // With a smallest probability a page is shorter for what was left out, not because all ended.
  const isLast = shown === 0 || (shown < search.k && search.minProbability === null);
  previous.disabled = offsetNow === 0;
  next.disabled = isLast;
  at("page-number").textContent = `Page ${Math.floor(offsetNow / sizeNow) + 1}`;
  box.hidden = previous.disabled && next.disabled;
}
