// Stacks: photos of one moment and copies, which are one tile until it is opened.

import { at, make, makeButton } from "./elements.js";
import { count } from "./formats.js";
import { indexFacts } from "./index_facts.js";
import { showPhoto } from "./photos.js";
import { readItem } from "./service.js";

const THUMBNAIL_PX = 320;

const box = at("viewer-stack");

// Whether photos are stacked: as chosen, and otherwise in an index that follows folders.
export async function isStacked({ target, stack }) {
  if (target !== "images" || stack !== null) return target === "images" && stack;
  return (await indexFacts).index.follows_folders;
}

// onStack(difference): called with the fields of the search that changed.
export function startStacking(onStack) {
  at("stack").addEventListener("change", () => onStack({ stack: at("stack").checked }));
}

// The choice, where an index has stacks.
export async function showStacking(search) {
  const [{ index }, isOn] = await Promise.all([indexFacts, isStacked(search)]);
  at("stack").checked = isOn;
  at("stack-label").hidden = search.target !== "images" || index.skipped === null;
}

// What is shown of a stack on its tile, and what is read aloud.
export function stackElements({ stack }) {
  if (!stack) return [];
  const words = `, ${count(stack.count)} photos that belong together`;
  const badge = make("span", { className: "stacked", title: words.slice(2) }, count(stack.count));
  badge.ariaHidden = "true";
  return [badge, make("span", { className: "unseen" }, words)];
}

// Show the photos of an open stack. step(hit, list): opens one of them.
export function showStack(hit, list, step) {
  const { stack } = hit;
  box.hidden = !stack;
  if (!stack) return;
  at("viewer-stack-title").textContent = `${count(stack.count)} photos that belong together`;
  box.querySelector("ol").replaceChildren(
    ...stack.ids.map((id, place) => {
      const name = `Photo ${place + 1} of ${stack.ids.length}`;
      const button = makeButton("", () => openMember(id, hit, list, step, button), { ariaLabel: name });
      if (id === hit.id) button.setAttribute("aria-current", "true");
      const photo = make("img", { alt: "", loading: "lazy", decoding: "async" });
      showPhoto(photo, id, THUMBNAIL_PX);
      button.append(photo);
      return make("li", {}, button);
    }),
  );
}

// tile: the item of the list that stands for the photo.
async function openMember(id, hit, list, step, button) {
  const tile = hit.tile ?? hit;
  try {
    const member = id === tile.id ? tile : { ...(await readItem("images", id)), stack: hit.stack, tile };
    if (!button.isConnected) return; // another photo is shown by now
    step(member, list);
    box.querySelector("[aria-current]")?.focus({ preventScroll: true });
  } catch {
    button.disabled = true; // it is no longer in the index
  }
}
