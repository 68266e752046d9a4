// Photos in rows of equal height, or texts in a list.

import { percent, make, makeButton } from "./elements.js";
import { fieldLabel, hasLabel } from "./formats.js";
import { markButton } from "./marks.js";
import { showPhoto, whenMissing } from "./photos.js";
import { pickBox } from "./picks.js";
import { preference } from "./preferences.js";
import { fileOf, labelOf } from "./search.js";
import { outlineBox } from "./selection.js";
import { stackElements } from "./stacks.js";

const STEPS_PX = [320, 640, 1280]; // few sizes, so that the service can keep its thumbnails
const WIDEST = 3; // photos that are wider or taller are shown whole in a frame of this shape
const SKELETONS = 12;
// As in photos.css: squares that are filled.
const PHONE = matchMedia("(max-width: 36rem)");
const PHONE_COLUMNS = 3;

// act: {open(item), similar(item)}
export function showItems(list, items, target, act) {
  list.className = target === "images" ? "photos" : "texts";
  list.replaceChildren();
  appendItems(list, items, target, act);
}

export function appendItems(list, items, target, act) {
  list.append(...items.map((item) => itemElement(item, target, act)));
}

// Sort the elements of a list; what is seen at the top stays in its place.
export function sortItems(list, items) {
  const elements = new Map([...list.children].map((element) => [element.dataset.id, element]));
  const seen = [...list.children].find((element) => element.getBoundingClientRect().bottom > 0);
  const top = seen?.getBoundingClientRect().top;
  list.append(...items.map(({ id }) => elements.get(id)));
  if (seen) scrollBy({ top: seen.getBoundingClientRect().top - top, behavior: "instant" });
}

// Placeholders while the first answer is pending.
export function showSkeletons(list, target, count) {
  list.className = target === "images" ? "photos" : "texts";
  const shape = () => make("li", { className: "skeleton", ariaHidden: "true" });
  list.replaceChildren(...Array.from({ length: Math.min(count, SKELETONS) }, shape));
}

// Width divided by height of the frame of an item's photo.
export function ratioOf({ size_px: size }) {
  if (!size) return 4 / 3; // unknown
  return Math.min(WIDEST, Math.max(1 / WIDEST, size[0] / size[1]));
}

// Where the part of a photo that was searched for is in this photo.
function placeFound(found) {
  const layer = make("div", { className: "found-layer" });
  outlineBox(layer, found, "found-box");
  return layer;
}

// Whether the photo fills its frame.
function isWhole({ size_px: size }) {
  return size && Math.max(size[0] / size[1], size[1] / size[0]) <= WIDEST;
}

function itemElement(item, target, act) {
  const name = labelOf(item);
  const element = make("li", { className: "hit" });
  element.dataset.id = item.id;
  // The whole card opens the item: the button's area is stretched over it.
  const open = makeButton("", () => act.open(item), { className: "open", title: fileOf(item) });
  const [badge, ...stacked] = stackElements(item);
  open.append(make("span", { className: "caption" }, name), ...stacked);
  open.setAttribute("aria-haspopup", "dialog");
  const similar = makeButton("More like this", () => act.similar(item), {
    className: "similar",
    ariaLabel: `More like this: ${name}`,
  });
  if (target === "images") element.append(photoElement(element, item));
  if (badge) element.append(badge);
  if (item.found && isWhole(item)) element.append(placeFound(item.found));
  element.append(open);
  if (item.rank !== undefined) {
    element.dataset.rank = item.rank;
    element.append(...wordsFound(item, target), scoresElement(item), markButton(item, target));
  }
  element.append(similar);
  if (target === "images") element.append(pickBox(item));
  return element;
}

// Where rare words of the query are written with the item.
function wordsFound({ stages: { lexical } }, target) {
  return (lexical ?? []).map(({ field, words }) => {
    const quoted = words.map((word) => `“${word}”`).join(", ");
    return make("p", { className: "written" }, `${quoted} in the ${placeName(field, target)}`);
  });
}

function placeName(field, target) {
  if (field === "uri") return "file name";
  if (field === "text") return target === "images" ? "caption" : "text";
  const name = field.replace(/^metadata\./, "");
  return hasLabel(name) ? fieldLabel(name).toLowerCase() : `field ${name}`;
}

function photoElement(element, item) {
  const ratio = ratioOf(item);
  element.style.setProperty("--ratio", ratio.toFixed(4));
  const photo = make("img", { alt: "", loading: "lazy", decoding: "async" });
  photo.dataset.px = sizeFor(ratio);
  showPhoto(photo, item.id, photo.dataset.px);
  whenMissing(photo, (notFound) => {
    const note = make("span", {}, notFound ? "Photo not found" : "Photo not loaded");
    element.append(make("p", { className: "lost" }, note, make("span", {}, fileOf(item))));
  });
  return photo;
}

function sizeFor(ratio) {
  const heightPx = PHONE.matches ? innerWidth / PHONE_COLUMNS : preference("size");
  const needed = heightPx * Math.max(1, ratio, PHONE.matches ? 1 / ratio : 0) * (window.devicePixelRatio || 1);
  return STEPS_PX.find((step) => step >= needed) ?? STEPS_PX.at(-1);
}

// Load larger photos where those on the page have become too small.
export function refreshPhotos() {
  for (const photo of document.querySelectorAll(".photos .hit img")) {
    const item = photo.closest(".hit");
    const px = sizeFor(Number(item.style.getPropertyValue("--ratio")));
    if (px <= Number(photo.dataset.px)) continue;
    photo.dataset.px = px;
    showPhoto(photo, item.dataset.id, px);
  }
}

function scoresElement({ rank, probability, score, stages: { match, align } }) {
  const line = make("p", { className: "scores detail" }, make("strong", {}, String(rank)));
  if (probability != null) line.append(probabilityElement(probability));
  const parts = [`matching ${match.score.toFixed(4)}, rank ${match.rank}`];
  if (align) parts.push(`alignment ${align.score.toFixed(4)}, rank ${align.rank}`);
  line.append(make("span", { title: parts.join("; ") }, score.toFixed(2)));
  return line;
}

function probabilityElement(probability) {
  const element = make("span", { className: "probability", title: "Probability of a match" });
  element.dataset.probability = probability;
  element.append(percent(probability), make("span", { className: "unseen" }, " likely"));
  return element;
}
