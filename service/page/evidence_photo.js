// A photo with the regions that words found.

import { make } from "./elements.js";

const DIGITS = 4;
const WHOLE = 0.999; // of the photo's width and height: a frame, rather than a box

// The photo's frame. evidence: as answered; onRegion(region, pinned): one is looked at, or none.
export function photoElement(image, evidence, onRegion) {
  const frame = make("div", { className: "frame" }, image);
  const regions = make("div", { className: "regions" });
  const largest = Math.max(...byRegion(evidence).map(({ score }) => Math.abs(score)));
  // Large ones first: what comes later lies above, and can be pointed at.
  const ordered = byRegion(evidence).sort((one, other) => area(other.box) - area(one.box));
  for (const found of ordered) regions.append(regionElement(found, largest, onRegion));
  // Without boxes there are no places on the photo; the regions are named below it.
  const placed = ordered.every(({ box }) => box !== null);
  if (placed) frame.append(regions);
  const label = make("p", { className: "region-label", ariaHidden: "true", hidden: true });
  frame.append(label);
  return placed ? make("div", { className: "placed" }, frame) : make("div", {}, frame, regions);
}

// Light up one region, and say whose it is; null: none.
export function lightRegion(container, region, words) {
  for (const element of container.querySelectorAll(".region")) {
    element.classList.toggle("lit", element.dataset.region === String(region));
  }
  container.classList.toggle("lighting", region !== null);
  const lit = container.querySelector(".region.lit");
  const label = container.querySelector(".region-label");
  label.hidden = lit === null || !container.classList.contains("placed");
  if (label.hidden) return;
  label.textContent = words;
  label.style.left = lit.style.left;
  // Above the region, or in it where it touches the upper edge.
  const top = parseFloat(lit.style.top);
  label.style.top = lit.style.top;
  label.classList.toggle("inside", top < 8);
}

// [{region, box, score, words}]: what the words of each region add up to.
function byRegion(evidence) {
  const found = new Map();
  for (const { region, box, token, score } of evidence) {
    const one = found.get(region) ?? { region, box, score: 0, words: [] };
    one.score += score;
    one.words.push(`${token} ${score.toFixed(DIGITS)}`);
    found.set(region, one);
  }
  return [...found.values()];
}

function regionElement({ region, box, score, words }, largest, onRegion) {
  const element = make("button", { type: "button", className: "region" });
  element.dataset.region = region;
  element.dataset.score = score;
  element.style.setProperty("--strength", (Math.max(0, score) / largest).toFixed(3));
  element.ariaLabel = `Region ${region}: ${words.join(", ")}`;
  if (box) place(element, box);
  else element.textContent = `region ${region}`;
  element.addEventListener("pointerenter", () => onRegion(region, false));
  element.addEventListener("pointerleave", () => onRegion(null, false));
  element.addEventListener("focus", () => onRegion(region, false));
  element.addEventListener("blur", () => onRegion(null, false));
  element.addEventListener("click", () => onRegion(region, true));
  return element;
}

function place(element, [x0, y0, x1, y1]) {
  element.classList.toggle("whole", x1 - x0 > WHOLE && y1 - y0 > WHOLE);
  const edges = { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
  for (const [edge, share] of Object.entries(edges)) element.style[edge] = `${100 * share}%`;
}

function area(box) {
  return box === null ? 0 : (box[2] - box[0]) * (box[3] - box[1]);
}
