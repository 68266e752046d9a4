// Charts of a few measured points, drawn as SVG for the width that there is.
//
//   chart({
//     title,                  titleSeen: false where a heading above says it already
//     x, y: {label, format, log, from, to}   format(value, digits); of shares, in percent: times 100
//     series: [{name, points: [{x, y, low, high, chosen, note}]}],   low, high: an interval
//     say(x, y, point),       reads a point
//     level: {y, name},       a line across, e.g. what was wanted
//     diagonal: true,         where y would be equal to x
//     table: as of tables.js,
//   }) -> <figure>
//
// One tab stop a chart: the arrow keys go from point to point, and what is read of a point is below
// the chart. The same numbers are in a table, for those who do not see the chart.

import { make, makeSvg } from "./elements.js";
import { dataTable } from "./tables.js";

const HEIGHT = 230;
const MARGIN = { top: 12, right: 20, bottom: 42, left: 52 };
const FIRST_WIDTH = 420; // until it is known how much there is
const TICKS = 5;
// Of text, a line has to be so far from the next.
const LEVEL_GAP_PX = 5;

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

// Every point of every series, left to right.
class Plot {
  constructor(spec, place, readout) {
    this.spec = spec;
    this.place = place;
    this.readout = readout;
    this.marks = spec.series
      .flatMap((series, number) => series.points.map((point) => ({ point, series, number })))
      .sort((one, other) => one.point.x - other.point.x || one.number - other.number);
    const chosen = this.marks.findIndex(({ point }) => point.chosen);
    this.at = chosen === -1 ? 0 : chosen;
    this.width = 0;
  }

  draw(width) {
    if (width === this.width || width === 0) return;
    const hadFocus = this.place.contains(document.activeElement);
    this.width = width;
    const { spec } = this;
    const right = width - MARGIN.right;
    const bottom = HEIGHT - MARGIN.bottom;
    const points = this.marks.map(({ point }) => point);
    this.x = makeScale(points.map(({ x }) => x), MARGIN.left, right, spec.x);
    const heights = points.flatMap(({ y, low = y, high = y }) => [low, y, high]);
    if (spec.level) heights.push(spec.level.y);
    this.y = makeScale(heights, bottom, MARGIN.top, spec.y);
    this.svg = makeSvg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT,
      role: "group", "aria-label": `${spec.title}: chart of ${this.marks.length} points` });
    this.svg.append(...this.axes(right, bottom), ...this.lines(right, bottom));
    this.cross = makeSvg("line", { class: "cross", y1: MARGIN.top, y2: bottom });
    this.svg.append(this.cross, ...this.dots());
    this.svg.addEventListener("pointermove", (event) => this.show(this.nearest(event)));
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
    this.place.replaceChildren(this.svg);
    this.show(this.at);
    if (hadFocus) this.marks[this.at].dot.focus();
  }

  axes(right, bottom) {
    const parts = [];
    for (const value of this.y.ticks) {
      const y = this.y(value);
      parts.push(makeSvg("line", { class: "grid", x1: MARGIN.left, x2: right, y1: y, y2: y }));
      parts.push(text(MARGIN.left - 8, y + 4, this.y.label(value), "end"));
    }
    for (const value of apart(this.x.ticks, this.x, 44)) {
      parts.push(text(this.x(value), bottom + 17, this.x.label(value), "middle"));
    }
    parts.push(makeSvg("line", { class: "axis", x1: MARGIN.left, x2: right, y1: bottom,
      y2: bottom }));
    const label = this.spec.x.log ? `${this.spec.x.label}, logarithmic` : this.spec.x.label;
    parts.push(text((MARGIN.left + right) / 2, HEIGHT - 6, label, "middle"));
    parts.forEach((part) => part.setAttribute("aria-hidden", "true")); // the points tell it
    return parts;
  }

  lines(right, bottom) {
    const { spec } = this;
    const parts = [];
    if (spec.diagonal) {
      const [low, high] = [Math.max(this.x.from, this.y.from), Math.min(this.x.to, this.y.to)];
      parts.push(makeSvg("line", { class: "level", x1: this.x(low), x2: this.x(high),
        y1: this.y(low), y2: this.y(high) }));
    }
    if (spec.level) {
      const y = this.y(spec.level.y);
      parts.push(makeSvg("line", { class: "level", x1: MARGIN.left, x2: right, y1: y, y2: y }));
      const below = y + 14 < bottom;
      parts.push(text(right, below ? y + 14 : y - LEVEL_GAP_PX, spec.level.name, "end"));
    }
    spec.series.forEach(({ points }, number) => {
      const at = (point, y) => `${this.x(point.x).toFixed(1)},${this.y(y).toFixed(1)}`;
      if (points.some(({ low }) => low !== undefined)) {
        const upper = points.map((point) => at(point, point.high));
        const lower = points.map((point) => at(point, point.low)).reverse();
        const polygon = [...upper, ...lower].join(" ");
        parts.push(makeSvg("polygon", { class: `band fill-${number + 1}`, points: polygon }));
      }
      const line = points.map((point) => at(point, point.y)).join(" ");
      parts.push(makeSvg("polyline", { class: `line-${number + 1}`, points: line }));
    });
    parts.forEach((part) => part.setAttribute("aria-hidden", "true"));
    return parts;
  }

  dots() {
    return this.marks.map((mark, place) => {
      const { point, number } = mark;
      const dot = makeSvg("g", { class: `dot fill-${number + 1}`, role: "img", tabindex: -1,
        "aria-label": this.words(mark) });
      const [cx, cy] = [this.x(point.x), this.y(point.y)];
      // The chosen one is told by its ring, not by a colour alone.
      if (point.chosen) dot.append(makeSvg("circle", { class: "ring", cx, cy, r: 8 }));
      dot.append(makeSvg("circle", { cx, cy, r: 4 }));
      dot.addEventListener("focus", () => this.show(place));
      mark.dot = dot;
      return dot;
    });
  }

  words({ point, series }) {
    const { x, y, say } = this.spec;
    const name = this.spec.series.length > 1 ? `${series.name}: ` : "";
    const interval = point.low === undefined ? ""
      : ` (${y.format(point.low)} to ${y.format(point.high)})`;
    const note = point.note ? `, ${point.note}` : "";
    const chosen = point.chosen ? ` · ${this.spec.chosen ?? "chosen"}` : "";
    return `${name}${say(x.format(point.x), y.format(point.y) + interval, point)}${note}${chosen}`;
  }

  show(place) {
    this.marks[this.at].dot.setAttribute("tabindex", "-1");
    this.marks[this.at].dot.classList.remove("at");
    this.at = place;
    const mark = this.marks[place];
    mark.dot.setAttribute("tabindex", "0");
    mark.dot.classList.add("at");
    const x = this.x(mark.point.x);
    this.cross.setAttribute("x1", x);
    this.cross.setAttribute("x2", x);
    this.readout.textContent = this.words(mark);
  }

  nearest(event) {
    const box = this.svg.getBoundingClientRect();
    const [left, top] = [event.clientX - box.left, event.clientY - box.top];
    const far = ({ point }) => Math.hypot(this.x(point.x) - left, (this.y(point.y) - top) / 3);
    return this.marks.reduce(
      (best, mark, place) => (far(mark) < far(this.marks[best]) ? place : best), 0);
  }

  onKey(event) {
    const last = this.marks.length - 1;
    const to = { ArrowRight: this.at + 1, ArrowLeft: this.at - 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.marks[Math.min(last, Math.max(0, to))].dot.focus();
  }
}

