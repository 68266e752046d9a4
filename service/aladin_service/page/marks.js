// Hits marked as right: kept until the reader searches for more like them, or shows another search.

import { at, make, makeButton } from "./elements.js";
import { nameOf } from "./search.js";

const bar = at("marks");
const marked = new Map(); // by id: {role, id, name, of}

// onMarks(examples): called with the terms of a query that were marked.
export function startMarks(onMarks) {
  at("marks-search").addEventListener("click", () => onMarks([...marked.values()]));
  at("marks-clear").addEventListener("click", () => {
    forgetMarks();
    at("found").focus({ preventScroll: true });
  });
}

export function forgetMarks() {
  marked.clear();
  showMarks();
}

// A button that marks an item; target: its collection.
export function markButton({ id, ...item }, target) {
  const name = nameOf({ id, ...item });
  const mark = () => {
    if (!marked.delete(id)) marked.set(id, { role: "like", id, name, of: target });
    showMarks();
  };
  const properties = { className: "mark", ariaLabel: `Right: ${name}`, title: "Right: find more like these" };
  const button = makeButton("", mark, properties);
  button.append(make("span", { ariaHidden: "true" }, "✓"));
  button.dataset.item = id;
  showMark(button);
  return button;
}

// An item may be on the page twice, and in the viewer.
function showMarks() {
  document.querySelectorAll(".mark").forEach(showMark);
  at("marks-count").textContent = marked.size ? `${marked.size} right` : "";
  bar.hidden = marked.size === 0;
}

function showMark(button) {
  button.setAttribute("aria-pressed", marked.has(button.dataset.item));
}
