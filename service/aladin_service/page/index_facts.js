// What is being searched: how many photos and texts, and which of the two there are.

import { at } from "./elements.js";
import { showDefaults } from "./options.js";
import { describeIndex } from "./service.js";

const SIDES = [["images", "photos"], ["texts", "texts"]];

let learnTargets;
// The targets that the index has; pending until they are known.
export const indexTargets = new Promise((resolve) => (learnTargets = resolve));

// Returns the targets that the index has.
export async function showIndexFacts() {
  const index = await describeIndex();
  const sides = SIDES.filter(([target]) => index[target] !== null);
  for (const [target] of SIDES) {
    const choice = document.querySelector(`input[name=target][value=${target}]`);
    choice.closest("label").hidden = index[target] === null;
    choice.closest("fieldset").hidden = sides.length < 2; // there is nothing to choose
  }
  const counts = sides.map(([target, noun]) => `${index[target].count.toLocaleString("en")} ${noun}`);
  at("index-info").textContent = counts.join(" · ");
  showDefaults(index.default_candidates);
  const targets = sides.map(([target]) => target);
  learnTargets(targets);
  return targets;
}
