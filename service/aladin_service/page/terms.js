// The terms of a query besides the text, photo or item in the field: chips that remove a term or
// change its sign, a form that adds words, and the split of a negation that the service offers.

import { at, make, makeButton } from "./elements.js";
import { showPhoto } from "./photos.js";
import { termName } from "./search.js";

const PHOTO_PX = 96;
const SIGNS = { all: "with", not: "without", like: "like" };
const OPPOSITE = { all: "not", not: "all" };

const chips = at("terms");
const form = at("refine");
const toggle = at("refine-toggle");
const words = at("refine-words");
const split = at("split");

let terms = [];
let change = null;

// onTerms(difference): called with the fields of the search that changed.
export function startTerms(onTerms) {
  change = onTerms;
  toggle.addEventListener("click", () => showForm(form.hidden));
  at("refine-close").addEventListener("click", () => {
    showForm(false);
    toggle.focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    add("all");
  });
  at("refine-without").addEventListener("click", () => add("not"));
}

function showForm(open) {
  form.hidden = !open;
  toggle.setAttribute("aria-expanded", open);
  if (open) words.focus();
}

function add(role) {
  const text = words.value.trim();
  if (text === "") {
    words.focus();
    return;
  }
  words.value = "";
  change({ terms: [...terms.filter((term) => term.text !== text), { role, text }] });
}

// Show the terms of a search.
export function showTerms(search) {
  ({ terms } = search);
  chips.replaceChildren(...terms.map(chip), ...(search.whole === null ? [] : [undo(search.whole)]));
  chips.hidden = chips.children.length === 0;
  if (search.query === null) showForm(false);
  hideSplit();
}

function chip(term) {
  const { role } = term;
  const name = termName(term);
  const other = terms.filter((each) => each !== term);
  const place = terms.indexOf(term);
  const drop = () => {
    change({ terms: other });
    focusChip(Math.min(place, other.length - 1), ".remove");
  };
  const remove = makeButton("", drop, {
    className: "remove",
    ariaLabel: `Remove: ${SIGNS[role]} “${name}”`,
    title: "Remove",
  });
  remove.append(make("span", { ariaHidden: "true" }, "×"));
  const element = make("li", { className: `asked ${role}` }, signOf(term, name), pictureOf(term, name), remove);
  element.dataset.role = role;
  return element;
}

// What a term is to the hits; words can be wanted or unwanted, an example is always wanted.
function signOf(term, name) {
  const sign = SIGNS[term.role];
  if (!(term.role in OPPOSITE)) return make("span", { className: "sign" }, sign);
  const turned = { ...term, role: OPPOSITE[term.role] };
  const other = SIGNS[turned.role];
  const turn = () => {
    change({ terms: terms.map((each) => (each === term ? turned : each)) });
    focusChip(terms.indexOf(turned), ".sign");
  };
  const ariaLabel = `${sign} “${name}”: change to ${other}`;
  return makeButton(sign, turn, { className: "sign", ariaLabel, title: `Change to “${other}”` });
}

// An example is known by its photo, the rest by its words.
function pictureOf(term, name) {
  if (term.of !== "images") return make("span", { className: "what", title: name }, name);
  const photo = make("img", { alt: name, title: name });
  showPhoto(photo, term.id, PHOTO_PX);
  return photo;
}

// The keyboard goes on where it was: the chips are made anew for every search.
function focusChip(place, button) {
  const next = chips.children[place]?.querySelector(button);
  (next ?? toggle).focus();
}

function undo(whole) {
  const button = makeButton("Undo the split", () => {
    change({ query: { text: whole }, terms: [] });
    at("words").focus();
  }, { className: "quiet", title: `Search for “${whole}” as it stands` });
  return make("li", { className: "undo" }, button);
}

// --- The split of a negation ---

export function hideSplit() {
  split.hidden = true;
}

// Offer to search by the terms that a text with a negation was split into; null: there are none.
export function offerSplit(search, suggestion) {
  if (suggestion === null || suggestion === undefined) {
    hideSplit();
    return;
  }
  const [wanted, ...negated] = suggestion;
  const quoted = negated.map(({ text }) => `“${text}”`).join(" or ");
  const sources = negated.map(({ source }) => `“${source}”`).join(", ");
  at("split-words").textContent = `${sources} is searched for like other words.`;
  const accept = makeButton(`Search for “${wanted.text}” without ${quoted}`, () => {
    const added = negated.map(({ role, text }) => ({ role, text }));
    change({
      query: { text: wanted.text },
      terms: [...search.terms, ...added],
      whole: search.query.text,
    });
    focusChip(0, ".sign");
  });
  at("split-accept").replaceChildren(accept);
  split.hidden = false;
}
