// Further items: loaded when the end of the list comes near, or by the button there, which keyboards
// and screen readers reach like any other.

import { at } from "./elements.js";

const NEAR = "0px 0px 250px"; // below the window
const WORDS = "Show more";

const line = at("more");
const button = line.querySelector("button");
const found = at("found");
const watcher = new IntersectionObserver(
  (entries) => {
    if (entries.some((entry) => entry.isIntersecting)) loadMore();
  },
  { rootMargin: NEAR },
);

let next = null; // loads the next items, and ends with an offer of those after them
let follows = true; // whether the next items come after those on the page
let loading = null; // the promise of the items that are on their way

// load: async function, or null if nothing follows. words: of the button, if only that loads: items
// which do not follow at the end.
export function offerMore(load, words = null) {
  next = load;
  loading = null;
  follows = words === null;
  line.hidden = load === null;
  button.textContent = words ?? WORDS;
  watcher.disconnect();
  if (load && follows) watcher.observe(line); // reports at once whether the end is near already
}

// Resolves when the items are shown, or nothing follows.
export function loadMore() {
  if (next !== null) loading ??= loadNext(next);
  return loading;
}

async function loadNext(mine) {
  button.textContent = "Loading…";
  try {
    await mine();
  } catch (error) {
    if (mine !== next) return; // another list is shown by now
    watcher.disconnect();
    loading = null;
    button.textContent = `${error.message} Try again`;
  }
}

export function startMore() {
  button.addEventListener("click", async () => {
    const shown = found.querySelectorAll(".hit").length;
    const isAppended = follows;
    await loadMore();
    if (!isAppended) {
      if (line.hidden) found.focus({ preventScroll: true });
      return;
    }
    // Where the reader was: at the end of what was there.
    [...found.querySelectorAll(".hit .open")].at(shown)?.focus({ preventScroll: true });
  });
}
