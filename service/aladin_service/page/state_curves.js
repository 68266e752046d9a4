// The measurements of `aladin index tune`: recall of the first stage, fidelity of both stages.

import { chart } from "./charts.js";
import { make } from "./elements.js";
import { count, milliseconds, share } from "./formats.js";

const COLLECTIONS = [["images", "Photos"], ["texts", "Texts"]];

// A row for each stage, a column for each collection.
export function showCurves(box, state) {
  const present = COLLECTIONS.filter(([target]) => state[target]);
  const first = present.map(([target, name]) => firstStage(name, state[target].ann, state.engine));
  const second = present.map(([target, name]) =>
    secondStage(name, state[target].tuning, state.default_candidates));
  box.replaceChildren(make("div", { className: "columns" }, ...first, ...second));
}

function firstStage(name, ann, engine) {
  const found = `${share(ann.recall, 2)} of the nearest ${count(ann.recall_at)}`;
  const short = ann.recall < ann.recall_wanted;
  const about = make("p", {}, make("code", {}, ann.factory), ` finds ${found}`,
    make("span", { className: short ? "wrong" : "faint" },
      ` (target ${share(ann.recall_wanted, 1)}, ${count(ann.recall_queries)} queries)`));
  const box = make("div", { className: "stage" },
    make("h3", {}, `${name}: recall of the first stage (ann_recall)`), about);
  if (ann.curve.some(({ search_width }) => search_width === null) || ann.curve.length < 2) {
    const why = engine === null ? exhaustive(ann)
      : "The vector database uses its own index; this recall was measured when the index was pushed.";
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
    levels: [{ y: ann.recall_wanted, name: "target" }],
    series: oversamples.map((oversample) => ({
      name: oversample === 1 ? "no exact comparison" : `${oversample}× candidates compared exactly`,
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
          point.search_ms === null ? "not measured" : milliseconds(point.search_ms)],
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
    ? `The search is exhaustive${time}: there is nothing to tune.`
    : "One search width was measured.";
}

function secondStage(name, tuning, defaultCandidates) {
  const box = make("div", { className: "stage" },
    make("h3", {}, `${name}: fidelity of both stages`));
  if (tuning === null) {
    box.append(make("p", {}, `${count(defaultCandidates)} candidates, not tuned: `,
      make("code", {}, "aladin index tune"),
      " finds the smallest number that preserves the exhaustive ranking."));
    return box;
  }
  box.append(make("p", {}, make("b", {}, `${count(tuning.candidates)} candidates`),
    ` keep ${share(tuning.fidelity)} of the exhaustive top ${tuning.at}`,
    make("span", { className: "faint" },
      ` (target ${share(tuning.fidelity_wanted)}, ${count(tuning.queries)} queries)`)));
  box.append(chart({
    title: `${name}: fidelity by candidates`,
    titleSeen: false,
    x: { label: "candidates", log: true, format: count },
    y: { label: "fidelity", format: share, times: 100 },
    say: (candidates, fidelity) => `${candidates} candidates keep ${fidelity}`,
    levels: [{ y: tuning.fidelity_wanted, name: "target" }],
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
