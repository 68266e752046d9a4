// What is being searched: how many photos and texts, and which of the two there are.

import { at } from "./elements.js";
import { showDefaults } from "./options.js";
import { describeIndex } from "./service.js";

const SIDES = [["images", "photos"], ["texts", "texts"]];

// Returns the targets that the index has.
export async function showIndexFacts() {
  const index = await describeIndex();
  const sides = SIDES.filter(([target]) => index[target] !== null);
  for (const [target] of SIDES) {
    document.querySelector(`input[name=target][value=${target}]`).disabled = index[target] === null;
  }
  const counts = sides.map(([target, noun]) => `${index[target].count.toLocaleString("en")} ${noun}`);
  at("index-info").textContent = counts.join(" · ");
  showDefaults(index.default_candidates);
  return sides.map(([target]) => target);
}
