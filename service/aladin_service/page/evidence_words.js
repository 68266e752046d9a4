// The words of a text, each coloured by its share of the evidence.

import { fourDigits, make } from "./elements.js";

// onWord(index, pinned): a word is looked at, or none (null).
export function wordsElement(text, evidence, onWord) {
  const largest = Math.max(...evidence.map((entry) => Math.abs(entry.score))) || 1;
  const characters = [...text]; // the service counts characters, JavaScript halves of some
  const paragraph = make("p", { className: "words" });
  let end = 0;
  evidence.forEach((entry, index) => {
    paragraph.append(characters.slice(end, entry.start).join(""));
    paragraph.append(wordElement(entry, index, Math.abs(entry.score) / largest, onWord));
    end = entry.end;
  });
  paragraph.append(characters.slice(end).join(""));
  return paragraph;
}

// strength: 1 for the word that says most.
function wordElement(entry, index, strength, onWord) {
  const word = make("button", { type: "button", className: "word" });
  Object.assign(word.dataset, { score: entry.score, region: entry.region, share: entry.share });
  word.classList.toggle("against", entry.score < 0);
  word.style.setProperty("--strength", strength.toFixed(3));
  const number = make("span", { className: "number" }, fourDigits(entry.score));
  word.append(make("span", { className: "token" }, entry.token), number);
  const against = entry.score < 0 ? "against it" : "for it";
  word.title = `${(100 * Math.abs(entry.share)).toFixed(1)} % of all that is said, ${against}`;
  word.setAttribute("aria-pressed", "false");
  word.addEventListener("pointerenter", () => onWord(index, false));
  word.addEventListener("pointerleave", () => onWord(null, false));
  word.addEventListener("focus", () => onWord(index, false));
  word.addEventListener("blur", () => onWord(null, false));
  word.addEventListener("click", () => onWord(index, true));
  return word;
}

export function sumElement(evidence, alignScore) {
  const total = sumOf(evidence);
  const sum = make("strong", { id: "evidence-total" }, fourDigits(total));
  sum.dataset.total = total;
  const words = evidence.length === 1 ? "1 word adds up to " : `${evidence.length} words add up to `;
  const said = [words, sum];
  // The two are the same number, added up in different places.
  const agrees = Math.abs(total - alignScore) < 1e-4;
  said.push(agrees ? ", the alignment score." : `; the alignment score is ${fourDigits(alignScore)}.`);
  return said;
}

function sumOf(evidence) {
  return evidence.reduce((sum, entry) => sum + entry.score, 0);
}