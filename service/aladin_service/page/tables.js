// Tables that may be wider than the page: they scroll on their own, also by keyboard.

import { make } from "./elements.js";

// head: column names, or {name, number: true} for numeric columns; groups: {name, span} above them;
// rows: lists of texts, elements or lists of these, or {cells, marked: true}.
export function dataTable({ caption, head, groups = null, rows }) {
  const columns = head.map((each) => (typeof each === "string" ? { name: each } : each));
  const top = make("thead", {});
  if (groups) top.append(make("tr", {}, ...groups.map(groupCell)));
  top.append(make("tr", {}, ...columns.map(headCell)));
  const table = make("table", {}, make("caption", { className: "unseen" }, caption), top,
    make("tbody", {}, ...rows.map((row) => bodyRow(columns, row))));
  const box = make("div", { className: "wide", tabIndex: 0 }, table);
  box.setAttribute("role", "group"); // not a landmark: a page has many tables
  box.setAttribute("aria-label", caption);
  return box;
}

function groupCell({ name, span }) {
  if (!name) return make("td", { colSpan: span });
  return make("th", { scope: "colgroup", colSpan: span, className: "group" }, name);
}

function headCell({ name, number }) {
  const cell = make("th", { scope: "col" }, name);
  cell.classList.toggle("number", number === true);
  return cell;
}

function bodyRow(columns, row) {
  const { cells, marked = false } = Array.isArray(row) ? { cells: row } : row;
  const line = make("tr", { className: marked ? "marked" : "" });
  cells.forEach((content, place) => {
    // The first cell is the row's header.
    const cell = make(place === 0 ? "th" : "td", {}, ...[content ?? "–"].flat());
    if (place === 0) cell.scope = "row";
    cell.classList.toggle("number", columns[place].number === true);
    line.append(cell);
  });
  return line;
}
