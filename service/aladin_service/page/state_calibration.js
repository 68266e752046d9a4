// How far the probabilities of hits can be believed.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { counted, share } from "./formats.js";
import { dataTable } from "./tables.js";

const DIRECTIONS = [["text_to_image", "texts that ask for photos"],
  ["image_to_text", "photos that ask for texts"]];
const percent = (value) => share(value, 0);
const TELLERS = { probability: "the probability", cosine: "the best cosine",
  alignment: "the best alignment score", alignment_per_word: "the same by word" };

const REASONS = {
  weak_calibration: "the calibration hardly tells queries that have a match from those that have "
    + "none (AUROC below 0.75)",
  unknown_text_lengths: "the calibration does not record the lengths of its texts, so fit it anew",
};

export function showCalibration(box, calibration) {
  if (calibration === null) {
    box.replaceChildren(make("p", {}, "Hits carry no probability yet: ",
      make("code", {}, "aladin calibrate CHECKPOINT DATA --index INDEX"),
      " fits it, and what says that nothing matches."));
    return;
  }
  const { fitted_on: fitted, figures, unreliable } = calibration;
  const judged = DIRECTIONS.filter(([key]) => unreliable[key] === null);
  const about = make("p", {}, fittedOn(fitted, calibration.fitted_photos_indexed), ...DIRECTIONS.map(
    ([key, name]) => (unreliable[key] === null ? "" : ` Of ${name}, no answer says that nothing`
      + ` matches and no probability is shown: ${REASONS[unreliable[key]] ?? unreliable[key]}.`)),
  judged.length ? " An answer says that nothing matches where its match probability is low." : "",
  judged.length ? " Shorter and longer texts than these are not judged." : "");
  const charts = DIRECTIONS.map(([key, name]) => reliability(name, figures[key].aligned.hits));
  box.replaceChildren(about, make("div", { className: "columns" }, ...charts),
    ...(judged.length ? [noMatchTable(figures, judged)] : []), aurocTable(figures));
}

function fittedOn({ data, split, photos, texts, text_lengths: lengths }, indexed) {
  const ofSplit = split === null ? "" : `, split ${split}`;
  const long = lengths === null ? "" : ` of ${lengths.low} to ${lengths.high} tokens`;
  const here = indexed === null ? "" : ` About ${share(indexed, 0)} of these photos are in this index.`;
  return `Fitted on ${data}${ofSplit}: ${counted(photos, "photo")} and ${counted(texts, "text")}${
    long}.${here}`;
}

function noMatchTable(figures, directions) {
  const head = ["Told that nothing matches", "below a probability of",
    "of those without a match", "of those with one"].map((name, place) =>
    (place ? { name, number: true } : name));
  const rows = directions.map(([key, name]) => {
    const { below, detected, false_alarms: wrongly } = figures[key].aligned.no_match;
    return [name, share(below), share(detected), share(wrongly)];
  });
  return dataTable({ caption: "When nothing matches", head, rows });
}

function reliability(name, { bins, ece }) {
  // Most hits are wrong, so most probabilities are low: as far as there are any.
  const to = Math.ceil(20 * Math.max(...bins.flatMap((bin) => [bin.predicted, bin.observed]))) / 20;
  return chart({
    title: `Hits of ${name}: how often they are right (calibration error ${ece.toFixed(3)})`,
    x: { label: "probability", from: 0, to, format: percent, times: 100 },
    y: { label: "right", from: 0, to, format: percent, times: 100 },
    say: (said, right) => `said ${said}, right ${right}`,
    diagonal: true,
    series: [{
      name,
      points: bins.map(({ predicted, observed, weight }) => ({ x: predicted, y: observed,
        note: `${share(weight, 0)} of the hits` })),
    }],
    table: {
      head: ["said", "right", "of the hits"].map((each) => ({ name: each, number: true })),
      rows: bins.map(({ predicted, observed, weight }) =>
        [share(predicted), share(observed), share(weight)]),
    },
  });
}

function aurocTable(figures) {
  const rows = DIRECTIONS.flatMap(([key, name]) => {
    const { aligned } = figures[key];
    return Object.entries(aligned.auroc).map(([teller, { value, low, high }]) => ({
      cells: [`${TELLERS[teller] ?? teller}, ${name}`, value.toFixed(3),
        `${low.toFixed(3)} to ${high.toFixed(3)}`,
        teller === "probability" ? aligned.hits.ece.toFixed(3) : null,
        teller === "probability" ? aligned.match.ece.toFixed(3) : null],
      marked: teller === "probability",
    }));
  });
  const head = ["Is there a match at all, told by", "AUROC", "95 % interval", "error of hits",
    "error of matches"].map((name, place) => (place ? { name, number: true } : name));
  const caption = `AUROC and expected calibration error, ${figures.measured_on}`;
  return make("div", {}, make("p", { className: "faint" }, `${caption}, ${
    counted(figures.photos, "photo")}.`), dataTable({ caption, head, rows }));
}
