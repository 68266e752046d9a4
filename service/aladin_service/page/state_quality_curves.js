// Quality against the number of candidates and against time, as `aladin evaluate --curve` measured
// it: one candidate is matching alone, all of them are the exhaustive order.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { count, counted, milliseconds, points, signed } from "./formats.js";
import { dataTable } from "./tables.js";

export const DIRECTIONS = [["text_to_image", "text to photo"], ["image_to_text", "photo to text"]];
const RULES = [["fitted", "both scores, as fitted"], ["papers", "alignment alone"]];
const percent = (value, digits) => `${points(value, digits)} %`;

// What is along the charts: of a point and a direction, or of both directions where there is none.
const AXES = {
  candidates: {
    name: "candidates",
    along: ({ candidates }) => candidates,
    axis: { label: "candidates", log: true, format: count },
    note: (point, direction) => milliseconds(median(point, direction)),
    say: (_, y, point) => `${counted(point.x, "candidate")} reach ${y}`,
  },
  time: {
    name: "time of a search",
    along: (point, direction) => median(point, direction),
    axis: { label: "median time of a search", log: true, format: milliseconds },
    note: ({ candidates }) => counted(candidates, "candidate"),
    say: (x, y) => `${y} in ${x}`,
  },
};

export function* qualityCurves(curve) {
  const charts = make("div", { className: "columns" });
  const show = (key) => charts.replaceChildren(recall(curve, AXES[key]), rsum(curve, AXES[key]));
  show("candidates");
  yield chooser(show);
  yield charts;
  yield table(curve);
}

function chooser(show) {
  const box = make("fieldset", { className: "segments" },
    make("legend", { className: "unseen" }, "Quality against"));
  for (const [key, { name }] of Object.entries(AXES)) {
    const radio = make("input", { type: "radio", name: "quality-axis", value: key,
      checked: key === "candidates" });
    radio.addEventListener("change", () => show(key));
    box.append(make("label", {}, radio, make("span", {}, `By ${name}`)));
  }
  return box;
}

function recall(curve, axis) {
  return qualityChart(curve, axis, {
    what: "R@1",
    format: percent,
    series: DIRECTIONS.map(([direction, name]) => ({
      name,
      value: (point) => point.fitted[direction].r1,
      direction,
    })),
  });
}

function rsum(curve, axis) {
  return qualityChart(curve, axis, {
    what: "rsum",
    format: points,
    series: RULES.map(([rule, name]) => ({ name, value: (point) => point[rule].rsum })),
  });
}

function qualityChart(curve, axis, { what, format, series }) {
  const [alone, exhaustive] = [curve.points[0], curve.points.at(-1)];
  const place = new Map([[alone, "matching alone"], [exhaustive, "exhaustive"]]);
  return chart({
    title: `${what} by ${axis.name}, with 95 % intervals`,
    x: axis.axis,
    y: { label: what, format },
    say: axis.say,
    chosen: "the default",
    levels: distinct(series.flatMap(({ value }, number) => [
      { y: value(alone).value, name: "matching alone", series: number },
      { y: value(exhaustive).value, name: "exhaustive", series: number, start: true },
    ])),
    series: series.map(({ name, value, direction }) => ({
      name,
      points: curve.points.map((point) => {
        const { value: y, low, high } = value(point);
        const notes = [axis.note(point, direction), place.get(point)];
        return { x: axis.along(point, direction), y, low, high,
          note: notes.filter(Boolean).join(", "), chosen: isDefault(curve, point, direction) };
      }),
    })),
  });
}

// Both rules are the same for one candidate: matching alone is one line.
function distinct(levels) {
  const isSame = (one) => (other) => one.y === other.y && one.name === other.name;
  return levels.filter((level, place) => levels.findIndex(isSame(level)) === place);
}

// Which point is served where a search does not say otherwise.
function isDefault({ default_candidates: numbers }, { candidates }, direction) {
  return direction ? candidates === numbers[direction]
    : Object.values(numbers).includes(candidates);
}

// In milliseconds, of one direction or the mean of both.
function median({ ms }, direction) {
  const { text_to_image: texts, image_to_text: photos } = ms;
  return direction ? ms[direction].median : (texts.median + photos.median) / 2;
}

function table(curve) {
  const head = ["candidates", "text to photo R@1", "photo to text R@1", "rsum", "rsum gained",
    "text to photo", "photo to text"].map((name) => ({ name, number: true }));
  const rows = curve.points.map((point) => ({
    cells: [count(point.candidates),
      ...DIRECTIONS.map(([key]) => interval(point.fitted[key].r1)),
      interval(point.fitted.rsum), interval(point.fitted.rsum_gain, signed),
      ...DIRECTIONS.map(([key]) => milliseconds(median(point, key)))],
    marked: isDefault(curve, point),
  }));
  return make("details", {}, make("summary", {}, "Both charts as a table"),
    dataTable({ caption: "Quality by candidates", head, rows }));
}

function interval({ value, low, high }, format = points) {
  return `${format(value)} (${format(low)} to ${format(high)})`;
}
