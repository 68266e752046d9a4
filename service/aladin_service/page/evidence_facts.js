// What is known of a hit: its scores and places, and the user's own data.

import { fourDigits, make, makeButton, percent } from "./elements.js";

// onValue(field, value): find others with it.
export function factRows(hit, { target }, onValue) {
  const { match, align } = hit.stages;
  const facts = [["Score", fourDigits(hit.score)]];
  if (hit.probability != null) facts.push(["Probability", percent(hit.probability)]);
  facts.push(["Matching", `${fourDigits(match.score)}, place ${match.rank}`]);
  if (align) {
    facts.push(["Alignment", `${fourDigits(align.score)}, place ${align.rank}`]);
    facts.push(["Mean of its words", fourDigits(hit.per_word)]);
  }
  if (hit.text !== null && target === "images") facts.push(["Caption", hit.text]);
  facts.push(["Item", hit.id]);
  const data = Object.entries(hit.metadata).map(([field, value]) => [
    field,
    ...[value].flat().map((one) => valueElement(field, one, onValue)),
  ]);
  return [...facts, ...data].map(([name, ...values]) =>
    make("div", {}, make("dt", {}, name), make("dd", {}, ...values)),
  );
}

function valueElement(field, value, onValue) {
  // A filter knows of texts, numbers and bools.
  if (value === null || typeof value === "object") return JSON.stringify(value);
  const label = `Only with ${field} ${value}`;
  return makeButton(String(value), () => onValue(field, value), { className: "chip", title: label });
}
