// The page /state: what is in the index, how good it is, and how it came to be.

import { at, make } from "./elements.js";
import { askForKey, startKeyForm } from "./key_form.js";
import { startOffline, waitForService } from "./offline.js";
import { hideProblem, showProblem } from "./problems.js";
import { NeedsKey, readIndexState, Unreachable } from "./service.js";
import { showCalibration } from "./state_calibration.js";
import { showCurves } from "./state_curves.js";
import { showEvaluations } from "./state_evaluations.js";
import { showHistory } from "./state_history.js";
import { LEFT_OUT_PAGE, showLeftOut } from "./state_left_out.js";
import { showOverview } from "./state_overview.js";
import { showSlowQueries } from "./state_slow_queries.js";

const CLOCK = new Intl.DateTimeFormat("en", { timeStyle: "medium" });

async function load() {
  hideProblem();
  at("status").textContent = "Loading…";
  try {
    const state = await readIndexState(0, LEFT_OUT_PAGE);
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
  showOverview(at("overview"), state);
  showEvaluations(at("quality-body"), state);
  showCurves(at("curves-body"), state);
  showCalibration(at("calibration-body"), state.calibration);
  showHistory(at("history-body"), state);
  showSlowQueries(at("slow-body"));
  showLeftOut(at("left-out-body"), state);
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
  at("engine").textContent = `The engine ${engine} keeps this index. To tune it, to calibrate it or to `
    + "go back to an earlier generation, do so with the index of files, and push that again.";
}

at("refresh").addEventListener("click", load);
startKeyForm(load);
startOffline();
load();
