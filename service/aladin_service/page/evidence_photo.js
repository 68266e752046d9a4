// A photo with the regions that words found.

import { fourDigits, make } from "./elements.js";

const WHOLE = 0.999; // of the photo's width and height: a frame, rather than a box
const AT_THE_TOP = 0.1; // of its height: above it there is no room for a label

// onRegion(region, pinned): one is looked at, or none (null).
export function photoElement(photo, evidence, onRegion) {
  const frame = make("div", { className: "frame" }, photo);
  fit(frame, photo);
  const found = byRegion(evidence);
  const largest = Math.max(...found.map(({ score }) => score));
  // Large ones first: what comes later lies above, and can be pointed at.
  found.sort((one, other) => area(other.box) - area(one.box));
  const regions = make("div", { className: "regions" });
  regions.append(...found.map((one) => regionElement(one, largest, onRegion)));
  frame.append(make("p", { className: "region-label", ariaHidden: "true", hidden: true }));
  // Without boxes there are no places on the photo: the regions are named below it.
  const placed = found.every(({ box }) => box !== null);
  if (placed) frame.append(regions);
  const whole = make("div", {}, frame);
  whole.className = placed ? "placed" : "named";
  if (!placed) whole.append(regions);
  return whole;
}

// Light up one region, and say whose it is; null: none.
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

// The frame has the photo's own proportions, as large as there is room for them.
function fit(frame, photo) {
  const tell = () => frame.style.setProperty("--ratio", photo.naturalWidth / photo.naturalHeight);
  if (photo.complete && photo.naturalWidth) tell();
  else photo.addEventListener("load", tell);
}

// [{region, box, score, words}]: what the words of each region add up to.
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
  element.addEventListener("pointerenter", () => onRegion(region, false));
  element.addEventListener("pointerleave", () => onRegion(null, false));
  element.addEventListener("focus", () => onRegion(region, false));
  element.addEventListener("blur", () => onRegion(null, false));
  element.addEventListener("click", () => onRegion(region, true));
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
