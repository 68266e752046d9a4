// What is shown under "Details" alone: how a search was answered, and the time that it took.

import { at, fourDigits, make, percent } from "./elements.js";
import { termName, termsInOrder } from "./search.js";

// --- The summary of an answer ---

// The words of the method for an answer, without a full stop.
export function methodOf(answer) {
  const how = answer.reranked
    ? `From ${answer.candidates} re-ranked candidates`
    : "Ranked by embedding only";
  // The summary says that no hit was hidden.
  const lacking = answer.degraded.filter((each) => each !== "min_probability");
  return lacking.length ? `${how}, degraded: ${lacking.join(", ")}` : how;
}

// --- The scores of a hit: [name, value] of each; those of the terms add up to the score ---

const ROLE_NAMES = { all: "With", not: "Without", like: "Like" };

export function scoresOf(hit, search) {
  const { rank, score, probability, per_word: perWord, terms, stages: { match, align } } = hit;
  const facts = [["Rank", String(rank)], ["Score", fourDigits(score)]];
  if (probability != null) facts.push(["Probability", percent(probability)]);
  facts.push(["Matching", `${fourDigits(match.score)}, rank ${match.rank}`]);
  if (align) {
    facts.push(["Alignment", `${fourDigits(align.score)}, rank ${align.rank}`]);
    const ofRegions = search.query?.box && search.target === "images";
    facts.push([ofRegions ? "Mean per region" : "Mean per word", fourDigits(perWord)]);
  }
  const asked = terms ? termsInOrder(search) : [];
  asked.forEach((term, place) => {
    facts.push([`${ROLE_NAMES[term.role]} ${termName(term)}`, fourDigits(terms[place].score)]);
  });
  return facts;
}

// --- Timings: the duration of each stage ---

const STAGES = ["decode", "encode", "retrieve", "rerank"];
const NAMES = {
  decode: "decoding the photo",
  encode: "encoding the query",
  retrieve: "first stage",
  rerank: "re-ranking",
  rest: "rest",
};

const timings = at("timings");

export function hideTimings() {
  timings.hidden = true;
}

// tookMs: from the answer; roundTripMs: from the request to its answer, as measured by this page.
export function showTimings(tookMs, roundTripMs) {
  // Between the stages: waiting for a worker, reading texts, writing the answer.
  const known = STAGES.reduce((sum, stage) => sum + tookMs[stage], 0);
  const parts = { ...tookMs, rest: Math.max(0, tookMs.total - known) };
  const stages = [...STAGES, "rest"].map((stage) => {
    const item = make("li", {}, `${NAMES[stage]} ${milliseconds(parts[stage])} ms`);
    item.dataset.ms = parts[stage];
    return item;
  });
  const service = make("li", {}, `${milliseconds(tookMs.total)} ms in the service`);
  const trip = make("li", {}, `${milliseconds(roundTripMs)} ms round trip`);
  timings.replaceChildren(...stages, service, trip);
  timings.hidden = false;
}

function milliseconds(ms) {
  return ms < 10 ? ms.toFixed(1) : String(Math.round(ms));
}
