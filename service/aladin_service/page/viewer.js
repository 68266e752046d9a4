// The dialog that shows one item: its photo as large as the window, why it matches, what is known
// of it, and the searches that start from it.

import { at, make } from "./elements.js";
import { forgetEvidence, showEvidence } from "./evidence.js";
import { frameElement } from "./heat.js";
import { indexFacts } from "./index_facts.js";
import { photoAddress, showBlob, showPhoto, whenMissing } from "./photos.js";
import { crossesKinds, fileOf, itemQuery, labelOf } from "./search.js";
import { startSelection } from "./selection.js";
import { hasKey, largestPhotoPx, readPicture } from "./service.js";
import { showStack } from "./stacks.js";
import { saveAs, showSide } from "./viewer_side.js";

const PHOTO_PX = 1280;

const dialog = at("viewer");
const stage = at("stage");
const download = at("download");

let act = {};
let shown = null; // {hit, list, photo, photoId, selection}
let hasParts = false; // whether a part of a photo can be searched for

// actions: {similar(hit), cross(hit), part(query, box), filter(field, value), step(hit, list),
// more(), close()}
export function startViewer(actions) {
  act = actions;
  at("viewer-close").addEventListener("click", () => dialog.close());
  at("viewer-previous").addEventListener("click", () => step(-1));
  at("viewer-next").addEventListener("click", () => step(1));
  at("zoom").addEventListener("click", () => zoom(!isZoomed()));
  stage.addEventListener("dblclick", (event) => zoom(!isZoomed(), event));
  at("viewer-part").addEventListener("click", selectPart);
  indexFacts.then(({ isAligned, targets }) => {
    hasParts = isAligned && targets.includes("images");
    at("viewer-part").hidden = !hasParts;
  });
  at("full-screen").addEventListener("click", fullScreen);
  at("full-screen").hidden = !document.fullscreenEnabled;
  download.addEventListener("click", onDownload);
  dialog.addEventListener("close", () => {
    shown = null;
    forgetEvidence();
    act.close();
  });
  // Not at the dialog: a button that becomes disabled gives the focus to the page.
  addEventListener("keydown", (event) => dialog.open && onKey(event));
}

export function closeViewer() {
  if (dialog.open) dialog.close();
}

// list: {hits, search} of the hit, for its neighbours and its query.
export function openViewer(hit, list) {
  const { search } = list;
  const { photo, photoId, query } = photoOf(hit, search);
  shown = { hit, list, photo, photoId };
  at("viewer-title").textContent = search.target === "images" ? labelOf(hit) : "Text";
  showPlace();
  const frame = photo && frameElement(photo, search.target === "images" ? hit.size_px : null);
  stage.replaceChildren(...(frame ? [frame] : []));
  dialog.classList.toggle("no-photo", !frame);
  at("viewer-tools").hidden = !frame;
  if (photo) whenMissing(photo, (notFound) => lose(frame, hit, notFound));
  at("viewer-part").setAttribute("aria-pressed", "false");
  const onPart = (box) => act.part(query, box);
  if (frame) shown.selection = selectionOn(frame, onPart);
  download.hidden = photoId === null;
  if (photoId !== null) {
    download.href = photoAddress(photoId);
    download.download = labelOf(hit);
  }
  showSide(hit, search, act);
  showStack(hit, list, act.step);
  if (!dialog.open) dialog.showModal();
  zoom(false);
  if (!document.fullscreenElement) at("viewer-title").focus({ preventScroll: true });
  showEvidence(hit, search, frame, hasParts ? onPart : null);
}

// A mouse draws a box on a photo as it is; once chosen, so do fingers, and on an enlarged one.
function selectionOn(frame, draw) {
  const isPlain = () => hasParts && !isZoomed();
  return startSelection(frame, {
    draw,
    toggle: (isOn) => at("viewer-part").setAttribute("aria-pressed", isOn),
    starts: ({ pointerType }) => pointerType === "mouse" && isPlain(),
  });
}

