// The link to a search.

import { at } from "./elements.js";

const SAID_MS = 2000;

const button = at("share");

export function startSharing() {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(location.href);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy link"), SAID_MS);
  });
}

export function hideSharing() {
  button.hidden = true;
}

export function showSharing({ query }) {
  // Browsers lend the clipboard to pages of this machine and of https alone.
  button.hidden = !navigator.clipboard;
  button.disabled = Boolean(query.file);
  button.textContent = button.disabled ? "No link: your photo is not in it" : "Copy link";
}
