// What `aladin evaluate` measured: recall of each system, and the curve against candidates.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { count, counted, milliseconds, timeAgo } from "./formats.js";
import { dataTable } from "./tables.js";

const DIRECTIONS = [["text_to_image", "text to photo"], ["image_to_text", "photo to text"]];
const SYSTEMS = [
  ["matching", "Matching: the first stage alone"],
  ["alignment", "Alignment: words and regions, of all pairs"],
  ["fused", "Both scores, of all pairs"],
  ["two_stage", "Two stages, as served"],
];
const points = (value, digits = 1) => value.toFixed(digits);
const percent = (value, digits) => `${points(value, digits)} %`;

export function showEvaluations(box, evaluations) {
  if (evaluations.length === 0) {
    box.replaceChildren(make("p", {}, "Nothing was evaluated yet: ",
      make("code", {}, "aladin evaluate CHECKPOINT DATA --index INDEX"),
      " measures it and keeps it here."));
    return;
  }
  const body = make("div", {});
  const show = (place) => body.replaceChildren(...describe(evaluations[place]));
  const parts = evaluations.length > 1 ? [chooser(evaluations, show)] : [];
  box.replaceChildren(...parts, body);
  show(0);
}

function chooser(evaluations, show) {
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
      : make("strong", { className: "older" }, "Not the generation that is live now."));
  yield systemsTable(evaluation);
  const gain = figures.two_stage_minus_matching;
  if (gain) {
    yield make("p", {}, "Two stages gain ", make("b", {}, `${signed(gain.rsum)} rsum`),
      ` over matching alone (95 % interval ${signed(gain.low)} to ${signed(gain.high)})`,
      agreement(figures));
  }
  if (curve) yield curves(curve);
}

function agreement({ agreement: shares }) {
  if (!shares) return ".";
  const parts = DIRECTIONS.map(([key, name]) => `${points(shares[key])} % ${name}`);
  return `; of the exhaustive top 10 they show ${parts.join(", ")}.`;
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
      const { r1, r5, r10, median_rank: median } = system[direction];
      return [points(r1), points(r5), points(r10), String(median)];
    });
    const served = key === "two_stage" && figures.median_ms;
    const time = served ? milliseconds((served.text_to_image + served.image_to_text) / 2) : null;
    return { cells: [name, ...cells, points(system.rsum), time], marked: key === "two_stage" };
  });
  return dataTable({ caption: "Recall in percent, by system", head, groups, rows });
}

function curves(curve) {
  const last = curve.points.length - 1;
  const numbers = DIRECTIONS.map(([key]) => curve.default_candidates[key]);
  const note = (place) => ({ 0: "matching alone", [last]: "the exhaustive order" })[place];
  const recall = chart({
    title: "R@1 by candidates, with 95 % intervals",
    x: { label: "candidates", log: true, format: count },
    y: { label: "R@1", format: percent },
    say: (_, recall, { x }) => `${counted(x, "candidate")} find ${recall}`,
    chosen: "the default",
    series: DIRECTIONS.map(([key, name], side) => ({
      name,
      points: curve.points.map(({ candidates, fitted }, place) => ({
        x: candidates,
        y: fitted[key].r1.value,
        low: fitted[key].r1.low,
        high: fitted[key].r1.high,
        chosen: candidates === numbers[side],
        note: note(place),
      })),
    })),
    table: {
      head: ["candidates", "text to photo R@1", "photo to text R@1", "rsum", "rsum gained",
        "text to photo", "photo to text"].map((name) => ({ name, number: true })),
      rows: curve.points.map(({ candidates, fitted, ms }) => ({
        cells: [count(candidates), ...DIRECTIONS.map(([key]) => interval(fitted[key].r1)),
          interval(fitted.rsum), interval(fitted.rsum_gain, signed),
          ...DIRECTIONS.map(([key]) => milliseconds(ms[key].median))],
        marked: numbers.includes(candidates),
      })),
    },
  });
  const mean = ({ ms }) => (ms.text_to_image.median + ms.image_to_text.median) / 2;
  const rules = [["fitted", "both scores, as fitted"], ["papers", "alignment alone"]];
  const rsum = chart({
    title: "rsum by time of a search, with 95 % intervals",
    x: { label: "median time of a search", log: true, format: milliseconds },
    y: { label: "rsum", format: points },
    say: (time, sum) => `${sum} in ${time}`,
    chosen: "the default",
    series: rules.map(([rule, name]) => ({
      name,
      points: curve.points.map((point) => ({
        x: mean(point),
        y: point[rule].rsum.value,
        low: point[rule].rsum.low,
        high: point[rule].rsum.high,
        chosen: numbers.includes(point.candidates),
        note: counted(point.candidates, "candidate"),
      })),
    })),
  });
  return make("div", { className: "columns" }, recall, rsum);
}

function dataName({ data, split }) {
  return split === null ? data : `${data}, split ${split}`;
}

function interval({ value, low, high }, format = points) {
  return `${format(value)} (${format(low)} to ${format(high)})`;
}

function signed(value) {
  return `${value < 0 ? "−" : "+"}${points(Math.abs(value))}`;
}
