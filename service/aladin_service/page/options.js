// The options panel: page size, candidates, fusion weight, weight of words, smallest probability.

import { at, percent } from "./elements.js";
import { indexFacts } from "./index_facts.js";

const k = at("option-k");
const candidates = at("option-candidates");
const all = at("option-all");
const rerank = at("option-rerank");
const fitted = at("option-fitted");
const fusion = at("option-fusion");
const lexical = at("option-lexical");
const usual = at("option-usual");
const probability = at("option-min-probability");
const toggle = at("options-toggle");

let usualWeight = null; // that the service used for the last answer by default; null: not known

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
    if (event.target.id === "compare") return; // which is no option of the request
    showValues();
    if (event.target.checkValidity()) onOptions(read());
    else event.target.reportValidity();
  });
}

export function showOptions(search) {
  choosePageSize(search.k);
  all.checked = search.candidates === "exhaustive";
  candidates.value = all.checked ? "" : search.candidates ?? "";
  rerank.checked = search.rerank;
  fitted.checked = search.fusion === null;
  if (search.fusion !== null) fusion.value = search.fusion;
  usual.checked = search.lexical === null;
  if (search.lexical !== null) lexical.value = search.lexical;
  // Words are searched for one text alone.
  usual.disabled = search.terms.length > 0 || !(search.query === null || "text" in search.query);
  usualWeight = null;
  probability.value = search.minProbability ?? 0;
  probability.disabled = search.terms.length > 0;
  if (search.minProbability !== null) offerProbability();
  showValues();
  // A search that was shared is shown as it is, also where the service refuses it.
  indexFacts.then(({ index }) => {
    all.closest("label").hidden = !index[search.target]?.takes_all && !all.checked;
  });
}

// An address may contain a page size that the list lacks.
function choosePageSize(size) {
  if (![...k.options].some((option) => option.value === String(size))) {
    k.append(new Option(String(size), size));
  }
  k.value = size;
}

// Show the values that the service used for an answer.
export function showUsed(answer) {
  if (fitted.checked && answer.fusion !== null) {
    fusion.value = answer.fusion;
    showValues();
  }
  if (usual.checked && !usual.disabled) {
    lexical.value = usualWeight = answer.lexical;
    showValues();
  }
  if (answer.probabilities_reliable) offerProbability();
}

// Only a calibrated index has probabilities.
function offerProbability() {
  at("option-probability").hidden = false;
}

function read() {
  return {
    k: Number(k.value),
    candidates: all.checked ? "exhaustive" : candidates.value === "" ? null : Number(candidates.value),
    rerank: rerank.checked,
    fusion: fitted.checked ? null : Number(fusion.value),
    lexical: usual.checked ? null : Number(lexical.value),
    minProbability: Number(probability.value) || null,
  };
}

function showValues() {
  all.disabled = fitted.disabled = !rerank.checked;
  candidates.disabled = all.checked || !rerank.checked;
  fusion.disabled = fitted.checked || !rerank.checked;
  at("option-fusion-value").textContent = Number(fusion.value).toFixed(2);
  lexical.disabled = usual.checked || usual.disabled;
  at("option-lexical-value").textContent = usual.checked ? usualWords() : weightWords(Number(lexical.value));
  const least = Number(probability.value);
  at("option-min-probability-value").textContent = least ? percent(least) : "off";
}

const weightWords = (weight) => (weight ? weight.toFixed(2) : "off");

function usualWords() {
  return usualWeight === null ? "default" : `default, ${weightWords(usualWeight)}`;
}