function selectPart() {
  const { selection } = shown;
  if (hasParts) selection?.toggle(!selection.isOn());
}

// The photo of the pair: the hit's or the query's; photoId: if it is one of the index; query: a
// search by that photo.
function photoOf(hit, search) {
  const { query, target } = search;
  const ofQuery = target === "texts";
  if (ofQuery && !crossesKinds(search)) return { photo: null, photoId: null, query };
  const photo = make("img", { alt: ofQuery ? "The photo of the query" : labelOf(hit), draggable: false });
  if (ofQuery && query.file) {
    showBlob(photo, query.file);
    return { photo, photoId: null, query };
  }
  const photoId = ofQuery ? query.id : hit.id;
  showPhoto(photo, photoId, Math.min(PHOTO_PX, largestPhotoPx()));
  return { photo, photoId, query: ofQuery ? query : itemQuery(hit, "images") };
}

function lose(frame, hit, notFound) {
  const note = notFound ? "Photo not found" : "Photo not loaded";
  frame.append(make("p", { className: "lost" }, make("span", {}, note), make("span", {}, fileOf(hit))));
}

// By id: a list that was read again has other objects of the same items.
const placeOf = ({ hit, list }) => list.hits.findIndex(({ id }) => id === (hit.tile ?? hit).id);

function showPlace() {
  const { list } = shown;
  const place = placeOf(shown);
  // How many stacks there are is known when all are listed.
  const isWhole = !list.stacked || list.following === null;
  const total = list.stacked ? list.hits.length : (list.total ?? list.hits.length);
  const all = isWhole ? total : `more than ${total}`;
  at("viewer-place").textContent = total > 1 && place >= 0 ? `${place + 1} of ${all}` : "";
  at("viewer-previous").disabled = place <= 0;
  at("viewer-next").disabled = place < 0 || (place + 1 >= total && isWhole && list.isLast !== false);
}

async function step(by) {
  const { hit, list } = shown;
  const place = placeOf(shown) + by;
  if (place === list.hits.length && by > 0) await act.more();
  if (shown?.hit === hit && list.hits[place]) act.step(list.hits[place], list);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    "+": () => zoom(true),
    "=": () => zoom(true),
    "-": () => zoom(false),
    0: () => zoom(false),
    b: selectPart,
    f: fullScreen,
  };
  keys[event.key]?.();
}

function fullScreen() {
  if (document.fullscreenElement) document.exitFullscreen();
  else if (document.fullscreenEnabled && shown.photo) stage.requestFullscreen();
}

const isZoomed = () => stage.classList.contains("zoomed");

// Enlarge the photo, whose stage then scrolls, or show all of it. point: a place in the window that
// stays in view; without one, the middle of the photo.
function zoom(isOn, point = null) {
  const frame = stage.querySelector(".frame");
  const isLarge = isOn && frame !== null;
  const box = frame?.getBoundingClientRect();
  stage.classList.toggle("zoomed", isLarge);
  at("zoom").setAttribute("aria-pressed", isLarge);
  if (!isLarge) return;
  const [x, y] = point
    ? [(point.clientX - box.left) / box.width, (point.clientY - box.top) / box.height]
    : [0.5, 0.5];
  stage.scrollTo(frame.offsetWidth * x - stage.clientWidth / 2, frame.offsetHeight * y - stage.clientHeight / 2);
  if (!shown.photoId || shown.isSharp) return;
  shown.isSharp = true;
  sharpen(shown);
}

// Replace the photo by a larger one once that has loaded.
async function sharpen({ photo, photoId }) {
  const larger = make("img");
  showPhoto(larger, photoId, largestPhotoPx());
  try {
    await larger.decode();
    photo.src = larger.src;
  } catch {
    // The photo stays as it is.
  }
}

// A link cannot send a key itself.
async function onDownload(event) {
  if (!hasKey()) return;
  event.preventDefault();
  saveAs(await readPicture(download.getAttribute("href")), download.download);
}
