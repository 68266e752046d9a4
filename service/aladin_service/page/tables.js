// Tables that may be wider than the page: they scroll on their own, also by keyboard.

import { make } from "./elements.js";

// head: column names; rows: lists of texts, elements or lists of these.
export function dataTable({ caption, head, rows }) {
  const top = make("tr", {}, ...head.map((name) => make("th", { scope: "col" }, name)));
  const table = make("table", {}, make("caption", { className: "unseen" }, caption),
    make("thead", {}, top), make("tbody", {}, ...rows.map(bodyRow)));
  const box = make("div", { className: "wide", tabIndex: 0 }, table);
  box.setAttribute("role", "group"); // not a landmark: a page has many tables
  box.setAttribute("aria-label", caption);
  return box;
}

function bodyRow(cells) {
  const [first, ...others] = cells.map((content) => [content ?? "–"].flat());
  // The first cell is the row's header.
  const header = make("th", { scope: "row" }, ...first);
  return make("tr", {}, header, ...others.map((content) => make("td", {}, ...content)));
}
