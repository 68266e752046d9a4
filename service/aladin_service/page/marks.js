// Hits marked as right or wrong: kept until the reader searches for more like the right ones and
// unlike the wrong ones, or shows another search.

import { at, make, makeButton } from "./elements.js";
import { nameOf } from "./search.js";

const MARKS = [
  { role: "like", sign: "✓", label: "Right", title: "Right: find more like these" },
  { role: "unlike", sign: "✕", label: "Not this", title: "Not this" },
];

const bar = at("marks");
const marked = new Map(); // by id: {role, id, name, of}

// onMarks(examples): called with the parts of a query that were marked.
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

// Two buttons that mark an item; target: its collection.
export function markButtons(item, target) {
  const name = nameOf(item);
  const group = make("span", { className: "marks" });
  for (const { role, sign, label, title } of MARKS) {
    const button = makeButton("", () => mark(role, { id: item.id, name, of: target }), {
      className: `mark ${role}`,
      ariaLabel: `${label}: ${name}`,
      title,
    });
    button.append(make("span", { ariaHidden: "true" }, sign));
    Object.assign(button.dataset, { item: item.id, role });
    showMark(button);
    group.append(button);
  }
  return group;
}

function mark(role, item) {
  if (marked.get(item.id)?.role === role) marked.delete(item.id);
  else marked.set(item.id, { role, ...item });
  showMarks();
}

// An item may be on the page twice, and in the viewer.
function showMarks() {
  document.querySelectorAll(".mark").forEach(showMark);
  const roles = [...marked.values()].map(({ role }) => role);
  const [right, wrong] = MARKS.map(({ role }) => roles.filter((each) => each === role).length);
  const words = [right && `${right} right`, wrong && `${wrong} wrong`].filter(Boolean);
  at("marks-count").textContent = words.join(", ");
  at("marks-search").textContent = right ? "More like these" : "Search without these";
  bar.hidden = marked.size === 0;
}

function showMark(button) {
  const { item, role } = button.dataset;
  button.setAttribute("aria-pressed", marked.get(item)?.role === role);
}
