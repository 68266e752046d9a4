// How to search: page size, candidates, weights of the stages, and how likely a hit has to be.

import { at, percent } from "./elements.js";

const k = at("option-k");
const candidates = at("option-candidates");
const rerank = at("option-rerank");
const fitted = at("option-fitted");
const fusion = at("option-fusion");
const probability = at("option-min-probability");
const toggle = at("options-toggle");

// onOptions(difference): fields of the search that are otherwise now.
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
    k.append(new Option(search.k)); // an address may ask for any
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

// What the index decides where the search leaves it open.
export function showDefaults(defaultCandidates) {
  candidates.placeholder = defaultCandidates;
}

// What an answer made of it.
export function showUsed(answer) {
  if (fitted.checked && answer.fusion !== null) {
    fusion.value = answer.fusion;
    showValues();
  }
  const calibrated = answer.match_probability ?? answer.hits[0]?.probability ?? null;
  if (calibrated !== null) offerProbability();
}

// Only a calibrated index knows probabilities.
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
  at("option-min-probability-value").textContent = least ? percent(least) : "anything";
}
