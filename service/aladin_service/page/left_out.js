// Which files the index lacks, and why: a line above the photos that unfolds, reason by reason.

import { at, make, makeButton } from "./elements.js";
import { counted } from "./formats.js";

const box = at("left-out");

// skipped: from the description of the index; null for an index in a vector database.
export function showLeftOut(skipped) {
  const words = wordsOf(skipped);
  box.hidden = words === null;
  if (words === null) return;
  box.querySelector("summary").textContent = words;
  const { total, reasons, other_files: others } = skipped;
  const named = reasons.map(({ reason, count, names }) => {
    const more = count > names.length ? `, and ${count - names.length} more` : "";
    return [count, reason, ` (${names.join(", ")}${more})`];
  });
  const rest = total - reasons.reduce((sum, { count }) => sum + count, 0);
  if (rest > 0) named.push([rest, "for other reasons", ""]);
  const kinds = Object.entries(others).map(([kind, count]) => [count, kind, ""]);
  box.querySelector("dl").replaceChildren(
    ...[["Unusable", named], ["Not photos", kinds]]
      .filter(([, lines]) => lines.length)
      .map(([title, lines]) => make("div", {}, make("dt", {}, title), make("dd", {}, listOf(lines)))),
  );
}

// A button that unfolds the list, for other places of the page; null if nothing is left out.
export function leftOutLink(skipped) {
  const words = wordsOf(skipped);
  return words && makeButton(words, () => {
    box.open = true;
    box.querySelector("summary").focus();
  }, { className: "quiet" });
}

// Files that look like photos are missed; others are counted all the same.
function wordsOf(skipped) {
  if (!skipped) return null;
  if (skipped.total) return `${counted(skipped.total, "file")} left out`;
  const others = Object.values(skipped.other_files).reduce((sum, count) => sum + count, 0);
  return others ? `${counted(others, "file")} that ${others === 1 ? "is no photo" : "are no photos"}` : null;
}

function listOf(lines) {
  const items = lines.map(([count, what, names]) =>
    make("li", {}, `${counted(count, "file")}: ${what}`, make("span", { className: "faint" }, names)));
  return make("ul", {}, ...items);
}
