// Photos of the index in <img> elements.

import { hasKey, readPicture } from "./service.js";

const RETRY_MS = 1500; // after a photo that failed to load: many may have been requested at once

function photoAddress(id, sizePx) {
  return `v1/images/${encodeURIComponent(id)}?size=${sizePx}`;
}

// Show an item's photo. An image whose photo does not load has the class "missing".
export async function showPhoto(image, id, sizePx) {
  const address = photoAddress(id, sizePx);
  if (hasKey()) {
    // An <img> cannot send a key itself.
    try {
      showBlob(image, await readPicture(address));
    } catch {
      image.classList.add("missing");
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
  image.addEventListener("error", () => image.classList.add("missing"), { once: true });
  image.loading = "eager"; // the data is already here
  image.src = URL.createObjectURL(blob);
}

function tryAgain(image, address) {
  image.classList.add("missing");
  const again = () => (image.src = address);
  if (navigator.onLine) setTimeout(again, RETRY_MS);
  else addEventListener("online", again, { once: true });
}
