// What the page shows when a request fails: an error, the form for an API key, or a notice that the
// service is unreachable.

import { at, make, makeButton } from "./elements.js";
import { capital } from "./formats.js";
import { Problem, Unreachable, isUp, setKey } from "./service.js";

// --- Errors ---

const box = at("error");
let countdown = null;

export function hideProblem() {
  clearInterval(countdown);
  box.hidden = true;
  box.replaceChildren();
}

// retry: repeats what failed; null if the same request would fail again.
export function showProblem(error, retry = null) {
  hideProblem();
  const known = error instanceof Problem;
  const text = known ? error.message : `The page failed: ${error.message}`;
  box.append(make("p", {}, make("strong", {}, title(error)), ` ${sentence(text)}`));
  if (error.code) {
    const parts = [make("code", {}, error.code)];
    if (error.requestId) parts.push(" · request ", make("code", {}, error.requestId));
    box.append(make("p", { className: "faint detail" }, ...parts));
  }
  if (retry) box.append(retryButton(retry, error.retryAfterS));
  box.hidden = false;
}

function title(error) {
  if (error.title) return error.title;
  if (error instanceof Unreachable) return "No connection.";
  if (error.status === 401) return "This key is not accepted.";
  if (error.status === 429) return "Too many searches at once.";
  if (error.status === 503) return "The service is not ready.";
  if ([413, 415].includes(error.status)) return "This photo cannot be used.";
  if (error.status === 404) return "It is no longer there.";
  if (error.status === 422) return "This search cannot be answered.";
  return "Something went wrong.";
}

// The service's messages start in lower case, some with the name of the field, and have no full stop.
function sentence(message) {
  const text = capital(message.replace(/^image: /, ""));
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function retryButton(retry, afterS) {
  const button = makeButton("Try again", retry, { className: "retry" });
  if (afterS === null || afterS === undefined) return button;
  let left = Math.ceil(afterS);
  button.disabled = true;
  button.textContent = `Try again in ${left} s`;
  countdown = setInterval(() => {
    left -= 1;
    button.disabled = left > 0;
    button.textContent = left > 0 ? `Try again in ${left} s` : "Try again";
    if (left <= 0) clearInterval(countdown);
  }, 1000);
  return button;
}

// --- The form for an API key ---

const form = at("key-form");
const field = at("key");
let tried = false;

// onKey: called when there is a key to try.
export function startKeyForm(onKey) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(field.value.trim());
    tried = true;
    field.value = "";
    form.hidden = true;
    onKey();
  });
}

export function askForKey(error) {
  form.hidden = false;
  field.focus();
  if (tried) showProblem(error); // a missing key is not an error before one was entered
}

// --- An unreachable service: watch for it, and continue when it responds ---

const POLL_MS = 2000;

const notice = at("offline");
let watching = false;
const pending = new Set(); // the functions to call, each once however often it failed

// Show the notice, and call resume(), if given, once the service responds.
export async function waitForService(resume = null) {
  notice.textContent = navigator.onLine
    ? "The service does not respond. The page continues automatically when it does."
    : "You are offline. The page continues automatically when you are back online.";
  notice.hidden = false;
  if (resume) pending.add(resume);
  if (watching) return;
  watching = true;
  while (!navigator.onLine || !(await isUp())) await pause();
  watching = false;
  notice.hidden = true;
  const failed = [...pending];
  pending.clear();
  for (const each of failed) each();
}

function pause() {
  return new Promise((resolve) => {
    const timer = setTimeout(done, POLL_MS);
    addEventListener("online", done);
    function done() {
      clearTimeout(timer);
      removeEventListener("online", done);
      resolve();
    }
  });
}

// Report a lost connection immediately, not at the next search.
export function startOffline() {
  addEventListener("offline", () => waitForService());
  if (!navigator.onLine) waitForService();
}
