// The results of `aladin evaluate`: the recall of each system, and quality against the number of
// candidates and against time. One candidate is the first stage alone; all candidates are the
// exhaustive ranking.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { count, counted, milliseconds, points, signed, timeAgo } from "./formats.js";
import { dataTable } from "./tables.js";

const DIRECTIONS = [["text_to_image", "text to photo"], ["image_to_text", "photo to text"]];
const SYSTEMS = [
  ["matching", "Matching: first stage only"],
  ["alignment", "Alignment: words and regions, all pairs"],
  ["fused", "Fusion of both scores, all pairs"],
  ["two_stage", "Two stages, as served"],
];

export function showEvaluations(box, { evaluations, engine }) {
  if (evaluations.length === 0) {
    const command = make("code", {}, "aladin evaluate CHECKPOINT DATA --index INDEX");
    box.replaceChildren(engine === null
      ? make("p", {}, "No evaluation yet. ", command, " measures the index and stores the result here.")
      : make("p", {}, "Evaluations are not stored in a vector database. ", command,
        " prints the result."));
    return;
  }
  const body = make("div", {});
  const show = (place) => body.replaceChildren(...describe(evaluations[place]));
  const parts = evaluations.length > 1 ? [evaluationChooser(evaluations, show)] : [];
  box.replaceChildren(...parts, body);
  show(0);
}

function evaluationChooser(evaluations, show) {
  const select = make("select", { id: "evaluation" });
  evaluations.forEach((each, place) => {
    const words = `${dataName(each)} · generation ${each.generation}`;
    select.append(make("option", { value: place }, words));
  });
  select.addEventListener("change", () => show(Number(select.value)));
  return make("p", { className: "line" }, make("label", { htmlFor: "evaluation" }, "Evaluation"),
    select);
}

function* describe(evaluation) {
  const { figures, curve } = evaluation;
  yield make("p", {}, make("b", {}, dataName(evaluation)), `: ${counted(evaluation.images, "photo")}`,
    ` and ${counted(evaluation.texts, "caption")}, measured `, timeAgo(evaluation.measured_at),
    ` on generation ${evaluation.generation}. `, evaluation.is_live ? ""
      : make("strong", { className: "older" }, "This is not the live generation."));
  yield systemsTable(evaluation);
  const gain = figures.two_stage_minus_matching;
  if (gain) {
    yield make("p", {}, "Two stages gain ", make("b", {}, `${signed(gain.rsum)} rsum`),
      ` over the first stage alone (95 % interval ${signed(gain.low)} to ${signed(gain.high)})`,
      agreement(figures));
  }
  if (curve) yield* qualityCurves(curve);
}

function agreement({ agreement: shares }) {
  if (!shares) return ".";
  const parts = DIRECTIONS.map(([key, name]) => `${points(shares[key])} % (${name})`);
  return `. Share of the exhaustive top 10 that they find: ${parts.join(", ")}.`;
}

function systemsTable({ figures }) {
  const names = ["R@1", "R@5", "R@10", "median"];
  const groups = [{ span: 1 }, ...DIRECTIONS.map(([, name]) => ({ name, span: names.length })),
    { span: 2 }];
  const head = ["System", ...[...names, ...names, "rsum", "time"].map((name) =>
    ({ name, number: true }))];
  const rows = SYSTEMS.filter(([key]) => figures[key]).map(([key, name]) => {
    const system = figures[key];
    const cells = DIRECTIONS.flatMap(([direction]) => {
      const { r1, r5, r10, median_rank: rank } = system[direction];
      return [points(r1), points(r5), points(r10), String(rank)];
    });
    const served = key === "two_stage" && figures.median_ms;
    const time = served ? milliseconds((served.text_to_image + served.image_to_text) / 2) : null;
    return { cells: [name, ...cells, points(system.rsum), time], marked: key === "two_stage" };
  });
  return dataTable({ caption: "Recall in percent, by system", head, groups, rows });
}

function dataName({ data, split }) {
  return split === null ? data : `${data}, split ${split}`;
}

// --- Quality against the number of candidates and against time ---

const RULES = [["fitted", "fitted fusion"], ["papers", "alignment only"]];
const percent = (value, digits) => `${points(value, digits)} %`;

// The horizontal axes. `along` and `note` take a point and a direction; without a direction they
// average both.
const AXES = {
  candidates: {
    name: "candidates",
    along: ({ candidates }) => candidates,
    axis: { label: "candidates", log: true, format: count },
    note: (point, direction) => milliseconds(median(point, direction)),
    say: (_, y, point) => `${counted(point.x, "candidate")} reach ${y}`,
  },
  time: {
    name: "search time",
    along: (point, direction) => median(point, direction),
    axis: { label: "median search time", log: true, format: milliseconds },
    note: ({ candidates }) => counted(candidates, "candidate"),
    say: (x, y) => `${y} in ${x}`,
  },
};

function* qualityCurves(curve) {
  const charts = make("div", { className: "columns" });
  const show = (key) => charts.replaceChildren(recall(curve, AXES[key]), rsum(curve, AXES[key]));
  show("candidates");
  yield axisChooser(show);
  yield charts;
  yield curveTable(curve);
}

function axisChooser(show) {
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
  const place = new Map([[alone, "first stage only"], [exhaustive, "exhaustive"]]);
  return chart({
    title: `${what} by ${axis.name}, with 95 % intervals`,
    x: axis.axis,
    y: { label: what, format },
    say: axis.say,
    chosen: "default",
    levels: distinct(series.flatMap(({ value }, number) => [
      { y: value(alone).value, name: "first stage only", series: number },
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

// With one candidate both rules agree, so the first stage needs only one line.
function distinct(levels) {
  const isSame = (one) => (other) => one.y === other.y && one.name === other.name;
  return levels.filter((level, place) => levels.findIndex(isSame(level)) === place);
}

// Whether a point has the number of candidates that searches use by default.
function isDefault({ default_candidates: numbers }, { candidates }, direction) {
  return direction ? candidates === numbers[direction]
    : Object.values(numbers).includes(candidates);
}

// In milliseconds, for one direction or the mean of both.
function median({ ms }, direction) {
  const { text_to_image: texts, image_to_text: photos } = ms;
  return direction ? ms[direction].median : (texts.median + photos.median) / 2;
}

function curveTable(curve) {
  const head = ["candidates", "text to photo R@1", "photo to text R@1", "rsum", "rsum gain",
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
