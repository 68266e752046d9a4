// Charts of a few measured points, drawn as SVG for the width that there is.
//
//   chart({
//     title,                  titleSeen: false where a heading above says it already
//     x, y: {label, format, log, from, to}   format(value, digits); of shares, in percent: times 100
//     series: [{name, points: [{x, y, low, high, chosen, note}]}],   low, high: an interval
//     say(x, y, point),       reads a point
//     levels: [{y, name, series, start}],   lines across, e.g. what was wanted; series: the number of
//                             the one that it belongs to; start: its name is on the left
//     diagonal: true,         where y would be equal to x
//     table: as of tables.js,
//   }) -> <figure>
//
// One tab stop a chart: the arrow keys go from point to point, and what is read of a point is below
// the chart. The same numbers are in a table, for those who do not see the chart.

import { make } from "./elements.js";
import { Plot } from "./plot.js";
import { dataTable } from "./tables.js";

const FIRST_WIDTH = 420; // until it is known how much there is

export function chart(spec) {
  const figure = make("figure", { className: "chart" });
  const readout = make("p", { className: "readout" });
  const place = make("div", { className: "plot" });
  const title = make("strong", {}, spec.title);
  title.classList.toggle("unseen", spec.titleSeen === false);
  const heading = make("figcaption", {}, title);
  if (spec.series.every(({ points }) => points.length === 0)) {
    figure.append(heading, make("p", { className: "faint" }, "Nothing was measured."));
    return figure;
  }
  if (spec.series.length > 1) heading.append(legend(spec.series));
  figure.append(heading, place, readout);
  if (spec.table) figure.append(asTable(spec));
  const plot = new Plot(spec, place, readout);
  plot.draw(FIRST_WIDTH);
  new ResizeObserver(([entry]) => plot.draw(Math.round(entry.contentRect.width))).observe(place);
  return figure;
}

function legend(series) {
  const list = make("ul", { className: "legend" });
  list.setAttribute("role", "list");
  series.forEach(({ name }, place) => {
    list.append(make("li", {}, make("i", { className: `fill-${place + 1}` }), name));
  });
  return list;
}

function asTable({ title, table }) {
  const details = make("details", {}, make("summary", {}, "As a table"));
  details.append(dataTable({ ...table, caption: title }));
  return details;
}
