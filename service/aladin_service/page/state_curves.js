// What was measured of the two stages: what the ANN finds, and what candidates keep.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { count, milliseconds, share } from "./formats.js";

const SIDES = [["images", "Finding photos"], ["texts", "Finding texts"]];

// A row for each stage, a column for each side.
export function showCurves(box, state) {
  const sides = SIDES.filter(([target]) => state[target]);
  const first = sides.map(([target, name]) => firstStage(name, state[target].ann, state.engine));
  const second = sides.map(([target, name]) =>
    secondStage(name, state[target].tuning, state.default_candidates));
  box.replaceChildren(make("div", { className: "columns" }, ...first, ...second));
}

function firstStage(name, ann, engine) {
  const found = `${share(ann.recall, 2)} of the nearest ${count(ann.recall_at)}`;
  const short = ann.recall < ann.recall_wanted;
  const about = make("p", {}, make("code", {}, ann.factory), ` finds ${found}`,
    make("span", { className: short ? "wrong" : "faint" },
      ` (${share(ann.recall_wanted, 1)} wanted, ${count(ann.recall_queries)} queries)`));
  const box = make("div", { className: "stage" },
    make("h3", {}, `${name}: ann_recall of the first stage`), about);
  if (ann.curve.some(({ search_width }) => search_width === null) || ann.curve.length < 2) {
    const why = engine === null ? exhaustive(ann)
      : "The engine searches in its own way; this was measured when the index was pushed.";
    box.append(make("p", { className: "faint" }, why));
    return box;
  }
  const oversamples = [...new Set(ann.curve.map(({ oversample }) => oversample))];
  const isChosen = (point) =>
    point.search_width === ann.search_width && point.oversample === ann.oversample;
  box.append(chart({
    title: `${name}: ann_recall by search width`,
    titleSeen: false,
    x: { label: "search width", log: true, format: count },
    y: { label: "ann_recall", format: share, times: 100 },
    say: (width, recall) => `search width ${width} finds ${recall}`,
    levels: [{ y: ann.recall_wanted, name: "wanted" }],
    series: oversamples.map((oversample) => ({
      name: oversample === 1 ? "as found" : `${oversample} times as many compared exactly`,
      points: ann.curve.filter((point) => point.oversample === oversample).map((point) => ({
        x: point.search_width,
        y: point.recall,
        chosen: isChosen(point),
        note: point.search_ms === null ? "" : milliseconds(point.search_ms),
      })),
    })),
    table: {
      head: numeric("search width", "compared exactly", "ann_recall", "time"),
      rows: ann.curve.map((point) => ({
        cells: [count(point.search_width), `${point.oversample}×`, share(point.recall, 2),
          point.search_ms === null ? "not timed" : milliseconds(point.search_ms)],
        marked: isChosen(point),
      })),
    },
  }));
  return box;
}

function exhaustive({ curve, search_width: width }) {
  const [point] = curve;
  const time = point?.search_ms ? `, in ${milliseconds(point.search_ms)}` : "";
  return width === null
    ? `Every item is compared${time}: there is nothing to tune.`
    : "One search width was measured.";
}

function secondStage(name, tuning, defaultCandidates) {
  const box = make("div", { className: "stage" },
    make("h3", {}, `${name}: fidelity of both stages`));
  if (tuning === null) {
    box.append(make("p", {}, `${count(defaultCandidates)} candidates, not tuned: `,
      make("code", {}, "aladin index tune"),
      " finds how few keep the order of an exhaustive search."));
    return box;
  }
  box.append(make("p", {}, make("b", {}, `${count(tuning.candidates)} candidates`),
    ` keep ${share(tuning.fidelity)} of the exhaustive top ${tuning.at}`,
    make("span", { className: "faint" },
      ` (${share(tuning.fidelity_wanted)} wanted, ${count(tuning.queries)} queries)`)));
  box.append(chart({
    title: `${name}: fidelity by candidates`,
    titleSeen: false,
    x: { label: "candidates", log: true, format: count },
    y: { label: "fidelity", format: share, times: 100 },
    say: (candidates, fidelity) => `${candidates} candidates keep ${fidelity}`,
    levels: [{ y: tuning.fidelity_wanted, name: "wanted" }],
    series: [{
      name: "fidelity",
      points: tuning.curve.map((point) => ({
        x: point.candidates,
        y: point.fidelity,
        chosen: point.candidates === tuning.candidates,
        note: milliseconds(point.search_ms),
      })),
    }],
    table: {
      head: numeric("candidates", "fidelity", "time"),
      rows: tuning.curve.map((point) => ({
        cells: [count(point.candidates), share(point.fidelity, 2), milliseconds(point.search_ms)],
        marked: point.candidates === tuning.candidates,
      })),
    },
  }));
  return box;
}

const numeric = (...names) => names.map((name) => ({ name, number: true }));
