// What went wrong, said where it is seen and heard, with a way on.

import { at, make, makeButton } from "./elements.js";
import { Problem, Unreachable } from "./service.js";

const box = at("error");
let countdown = null;

export function hideProblem() {
  clearInterval(countdown);
  box.hidden = true;
  box.replaceChildren();
}

// retry: what to do again; without it there is no way on but another search.
export function showProblem(error, retry = null) {
  hideProblem();
  const known = error instanceof Problem;
  const text = known ? error.message : `This page failed: ${error.message}`;
  box.append(make("p", {}, make("strong", {}, title(error)), ` ${sentence(text)}`));
  if (error.code) {
    const parts = [make("code", {}, error.code)];
    if (error.requestId) parts.push(" · request ", make("code", {}, error.requestId));
    box.append(make("p", { className: "faint" }, ...parts));
  }
  if (retry) box.append(retryButton(retry, error.retryAfterS));
  box.hidden = false;
}

function title(error) {
  if (error instanceof Unreachable) return "Nobody answers.";
  if (error.status === 429) return "Busy.";
  if ([413, 415].includes(error.status)) return "This photo is refused.";
  if (error.status === 422) return "This search is refused.";
  return "That did not work.";
}

// The service's messages begin small and end without a full stop.
function sentence(message) {
  const capital = message.charAt(0).toUpperCase() + message.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
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
