// What the index has: collections, metadata fields, and whether its evidence means something.

import { at, make } from "./elements.js";
import { counted } from "./formats.js";
import { describeIndex, readFields } from "./service.js";

const COLLECTIONS = [["images", "photo"], ["texts", "text"]];

let learn;
// Resolves to {index, targets, fields, isAligned} when they are known; `fields` is null if the index does
// not describe them.
export const indexFacts = new Promise((resolve) => (learn = resolve));

// The second stage of an alignment that was not trained is not offered.
function hideSecondStage() {
  at("option-candidates").closest("label").hidden = true;
  for (const id of ["option-rerank", "option-fusion"]) at(id).closest("div").hidden = true;
  at("option-unaligned").hidden = false;
}

// Say what the index lacks of its sources, and why; and why its order is random.
function showLeftOut({ left_out: leftOut, untrained }) {
  const about = at("left-out");
  const kinds = Object.entries(leftOut?.other_files ?? {});
  about.hidden = !leftOut?.total && kinds.length === 0;
  at("left-out-count").textContent = leftOut?.total
    ? `${counted(leftOut.total, "file")} left out`
    : "Files that are no photos";
  const lines = (leftOut?.reasons ?? []).map(({ reason, count, names }) => {
    const more = count > names.length ? ", …" : "";
    const line = make("li", {}, `${counted(count, "file")}: ${reason} `);
    line.append(make("span", { className: "faint" }, `(${names.join(", ")}${more})`));
    return line;
  });
  const others = kinds.map(([kind, count]) => `${count} ${kind}`).join(", ");
  if (others) lines.push(make("li", {}, `Not photos: ${others}`));
  at("left-out-reasons").replaceChildren(...lines);
  const stopped = leftOut?.not_followed;
  const warnings = [
    untrained && `${untrained[0].toUpperCase()}${untrained.slice(1)}.`,
    stopped && `The folders are not followed any more (${stopped}). Start aladin photos again.`,
  ].filter(Boolean);
  at("index-warning").hidden = warnings.length === 0;
  at("index-warning").textContent = warnings.join(" ");
}

// Show the size of the index. grows: whether items are being added.
export function showCounts(index, grows = false) {
  const present = COLLECTIONS.filter(([target]) => index[target] !== null);
  const words = present.map(([target, noun]) => counted(index[target].count, noun));
  if (grows) words.push("more are being added");
  at("index-info").textContent = words.join(" · ");
  showLeftOut(index);
  // A count that changes every few seconds is read aloud when it is final.
  at("status").ariaBusy = String(grows);
}

// Show the size of the index, and return its description.
export async function loadIndexFacts() {
  const [index, fields] = await Promise.all([describeIndex(), readFields()]);
  const present = COLLECTIONS.filter(([target]) => index[target] !== null);
  for (const [target] of COLLECTIONS) {
    const choice = document.querySelector(`input[name=target][value=${target}]`);
    choice.closest("label").hidden = index[target] === null;
    choice.closest("fieldset").hidden = present.length < 2; // there is nothing to choose
  }
  showCounts(index);
  at("option-candidates").placeholder = index.default_candidates;
  if (index.alignment_trained === false) hideSecondStage();
  learn({
    index,
    targets: present.map(([target]) => target),
    fields,
    // An alignment that was not trained finds regions at random.
    isAligned: index.alignment_trained !== false,
  });
  return indexFacts;
}
