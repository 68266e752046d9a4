// What `aladin evaluate` measured: recall of each system, and its curves.

import { make } from "./elements.js";
import { counted, milliseconds, points, signed, timeAgo } from "./formats.js";
import { DIRECTIONS, qualityCurves } from "./state_quality_curves.js";
import { dataTable } from "./tables.js";

const SYSTEMS = [
  ["matching", "Matching: the first stage alone"],
  ["alignment", "Alignment: words and regions, of all pairs"],
  ["fused", "Both scores, of all pairs"],
  ["two_stage", "Two stages, as served"],
];

export function showEvaluations(box, { evaluations, engine }) {
  if (evaluations.length === 0) {
    const command = make("code", {}, "aladin evaluate CHECKPOINT DATA --index INDEX");
    box.replaceChildren(engine === null
      ? make("p", {}, "Nothing was evaluated yet: ", command, " measures it and keeps it here.")
      : make("p", {}, "No evaluation is kept in an engine: ", command, " prints what it measures."));
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
  if (curve) yield* qualityCurves(curve);
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

function dataName({ data, split }) {
  return split === null ? data : `${data}, split ${split}`;
}
