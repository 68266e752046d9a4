// The evidence for a hit: the photo with the regions that words matched, and the words with their
// scores, each coloured by its share of the alignment score.

import { fourDigits, make } from "./elements.js";

const WHOLE = 0.999; // of the photo's width and height: drawn as a frame instead of a box
const AT_THE_TOP = 0.1; // of its height: no room for a label above the region

// --- The photo ---

// onRegion(region, pinned): called with the region under the pointer or focus, or null.
export function photoElement(photo, evidence, onRegion) {
  const frame = make("div", { className: "frame" }, photo);
  fit(frame, photo);
  const found = byRegion(evidence);
  const largest = Math.max(...found.map(({ score }) => score));
  // Large regions first: later ones lie above them, where the pointer reaches them.
  found.sort((one, other) => area(other.box) - area(one.box));
  const regions = make("div", { className: "regions" });
  regions.append(...found.map((one) => regionElement(one, largest, onRegion)));
  frame.append(make("p", { className: "region-label", ariaHidden: "true", hidden: true }));
  // Without boxes, the regions are listed below the photo.
  const placed = found.every(({ box }) => box !== null);
  if (placed) frame.append(regions);
  const whole = make("div", {}, frame);
  whole.className = placed ? "placed" : "named";
  if (!placed) whole.append(regions);
  return whole;
}

// Highlight a region and label it with its words; null: no region.
export function lightRegion(container, region, words) {
  container.classList.toggle("lighting", region !== null);
  for (const element of container.querySelectorAll(".region")) {
    element.classList.toggle("lit", element.dataset.region === String(region));
  }
  const label = container.querySelector(".region-label");
  const lit = container.matches(".placed") ? container.querySelector(".region.lit") : null;
  label.hidden = lit === null;
  if (lit === null) return;
  label.textContent = words;
  const { left, right, top } = lit.dataset;
  const isLeft = Number(left) + Number(right) < 1;
  label.style.left = isLeft ? `${100 * left}%` : "auto";
  label.style.right = isLeft ? "auto" : `${100 * (1 - right)}%`;
  label.style.top = `${100 * top}%`;
  label.classList.toggle("inside", top < AT_THE_TOP);
}

// Give the frame the photo's proportions, so that it can be as large as the space allows.
function fit(frame, photo) {
  const setRatio = () =>
    frame.style.setProperty("--ratio", photo.naturalWidth / photo.naturalHeight);
  if (photo.complete && photo.naturalWidth) setRatio();
  else photo.addEventListener("load", setRatio);
}

// [{region, box, score, words}]: the words of each region and the sum of their scores.
function byRegion(evidence) {
  const found = new Map();
  for (const { region, box, token, score } of evidence) {
    const one = found.get(region) ?? { region, box, score: 0, words: [] };
    one.score += score;
    one.words.push(`${token} ${fourDigits(score)}`);
    found.set(region, one);
  }
  return [...found.values()];
}

function regionElement({ region, box, score, words }, largest, onRegion) {
  const element = make("button", { type: "button", className: "region" });
  Object.assign(element.dataset, { region, score });
  element.style.setProperty("--strength", largest > 0 ? Math.max(0, score / largest).toFixed(3) : 0);
  element.ariaLabel = `Region ${region}: ${words.join(", ")}`;
  if (box) place(element, box);
  else element.textContent = `region ${region}`;
  listen(element, region, onRegion);
  return element;
}

function place(element, [x0, y0, x1, y1]) {
  element.classList.toggle("whole", x1 - x0 > WHOLE && y1 - y0 > WHOLE);
  Object.assign(element.dataset, { left: x0, right: x1, top: y0 });
  const edges = { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
  for (const [edge, share] of Object.entries(edges)) element.style[edge] = `${100 * share}%`;
}

function area(box) {
  return box === null ? 0 : (box[2] - box[0]) * (box[3] - box[1]);
}

// --- The words ---

// onWord(index, pinned): called with the word under the pointer or focus, or null.
export function wordsElement(text, evidence, onWord) {
  const largest = Math.max(...evidence.map((entry) => Math.abs(entry.score))) || 1;
  const characters = [...text]; // the service counts characters, JavaScript UTF-16 code units
  const paragraph = make("p", { className: "words" });
  let end = 0;
  evidence.forEach((entry, index) => {
    paragraph.append(characters.slice(end, entry.start).join(""));
    paragraph.append(wordElement(entry, index, Math.abs(entry.score) / largest, onWord));
    end = entry.end;
  });
  paragraph.append(characters.slice(end).join(""));
  return paragraph;
}

// strength: 1 for the word with the largest absolute score.
function wordElement(entry, index, strength, onWord) {
  const word = make("button", { type: "button", className: "word" });
  Object.assign(word.dataset, { score: entry.score, region: entry.region, share: entry.share });
  word.classList.toggle("against", entry.score < 0);
  word.style.setProperty("--strength", strength.toFixed(3));
  const number = make("span", { className: "number" }, fourDigits(entry.score));
  word.append(make("span", { className: "token" }, entry.token), number);
  const direction = entry.score < 0 ? "against" : "for";
  word.title = `${(100 * Math.abs(entry.share)).toFixed(1)} % of the evidence, ${direction} this match`;
  word.setAttribute("aria-pressed", "false");
  listen(word, index, onWord);
  return word;
}

// The sum of the words' scores beside the alignment score.
export function sumElement(evidence, alignScore) {
  const total = evidence.reduce((sum, entry) => sum + entry.score, 0);
  const sum = make("strong", { id: "evidence-total" }, fourDigits(total));
  sum.dataset.total = total;
  const words = evidence.length === 1 ? "1 word adds up to " : `${evidence.length} words add up to `;
  // The two sums are computed in different places and agree except for rounding.
  const agrees = Math.abs(total - alignScore) < 1e-4;
  const rest = agrees ? ", the alignment score." : `; the alignment score is ${fourDigits(alignScore)}.`;
  return [words, sum, rest];
}

function listen(element, key, on) {
  element.addEventListener("pointerenter", () => on(key, false));
  element.addEventListener("pointerleave", () => on(null, false));
  element.addEventListener("focus", () => on(key, false));
  element.addEventListener("blur", () => on(null, false));
  element.addEventListener("click", () => on(key, true));
}
