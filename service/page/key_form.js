// The key, where the service needs one.

import { at } from "./elements.js";
import { setKey } from "./service.js";

const form = at("key-form");
const field = at("key");

// onKey: called when there is a key to try.
export function startKeyForm(onKey) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setKey(field.value.trim());
    field.value = "";
    form.hidden = true;
    onKey();
  });
}

export function askForKey() {
  form.hidden = false;
  field.focus();
}
