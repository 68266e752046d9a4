// The choices of a search: the collections of the index, and the options panel.

import { at, percent } from "./elements.js";
import { describeIndex } from "./service.js";

// --- The index ---

const COLLECTIONS = [["images", "photos"], ["texts", "texts"]];

let learnTargets;
// The targets that the index has; pending until they are known.
export const indexTargets = new Promise((resolve) => (learnTargets = resolve));

// Show the size of the index, and return the targets that it has.
export async function showIndexFacts() {
  const index = await describeIndex();
  const present = COLLECTIONS.filter(([target]) => index[target] !== null);
  for (const [target] of COLLECTIONS) {
    const choice = document.querySelector(`input[name=target][value=${target}]`);
    choice.closest("label").hidden = index[target] === null;
    choice.closest("fieldset").hidden = present.length < 2; // there is nothing to choose
  }
  const counts = present.map(([target, noun]) => `${index[target].count.toLocaleString("en")} ${noun}`);
  at("index-info").textContent = counts.join(" · ");
  candidates.placeholder = index.default_candidates;
  const targets = present.map(([target]) => target);
  learnTargets(targets);
  return targets;
}

// --- The panel: page size, candidates, fusion weight, smallest probability ---

const k = at("option-k");
const candidates = at("option-candidates");
const rerank = at("option-rerank");
const fitted = at("option-fitted");
const fusion = at("option-fusion");
const probability = at("option-min-probability");
const toggle = at("options-toggle");

// onOptions(difference): called with the fields of the search that changed.
export function startOptions(onOptions) {
  const panel = at("options");
  panel.addEventListener("submit", (event) => event.preventDefault());
  toggle.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", !panel.hidden);
  });
  panel.addEventListener("input", showValues);
  panel.addEventListener("change", (event) => {
    showValues();
    if (event.target.checkValidity()) onOptions(read());
    else event.target.reportValidity();
  });
}

export function showOptions(search) {
  if (![...k.options].some((option) => option.value === String(search.k))) {
    k.append(new Option(search.k)); // an address may contain any number
  }
  k.value = search.k;
  candidates.value = search.candidates ?? "";
  rerank.checked = search.rerank;
  fitted.checked = search.fusion === null;
  if (search.fusion !== null) fusion.value = search.fusion;
  probability.value = search.minProbability ?? 0;
  if (search.minProbability !== null) offerProbability();
  showValues();
}

// Show the values that the service used for an answer.
export function showUsed(answer) {
  if (fitted.checked && answer.fusion !== null) {
    fusion.value = answer.fusion;
    showValues();
  }
  const calibrated = answer.match_probability ?? answer.hits[0]?.probability ?? null;
  if (calibrated !== null) offerProbability();
}

// Only a calibrated index has probabilities.
function offerProbability() {
  at("option-probability").hidden = false;
}

function read() {
  return {
    k: Number(k.value),
    candidates: candidates.value === "" ? null : Number(candidates.value),
    rerank: rerank.checked,
    fusion: fitted.checked ? null : Number(fusion.value),
    minProbability: Number(probability.value) || null,
  };
}

function showValues() {
  candidates.disabled = fitted.disabled = !rerank.checked;
  fusion.disabled = fitted.checked || !rerank.checked;
  at("option-fusion-value").textContent = Number(fusion.value).toFixed(2);
  const least = Number(probability.value);
  at("option-min-probability-value").textContent = least ? percent(least) : "off";
}
