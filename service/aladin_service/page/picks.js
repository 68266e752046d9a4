// Photos that are selected, to be downloaded together or to have their paths copied. While photos are
// selected, a click on one selects it, with Shift all from the last one on.

import { at, make } from "./elements.js";
import { counted } from "./formats.js";
import { neighbour } from "./keyboard.js";
import { fileOf, labelOf } from "./search.js";
import { readArchive } from "./service.js";
import { saveAs } from "./viewer_side.js";

const TYPING = "input:not(.pick), textarea, select";
const ARROWS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
const MEGABYTE = 1e6;

const found = at("found");
const toggle = at("picks-toggle");
const status = at("picks-count");
const download = at("picks-download");

const picked = new Map(); // by id: the item
const itemOf = new WeakMap(); // of a checkbox
let isOn = false;
let anchor = null; // id of the photo that was selected last
let loading = null; // the AbortController of a download

// The checkbox of a photo.
export function pickBox(item) {
  const box = make("input", { type: "checkbox", className: "pick", checked: picked.has(item.id) });
  box.ariaLabel = `Select ${labelOf(item)}`;
  itemOf.set(box, item);
  return box;
}

export function startPicks() {
  toggle.addEventListener("click", () => setMode(!isOn));
  at("picks-done").addEventListener("click", forgetPicks);
  at("picks-all").addEventListener("click", () => pick(boxes(), true));
  at("picks-copy").addEventListener("click", copyPaths);
  download.addEventListener("click", downloadPicked);
  found.addEventListener("click", onClick, { capture: true });
  found.addEventListener("change", ({ target }) => {
    if (target.matches(".pick")) pick([target], target.checked);
  });
  // Shift would select the words between two clicks.
  found.addEventListener("mousedown", (event) => {
    if (event.shiftKey && boxAt(event)) event.preventDefault();
  });
  addEventListener("keydown", onKey);
}

// Nothing is selected any more.
export function forgetPicks() {
  loading?.abort();
  picked.clear();
  anchor = null;
  setMode(false);
  for (const box of boxes()) box.checked = false;
}

const boxes = () => [...found.querySelectorAll(".pick")].filter((box) => box.closest("#library, ol").checkVisibility());
const boxAt = ({ target }) => target.closest?.(".hit")?.querySelector(".pick");
const idOf = (box) => itemOf.get(box).id;

function setMode(on) {
  isOn = on;
  document.body.classList.toggle("picking", on);
  toggle.setAttribute("aria-pressed", on);
  at("picks").hidden = !on;
  if (on) tell();
}

// Select boxes, or those no more; an item may be on the page twice.
function pick(some, wanted) {
  for (const box of some) {
    if (wanted) picked.set(idOf(box), itemOf.get(box));
    else picked.delete(idOf(box));
  }
  if (some.length) anchor = idOf(some.at(-1));
  for (const box of boxes()) box.checked = picked.has(idOf(box));
  if (!isOn) setMode(true);
  tell();
}

function pickThrough(box) {
  const all = boxes();
  const [first, last] = [all.findIndex((one) => idOf(one) === anchor), all.indexOf(box)];
  const from = first < 0 ? last : first;
  const range = all.slice(Math.min(from, last), Math.max(from, last) + 1);
  pick(last < from ? range.reverse() : range, true);
}

function tell(words = null) {
  const number = photoIds().length;
  status.textContent = words ?? (number ? `${counted(number, "photo")} selected` : "Select photos");
  for (const button of [download, at("picks-copy")]) button.disabled = number === 0;
}

// --- Choosing ---

function onClick(event) {
  const box = event.target.closest(".open") && boxAt(event);
  const isRange = event.shiftKey;
  if (!box || !(isOn || isRange || event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  event.stopPropagation();
  if (isRange && anchor !== null) pickThrough(box);
  else pick([box], !picked.has(idOf(box)));
}

function onKey(event) {
  if (document.querySelector("dialog[open]") || event.target.matches?.(TYPING)) return;
  const box = boxAt(event);
  const { key } = event;
  if (key === "Escape" && isOn) forgetPicks();
  else if (key === "a" && (event.ctrlKey || event.metaKey) && isOn) pick(boxes(), true);
  else if (event.ctrlKey || event.metaKey || event.altKey || !box) return;
  else if (key === "x") pick([box], !picked.has(idOf(box)));
  else if (event.shiftKey && ARROWS.includes(key)) extend(box, key);
  else return;
  event.preventDefault();
}

// Select from here to the photo that an arrow key leads to; the focus follows it anyway.
function extend(box, key) {
  const next = neighbour(box.closest(".hit"), key)?.querySelector(".pick");
  if (anchor === null) pick([box], true);
  if (next) pickThrough(next);
}

// --- What becomes of them ---

// A tile may stand for several photos, one of which is perhaps selected by itself.
const photoIds = () => [...new Set([...picked.values()].flatMap(({ id, stack }) => stack?.ids ?? [id]))];

async function downloadPicked() {
  loading?.abort();
  const mine = (loading = new AbortController());
  tell("Downloading…");
  try {
    const zip = await readArchive(photoIds(), mine.signal, (bytes) =>
      tell(`Downloading… ${(bytes / MEGABYTE).toFixed(1)} MB`));
    saveAs(zip, "photos.zip");
    tell(`${counted(photoIds().length, "photo")} downloaded`);
  } catch (error) {
    if (!mine.signal.aborted) tell(error.message);
  }
}

async function copyPaths() {
  const fileOfId = new Map([...picked].map(([id, item]) => [id, fileOf(item)]));
  const paths = photoIds().map((id) => fileOfId.get(id) ?? id); // of a folder, ids are paths
  try {
    await writeClipboard(paths.join("\n"));
    tell(`${counted(paths.length, "path")} copied`);
  } catch {
    tell("The browser does not let the page copy.");
  }
}

// Browsers have a clipboard for pages of this machine and of https alone.
async function writeClipboard(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = make("textarea", { value: text, className: "unseen" });
  at("picks").append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (!isDone) throw new Error("not copied");
}
