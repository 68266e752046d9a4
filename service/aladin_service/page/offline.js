// When nobody answers: says so, watches for the service to come back, and goes on by itself.

import { at } from "./elements.js";
import { isUp } from "./service.js";

const LOOK_AGAIN_MS = 2000;

const notice = at("offline");
let watching = false;
const pending = new Set(); // what failed, each once however often it was tried

// Say that nobody answers, and call goOn(), if there is something to do, once somebody does.
export async function waitForService(goOn = null) {
  notice.textContent = navigator.onLine
    ? "The service does not answer. The page goes on by itself when it does."
    : "You are offline. The page goes on by itself when you are back.";
  notice.hidden = false;
  if (goOn) pending.add(goOn);
  if (watching) return;
  watching = true;
  while (!navigator.onLine || !(await isUp())) await pause();
  watching = false;
  notice.hidden = true;
  const failed = [...pending];
  pending.clear();
  for (const goOnWith of failed) goOnWith();
}

function pause() {
  return new Promise((resolve) => {
    const timer = setTimeout(done, LOOK_AGAIN_MS);
    addEventListener("online", done);
    function done() {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    }
  });
}

// Being offline is told at once, not at the next search.
export function startOffline() {
  addEventListener("offline", () => waitForService());
  if (!navigator.onLine) waitForService();
}
