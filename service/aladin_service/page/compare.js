// Compares the ranking of the first stage with that of both stages: which hits moved, by how many
// places, and which entered or left the hits on the page.

import { at, make } from "./elements.js";

const columns = at("columns");
const matching = at("matching-hits");
const hits = at("hits");

export function hideComparison() {
  columns.classList.remove("comparing");
  for (const id of ["matching-column", "hits-about"]) at(id).hidden = true;
  at("hits-title").className = "unseen";
  at("hits-title").textContent = "Hits";
  matching.replaceChildren();
}

// Mark the moves in the two lists on the page, and return a sentence that sums them up.
// found, foundBefore: the hits of both stages and of the first stage alone.
export function showComparison(found, foundBefore) {
  columns.classList.add("comparing");
  for (const id of ["matching-column", "hits-about"]) at(id).hidden = false;
  at("hits-title").className = "";
  at("hits-title").textContent = "Two stages";

  for (const badge of columns.querySelectorAll(".moved")) badge.remove(); // of fewer hits
  const before = new Map(foundBefore.map((hit) => [hit.id, hit.rank]));
  const after = new Map(found.map((hit) => [hit.id, hit.rank]));
  let [up, down, entered] = [0, 0, 0];
  found.forEach((hit, index) => {
    // A hit has its first-stage rank even if it is not among the hits of the first stage.
    const places = (before.get(hit.id) ?? hit.stages.match.rank) - hit.rank;
    if (!before.has(hit.id)) entered += 1;
    else if (places > 0) up += 1;
    else if (places < 0) down += 1;
    mark(hits.children[index], places, before.has(hit.id) ? null : "entered");
  });
  for (const item of matching.children) {
    const rank = before.get(item.dataset.id);
    if (after.has(item.dataset.id)) mark(item, rank - after.get(item.dataset.id), null);
    else mark(item, 0, "left");
  }
  return `Re-ranking moved ${up} up and ${down} down, and added ${entered} to the first ${found.length}.`;
}

function mark(item, places, crossing) {
  const badge = make("span", { className: "moved" });
  badge.dataset.moved = places;
  badge.classList.add(places > 0 ? "up" : places < 0 ? "down" : "same");
  if (crossing) badge.classList.add(crossing);
  const move = places > 0 ? `up ${places}` : places < 0 ? `down ${-places}` : "same place";
  const arrow = places > 0 ? `▲ ${places}` : places < 0 ? `▼ ${-places}` : "=";
  const [sign, words] = {
    entered: [places > 0 ? `▲ ${places} new` : "new", `not among the first stage's hits, ${move}`],
    left: ["gone", "not among the hits of both stages"],
  }[crossing] ?? [arrow, move];
  badge.append(make("span", { ariaHidden: "true" }, sign));
  badge.append(make("span", { className: "unseen" }, words));
  item.querySelector(".scores")?.append(badge);
}

// onCompare(wanted): called with whether to show both rankings side by side.
export function startComparison(onCompare) {
  const toggle = at("compare");
  toggle.addEventListener("change", () => onCompare(toggle.checked));
}
