// What the service read in the words of a query: dates and places, which became filters, each as a chip
// that takes it off; and its warning of words that the model cannot read.

import { at, make, makeButton } from "./elements.js";
import { fieldLabel, shownValue } from "./formats.js";

const LANGUAGE =
  "The model does not know the letters of these words, so the order of the photos is next to random." +
  " Search in the language that the model was made for, or with a photo.";

const list = at("read");
const note = at("warning");

let change = null;

// onUnread(difference): called with the fields of the search that changed.
export function startReading(onUnread) {
  change = onUnread;
}

// Show what was read for an answer; null: there is no search.
export function showReading(search, answer) {
  note.hidden = !answer?.warnings.includes("language");
  note.textContent = note.hidden ? "" : LANGUAGE;
  const read = (answer?.read ?? []).map((each) => chip(`${described(each)} ×`, {
    ariaLabel: `Search for “${each.words}” as words instead`,
    title: "Read in the words; take it off to search for them as words",
  }, [...search.unread, each.words]));
  const unread = (search?.terms.length ? [] : search?.unread ?? []).map((words) => chip(
    `“${words}” as words · read it again`,
    { className: "quiet" },
    search.unread.filter((each) => each !== words),
  ));
  list.replaceChildren(...read, ...unread);
  list.hidden = list.children.length === 0;
}

export const readingWords = ({ read }) => read.map(described).join(", ");

// “in Bern”: Place Bern; “July 2022”: Date taken
function described({ words, filter }) {
  const [[field, value]] = Object.entries(filter);
  const what = typeof value === "object" ? "" : ` ${shownValue(value, field)}`;
  return `“${words}”: ${fieldLabel(field)}${what}`;
}

function chip(text, properties, unread) {
  const button = makeButton(text, () => {
    change({ unread });
    at("found").focus({ preventScroll: true }); // the chip is gone then
  }, properties);
  return make("li", {}, button);
}
