// Charts of measured points, drawn as SVG in the available width.
//
//   chart({
//     title,                  titleSeen: false if a heading above the chart repeats it
//     x, y: {label, format, log, from, to}   format(value, digits); for shares shown in percent:
//                             times: 100
//     series: [{name, points: [{x, y, low, high, chosen, note}]}],   low, high: an interval
//     say(x, y, point),       describes a point in words
//     levels: [{y, name, series, start}],   horizontal lines, e.g. a target; series: the number of
//                             the series that a line belongs to; start: its name is on the left
//     diagonal: true,         draws the line y = x
//     table: arguments of dataTable in tables.js,
//   }) -> <figure>
//
// Each chart is one tab stop: the arrow keys move from point to point, and the text below the chart
// describes the current point. The same numbers are in a table for readers who do not see the chart.

import { make, makeSvg } from "./elements.js";
import { dataTable } from "./tables.js";

const FIRST_WIDTH = 420; // until the available width is known

export function chart(spec) {
  const figure = make("figure", { className: "chart" });
  const readout = make("p", { className: "readout" });
  const place = make("div", { className: "plot" });
  const title = make("strong", {}, spec.title);
  title.classList.toggle("unseen", spec.titleSeen === false);
  const heading = make("figcaption", {}, title);
  if (spec.series.every(({ points }) => points.length === 0)) {
    figure.append(heading, make("p", { className: "faint" }, "No measurements."));
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

// --- The drawing: axes, lines and points ---

const HEIGHT = 230;
const MARGIN = { top: 12, right: 20, bottom: 42, left: 52 };
const LABEL_GAP_PX = 5; // between a line and its name
const LABEL_HEIGHT_PX = 14;

// The points of all series, sorted from left to right.
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
    heights.push(...(spec.levels ?? []).map(({ y }) => y));
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
    parts.forEach((part) => part.setAttribute("aria-hidden", "true")); // the points have the numbers
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
    for (const level of spec.levels ?? []) parts.push(...this.level(level, right, bottom));
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

  level({ y: value, name, series, start }, right, bottom) {
    const y = this.y(value);
    const colour = series === undefined ? "" : ` line-${series + 1}`;
    const below = !start && y + LABEL_HEIGHT_PX < bottom;
    return [
      makeSvg("line", { class: `level${colour}`, x1: MARGIN.left, x2: right, y1: y, y2: y }),
      text(start ? MARGIN.left + LABEL_GAP_PX : right,
        below ? y + LABEL_HEIGHT_PX : y - LABEL_GAP_PX, name, start ? "start" : "end"),
    ];
  }

  dots() {
    return this.marks.map((mark, place) => {
      const { point, number } = mark;
      const dot = makeSvg("g", { class: `dot fill-${number + 1}`, role: "img", tabindex: -1,
        "aria-label": this.words(mark) });
      const [cx, cy] = [this.x(point.x), this.y(point.y)];
      // The chosen point has a ring: colour alone is not enough.
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

// --- Scales: from values to positions along an axis, and the ticks ---

const TICKS = 5;

// A function from values to positions, with the ticks, their labels, and the range of values.
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

// The number of decimals needed to write a step exactly.
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

// The ticks that are at least `least` pixels apart, so that their labels do not overlap.
function apart(ticks, scale, least) {
  const kept = [];
  for (const tick of ticks) {
    if (!kept.length || Math.abs(scale(tick) - scale(kept.at(-1))) >= least) kept.push(tick);
  }
  return kept;
}
