// Helpers that create elements. Text from the index is inserted as text, never as markup.

export const at = (id) => document.getElementById(id);

// make("p", {className: "caption"}, "text", child): properties, then the content.
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export function makeButton(text, onClick, properties = {}) {
  const button = make("button", { type: "button", ...properties }, text);
  button.addEventListener("click", onClick);
  return button;
}

// A score with four digits, enough to check that the scores of the words add up.
export const fourDigits = (score) => score.toFixed(4).replace("-", "\u2212");

export const percent = (share) => `${Math.round(100 * share)} %`;
