// Photos of the index in <img> elements.

import { itemPath } from "./formats.js";
import { hasKey, isMissing, readPicture } from "./service.js";

const RETRY_MS = 1500; // after a photo that failed to load: many may have been requested at once

const told = new WeakMap(); // what to call when a photo is missing

export function photoAddress(id, sizePx = null) {
  const address = `v1/images/${itemPath(id)}`;
  return sizePx === null ? address : `${address}?size=${sizePx}`;
}

// onMissing(notFound): called once if the photo cannot be shown; notFound: its file is gone.
export function whenMissing(image, onMissing) {
  told.set(image, onMissing);
}

// Show an item's photo. An image whose photo does not load has the class "missing".
export async function showPhoto(image, id, sizePx) {
  const address = photoAddress(id, sizePx);
  if (hasKey()) {
    // An <img> cannot send a key itself.
    try {
      showBlob(image, await readPicture(address));
    } catch (error) {
      giveUp(image, error.status === 404);
    }
    return;
  }
  image.addEventListener("load", () => image.classList.remove("missing"));
  image.addEventListener("error", () => tryAgain(image, address), { once: true });
  image.src = address;
}

// Show a file or a blob; one that the browser cannot decode is missing as well.
export function showBlob(image, blob) {
  const release = () => URL.revokeObjectURL(image.src);
  image.addEventListener("load", release, { once: true });
  image.addEventListener("error", () => giveUp(image, false), { once: true });
  image.loading = "eager"; // the data is already here
  image.src = URL.createObjectURL(blob);
}

async function tryAgain(image, address) {
  image.classList.add("missing");
  if (!navigator.onLine) {
    addEventListener("online", () => (image.src = address), { once: true });
    return;
  }
  if (await isMissing(address)) {
    giveUp(image, true);
    return;
  }
  image.addEventListener("error", () => giveUp(image, false), { once: true });
  setTimeout(() => (image.src = address), RETRY_MS);
}

function giveUp(image, notFound) {
  image.classList.add("missing");
  told.get(image)?.(notFound);
  told.delete(image);
}
