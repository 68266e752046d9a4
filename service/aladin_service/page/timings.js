// Where the time of an answer went: a bar of the stages, and each as a number.

import { at, make } from "./elements.js";

const STAGES = ["decode", "encode", "retrieve", "rerank"];
const NAMES = { decode: "decode", encode: "encode", retrieve: "retrieve", rerank: "re-rank",
  rest: "rest" };

const box = at("timings");

export function hideTimings() {
  box.hidden = true;
}

// tookMs: of the answer; roundTripMs: from the request to its answer, as this page saw it.
export function showTimings(tookMs, roundTripMs) {
  // What is between the stages: waiting for a worker, reading texts, writing the answer.
  const known = STAGES.reduce((sum, stage) => sum + tookMs[stage], 0);
  const parts = { ...tookMs, rest: Math.max(0, tookMs.total - known) };
  const bar = make("div", { className: "bar", ariaHidden: "true" });
  const list = make("ul", { ariaLabel: "Milliseconds by stage" });
  list.setAttribute("role", "list");
  for (const stage of [...STAGES, "rest"]) {
    const ms = parts[stage];
    const segment = make("i", { className: stage });
    segment.style.flexGrow = ms; // the bar is as long as the whole
    bar.append(segment);
    const item = make("li", {}, make("i", { className: stage, ariaHidden: "true" }));
    item.append(`${NAMES[stage]} ${format(ms)}`);
    item.dataset.ms = ms;
    list.append(item);
  }
  const service = make("li", { className: "whole" }, `${format(tookMs.total)} ms in the service`);
  const trip = make("li", { className: "whole" }, `${format(roundTripMs)} ms there and back`);
  list.append(service, trip);
  box.replaceChildren(bar, list);
  box.hidden = false;
}

function format(ms) {
  return ms < 10 ? ms.toFixed(1) : String(Math.round(ms));
}
