// The evidence on the photo: how well a word fits each region, as a heat map, with the best region
// outlined; and the words, each coloured by its share of the score.

import { fourDigits, make } from "./elements.js";

const WHOLE = 0.999; // of the photo's width and height: drawn as a frame instead of a cell
const AT_THE_TOP = 0.1; // of its height: no room for a label above the region

// --- The photo ---

// A frame of the photo's proportions, as large as the stage allows.
export function frameElement(photo, ratio) {
  const frame = make("div", { className: "frame" }, photo);
  const setRatio = (width, height) => frame.style.setProperty("--ratio", width / height);
  if (ratio) setRatio(...ratio);
  const learn = () => photo.naturalWidth && setRatio(photo.naturalWidth, photo.naturalHeight);
  if (photo.complete) learn();
  photo.addEventListener("load", learn);
  return frame;
}

// Lay the regions over the photo. onRegion(region, pinned): called with the region under the
// pointer, or null; only for regions that fit some word best.
export function showRegions(frame, { regions, words }, onRegion) {
  const best = new Set(words.map(({ region }) => region));
  const layer = make("div", { className: "regions", ariaHidden: "true" });
  const placed = regions
    .map(({ box }, region) => ({ box, region }))
    .filter(({ box }) => box !== null)
    // Large regions first: later ones lie above them, where the pointer reaches them.
    .sort((one, other) => area(other.box) - area(one.box));
  for (const { box, region } of placed) {
    const cell = make("div", { className: "region" });
    cell.dataset.region = region;
    place(cell, box);
    if (best.has(region)) listen(cell, region, onRegion);
    layer.append(cell);
  }
  // Apart from the cells, whose colours blend with the photo.
  const outline = make("div", { className: "outline", hidden: true });
  const label = make("p", { className: "region-label", ariaHidden: "true", hidden: true });
  frame.append(layer, outline, label);
}

// Show how well `cosines` fit each region, and outline one region; cosines and region may be null.
// weight: from 0 to 1, that of the word among the others.
export function showHeat(frame, { cosines, weight, region, label }) {
  const cells = [...frame.querySelectorAll(".region")];
  const [low, high] = rangeOf(cosines);
  frame.classList.toggle("heated", cosines !== null);
  frame.style.setProperty("--weight", weight.toFixed(3));
  for (const cell of cells) {
    const cosine = cosines?.[cell.dataset.region] ?? low;
    cell.style.setProperty("--strength", high > low ? ((cosine - low) / (high - low)).toFixed(3) : 0);
    cell.classList.toggle("lit", cell.dataset.region === String(region));
  }
  const lit = cells.find((cell) => cell.matches(".lit"));
  showOutline(frame.querySelector(".outline"), lit);
  showLabel(frame.querySelector(".region-label"), lit, label);
}

function rangeOf(cosines) {
  return cosines ? [Math.min(...cosines), Math.max(...cosines)] : [0, 0];
}

function showOutline(element, lit) {
  if (!element) return;
  element.hidden = !lit;
  if (lit) for (const edge of ["left", "top", "width", "height"]) element.style[edge] = lit.style[edge];
}

function showLabel(element, lit, text) {
  if (!element) return;
  element.hidden = !lit || !text;
  if (element.hidden) return;
  element.textContent = text;
  const { left, right, top } = lit.dataset;
  const isLeft = Number(left) + Number(right) < 1;
  element.style.left = isLeft ? `${100 * left}%` : "auto";
  element.style.right = isLeft ? "auto" : `${100 * (1 - right)}%`;
  element.style.top = `${100 * top}%`;
  element.classList.toggle("inside", top < AT_THE_TOP);
}

function place(cell, [x0, y0, x1, y1]) {
  cell.classList.toggle("whole", x1 - x0 > WHOLE && y1 - y0 > WHOLE);
  Object.assign(cell.dataset, { left: x0, right: x1, top: y0 });
  const edges = { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
  for (const [edge, share] of Object.entries(edges)) cell.style[edge] = `${100 * share}%`;
}

const area = (box) => (box[2] - box[0]) * (box[3] - box[1]);

// --- The words ---

// onWord(index, pinned): called with the word under the pointer or focus, or null.
export function wordsElement({ text, words }, onWord) {
  const largest = Math.max(...words.map(({ score }) => Math.abs(score))) || 1;
  const characters = [...text]; // the service counts characters, JavaScript UTF-16 code units
  const paragraph = make("p", { className: "words" });
  let end = 0;
  words.forEach((word, index) => {
    paragraph.append(characters.slice(end, word.start).join(""));
    paragraph.append(wordElement(word, index, Math.abs(word.score) / largest, onWord));
    end = word.end;
  });
  paragraph.append(characters.slice(end).join(""));
  return paragraph;
}

// strength: 1 for the word with the largest absolute score.
function wordElement({ text, score, share, region }, index, strength, onWord) {
  const word = make("button", { type: "button", className: "word" });
  Object.assign(word.dataset, { score, region, share });
  word.classList.toggle("against", score < 0);
  word.style.setProperty("--strength", strength.toFixed(3));
  word.append(
    make("span", { className: "token" }, text),
    make("span", { className: "number detail" }, fourDigits(score)),
  );
  const direction = score < 0 ? "against" : "for";
  word.title = `${Math.round(100 * Math.abs(share))} % of the evidence, ${direction} this match`;
  word.setAttribute("aria-pressed", "false");
  listen(word, index, onWord);
  word.addEventListener("focus", () => onWord(index, false));
  word.addEventListener("blur", () => onWord(null, false));
  return word;
}

// The sum of the scores beside the alignment score. what: "word" or "region".
export function sumOf({ words, align }, what = "word") {
  const total = words.reduce((sum, { score }) => sum + score, 0);
  const sum = make("strong", { id: "why-total" }, fourDigits(total));
  sum.dataset.total = total;
  const count = words.length === 1 ? `1 ${what} adds up to ` : `${words.length} ${what}s add up to `;
  // The two sums are computed in different places and agree except for rounding.
  const agrees = Math.abs(total - align) < 1e-4;
  const rest = agrees ? ", the alignment score." : `; the alignment score is ${fourDigits(align)}.`;
  return [count, sum, rest];
}

function listen(element, key, on) {
  element.addEventListener("pointerenter", () => on(key, false));
  element.addEventListener("pointerleave", () => on(null, false));
  element.addEventListener("click", () => on(key, true));
}