function text(x, y, words, anchor) {
  const element = makeSvg("text", { x, y, "text-anchor": anchor });
  element.textContent = words;
  return element;
}

// From values to places; has ticks and their labels, and the values where it begins and ends.
function makeScale(values, start, end, { log = false, from, to, format, times = 1 }) {
  let [low, high] = [from ?? Math.min(...values), to ?? Math.max(...values)];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const ticks = log ? logTicks(low, high) : linearTicks(low, high);
  if (!log) {
    low = Math.min(low, from ?? ticks[0]);
    high = Math.max(high, to ?? ticks.at(-1));
  }
  const along = log ? Math.log : (value) => value;
  const scale = (value) =>
    start + ((along(value) - along(low)) / (along(high) - along(low))) * (end - start);
  const digits = log ? undefined : decimals(times * (ticks[1] - ticks[0]));
  return Object.assign(scale, { ticks: ticks.filter((tick) => tick >= low && tick <= high),
    label: (value) => format(value, digits), from: low, to: high });
}

// As many as a step needs to be written without rounding.
function decimals(step) {
  const exact = (digits) => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
  return [0, 1, 2, 3].find(exact) ?? 3;
}

// Round numbers from at or below `low` to at or above `high`.
function linearTicks(low, high) {
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5, 10].find((each) => each * power >= rough * 0.999) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => (first + place) * step);
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    ticks.push(...[1, 2, 5].map((each) => each * power));
  }
  const inside = ticks.filter((tick) => tick >= low && tick <= high);
  return inside.length ? inside : [low, high];
}

// Leaves out ticks whose numbers would run into the ones before.
function apart(ticks, scale, least) {
  const kept = [];
  for (const tick of ticks) {
    if (!kept.length || Math.abs(scale(tick) - scale(kept.at(-1))) >= least) kept.push(tick);
  }
  return kept;
}
