// How reliable the probabilities of hits are.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { counted, share } from "./formats.js";
import { dataTable } from "./tables.js";

const DIRECTIONS = [["text_to_image", "text to photo"], ["image_to_text", "photo to text"]];
const SHORT = ["short_texts", "short text to photo"];
const percent = (value) => share(value, 0);
const PREDICTORS = { probability: "Match probability", cosine: "Best cosine",
  alignment: "Best alignment score", alignment_per_word: "Best alignment score per word" };

const WITHOUT_MATCH = { hard: "photo taken out", near: "one word exchanged", far: "foreign subject" };

const REASONS = {
  other_photos: "it was fitted on other data, to which most photos of this index do not belong; fit it "
    + "to this index with aladin calibrate CHECKPOINT DATA --index INDEX",
  weak_calibration: "the calibration hardly separates queries with a match from those without one "
    + "(AUROC below 0.75)",
  unknown_text_lengths: "the calibration does not record the lengths of its texts; fit it again",
};

export function showCalibration(box, calibration) {
  if (calibration === null) {
    box.replaceChildren(make("p", {}, "Hits have no probabilities yet. ",
      make("code", {}, "aladin calibrate CHECKPOINT DATA --index INDEX"),
      " fits them, and the threshold below which nothing matches."));
    return;
  }
  const { fitted_on: fitted, unreliable, short_texts: short } = calibration;
  const kinds = short === null ? DIRECTIONS : [DIRECTIONS[0], SHORT, DIRECTIONS[1]];
  const figures = { ...calibration.figures, short_texts: short?.figures };
  const reasons = { ...unreliable, text_to_image: unreliable.captions };
  const judged = kinds.filter(([key]) => reasons[key] === null);
  const about = make("p", {}, fittedOn(fitted, short, calibration.fitted_photos_indexed), ...kinds.map(
    ([key, name]) => (reasons[key] === null ? "" : ` Direction ${name}: no probability is shown`
      + ` and no query is reported as having no match, because ${
        REASONS[reasons[key]] ?? reasons[key]}.`)),
  judged.length ? " A query is reported as having no match if its match probability is low." : "",
  judged.length ? " Shorter and longer texts than these are not judged." : "");
  const charts = kinds.map(([key, name]) => reliability(name, figures[key].aligned.hits));
  box.replaceChildren(about, make("div", { className: "columns" }, ...charts),
    ...(judged.length ? [noMatchTable(figures, judged)] : []), aurocTable(figures, kinds));
}

function fittedOn({ data, split, photos, texts, text_lengths: lengths }, short, indexed) {
  const ofSplit = split === null ? "" : `, split ${split}`;
  const long = lengths === null ? "" : ` of ${lengths.low} to ${lengths.high} tokens`;
  const brief = short === null ? "" : `, and ${counted(short.texts, "short text")} of ${
    short.lengths.low} to ${short.lengths.high} tokens`;
  const here = indexed === null ? "" : ` About ${share(indexed, 0)} of these photos are in this index.`;
  return `Fitted on ${data}${ofSplit}: ${counted(photos, "photo")} and ${counted(texts, "text")}${
    long}${brief}.${here}`;
}

function noMatchTable(figures, directions) {
  const head = ["Direction", "No match below a probability of",
    "Detected queries without a match", "False alarms"].map((name, place) =>
    (place ? { name, number: true } : name));
  const rows = directions.map(([key, name]) => {
    const { below, detected, false_alarms: wrongly } = figures[key].aligned.no_match;
    return [name, share(below), share(detected), share(wrongly)];
  });
  return dataTable({ caption: "Queries without a match", head, rows });
}

function reliability(name, { bins, ece }) {
  // Most hits are wrong, so most probabilities are low: the axes end at the largest one.
  const to = Math.ceil(20 * Math.max(...bins.flatMap((bin) => [bin.predicted, bin.observed]))) / 20;
  return chart({
    title: `Calibration of hits, ${name} (expected calibration error ${ece.toFixed(3)})`,
    x: { label: "predicted probability", from: 0, to, format: percent, times: 100 },
    y: { label: "observed frequency", from: 0, to, format: percent, times: 100 },
    say: (predicted, observed) => `predicted ${predicted}, observed ${observed}`,
    diagonal: true,
    series: [{
      name,
      points: bins.map(({ predicted, observed, weight }) => ({ x: predicted, y: observed,
        note: `${share(weight, 0)} of the hits` })),
    }],
    table: {
      head: ["predicted", "observed", "share of hits"].map((each) => ({ name: each, number: true })),
      rows: bins.map(({ predicted, observed, weight }) =>
        [share(predicted), share(observed), share(weight)]),
    },
  });
}

function aurocTable(figures, kinds) {
  const rows = kinds.flatMap(([key, name]) => {
    const { aligned } = figures[key];
    const auroc = Object.entries(aligned.kinds).map(([kind, { value, low, high }]) => ({
      cells: [`Match probability, ${name}, ${WITHOUT_MATCH[kind] ?? kind}`, value.toFixed(3),
        `${low.toFixed(3)} to ${high.toFixed(3)}`, null, null],
    }));
    return Object.entries(aligned.auroc).map(([predictor, { value, low, high }]) => ({
      cells: [`${PREDICTORS[predictor] ?? predictor}, ${name}`, value.toFixed(3),
        `${low.toFixed(3)} to ${high.toFixed(3)}`,
        predictor === "probability" ? aligned.hits.ece.toFixed(3) : null,
        predictor === "probability" ? aligned.match.ece.toFixed(3) : null],
      marked: predictor === "probability",
    })).concat(auroc);
  });
  const head = ["Predictor of a match", "AUROC", "95 % interval", "ECE of hits",
    "ECE of matches"].map((name, place) => (place ? { name, number: true } : name));
  const caption = `AUROC and expected calibration error, ${figures.measured_on}`;
  return make("div", {}, make("p", { className: "faint" }, `${caption}, ${
    counted(figures.photos, "photo")}.`), dataTable({ caption, head, rows }));
}
