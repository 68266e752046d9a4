// The page at /state: what is in the index, how good it is, and how it was made.

import { at, make } from "./elements.js";
import {
  askForKey,
  hideProblem,
  showProblem,
  startKeyForm,
  startOffline,
  waitForService,
} from "./problems.js";
import { NeedsKey, Unreachable, readIndexState } from "./service.js";
import { showCalibration } from "./state_calibration.js";
import { SKIPPED_PER_PAGE, showHistory, showOverview, showSkipped, showUpgrade } from "./state_contents.js";
import { showCurves } from "./state_curves.js";
import { showEvaluations } from "./state_quality.js";
import { showSlowQueries } from "./state_slow_queries.js";

const CLOCK = new Intl.DateTimeFormat("en", { timeStyle: "medium" });

async function load() {
  hideProblem();
  at("status").textContent = "Loading…";
  try {
    const state = await readIndexState(0, SKIPPED_PER_PAGE);
    show(state);
    at("status").textContent = `Generation ${state.generation}, as of ${CLOCK.format(new Date())}`;
  } catch (error) {
    at("status").textContent = "";
    if (error instanceof NeedsKey) askForKey(error);
    else if (error instanceof Unreachable) waitForService(load);
    else showProblem(error, load);
  }
}

function show(state) {
  showDamage(state.damaged);
  showEngine(state.engine);
  showUpgrade(at("upgrade"), state);
  showOverview(at("overview"), state);
  showEvaluations(at("quality-body"), state);
  showCurves(at("curves-body"), state);
  showCalibration(at("calibration-body"), state.calibration);
  showHistory(at("history-body"), state);
  showSlowQueries(at("slow-body"));
  showSkipped(at("left-out-body"), state);
  at("state").hidden = false;
  at("refresh").hidden = false;
}

function showDamage(damaged) {
  at("damaged").hidden = damaged.length === 0;
  const lines = damaged.map(({ name, reason }) => make("p", {}, make("code", {}, name), ` ${reason}`));
  at("damaged").replaceChildren(make("strong", {}, "Some files of the index cannot be read."), ...lines);
}

function showEngine(engine) {
  at("engine").hidden = engine === null;
  at("engine").textContent = `This index is stored in the vector database ${engine}. To tune or `
    + "calibrate it, or to go back to an earlier generation, change the index on disk and push it again.";
}

at("refresh").addEventListener("click", load);
startKeyForm(load);
startOffline();
load();
