// The key, where the service needs one.

import { at } from "./elements.js";
import { showProblem } from "./problems.js";
import { setKey } from "./service.js";

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
  if (tried) showProblem(error); // before, that one is missing is no news
}
