// The list of hits: a grid of photos or a list of texts, and moving through it by keyboard.

import { fourDigits, make, makeButton, percent } from "./elements.js";
import { showPhoto } from "./photos.js";
import { nameOf } from "./search.js";

const THUMBNAIL_PX = 400;

// act: {open(hit), similar(hit)}
export function showHits(list, hits, target, act) {
  list.className = target;
  list.classList.toggle("few", hits.length < 4);
  list.replaceChildren(...hits.map((hit) => hitElement(hit, target, act)));
}

// Placeholders while the first answer is pending.
export function showSkeletons(list, target, count) {
  list.className = target;
  const shape = () => make("li", { className: "skeleton", ariaHidden: "true" });
  list.replaceChildren(...Array.from({ length: Math.min(count, 12) }, shape));
}

function hitElement(hit, target, act) {
  const name = nameOf(hit);
  const item = make("li", { className: "hit" });
  Object.assign(item.dataset, { id: hit.id, rank: hit.rank });
  // The whole card opens the hit: the button's area is stretched over it.
  const open = makeButton("", () => act.open(hit), { className: "open" });
  open.append(make("span", { className: "caption" }, name));
  open.setAttribute("aria-haspopup", "dialog");
  const similar = makeButton("More like this", () => act.similar(hit), {
    className: "similar quiet",
    ariaLabel: `More like this: ${name}`,
  });
  if (target === "images") {
    const photo = make("img", { alt: "", loading: "lazy", decoding: "async" });
    Object.assign(photo, { width: 320, height: 240 }); // reserves the space before it loads
    showPhoto(photo, hit.id, THUMBNAIL_PX);
    item.append(photo);
  }
  item.append(open, scoresElement(hit), similar);
  return item;
}

function scoresElement(hit) {
  const line = make("p", { className: "scores" }, make("strong", {}, String(hit.rank)));
  if (hit.probability != null) line.append(probabilityElement(hit.probability));
  line.append(make("span", { title: stagesOf(hit) }, hit.score.toFixed(2)));
  return line;
}

function stagesOf({ stages: { match, align } }) {
  const parts = [`matching ${fourDigits(match.score)}, rank ${match.rank}`];
  if (align) parts.push(`alignment ${fourDigits(align.score)}, rank ${align.rank}`);
  return parts.join("; ");
}

function probabilityElement(probability) {
  const element = make("span", { className: "probability", title: "Probability of a match" });
  element.dataset.probability = probability;
  element.append(percent(probability), make("span", { className: "unseen" }, " likely"));
  return element;
}

// The hit that an arrow key, Home or End leads to from another one; undefined if there is none.
export function neighbour(hit, key) {
  const hits = [...hit.parentElement.children];
  const here = hits.indexOf(hit);
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(hits), ArrowUp: -columns(hits) };
  if (key === "Home") return hits[0];
  if (key === "End") return hits.at(-1);
  return steps[key] ? hits[here + steps[key]] : undefined;
}

// The number of hits in the first row, which the browser's grid layout decides.
function columns(hits) {
  const below = hits.findIndex((hit) => hit.offsetTop > hits[0].offsetTop);
  return below === -1 ? hits.length : below;
}
