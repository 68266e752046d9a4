// What the build was given and could not use, and why; a page of it at a time.

import { make, makeButton } from "./elements.js";
import { count, counted } from "./formats.js";
import { showProblem } from "./problems.js";
import { readIndexState } from "./service.js";
import { dataTable } from "./tables.js";

export const LEFT_OUT_PAGE = 20;
const SIDES = [["images", "photo"], ["texts", "text"]];

export function showLeftOut(box, state) {
  const sides = SIDES.filter(([target]) => state[target]?.left_out.total);
  if (sides.length === 0) {
    box.replaceChildren(make("p", {}, "Everything that the build was given is in the index."));
    return;
  }
  box.replaceChildren(...sides.map(([target, noun]) =>
    list(target, noun, state[target].left_out, state.engine)));
}

function list(target, noun, first, engine) {
  const box = make("div", {});
  show(first);
  return box;

  function show({ total, offset, items }) {
    const title = make("h3", {}, `${counted(total, noun)} left out`);
    if (engine !== null) {
      const where = "The engine was not told which. The index of files, which was pushed, tells it.";
      box.replaceChildren(title, make("p", {}, where));
      return;
    }
    const rows = items.map(({ id, reason }) => [make("code", {}, id), reason]);
    const table = dataTable({ caption: `${counted(total, noun)} left out`, head: ["Id", "Why"], rows });
    box.replaceChildren(title, table, ...(total > LEFT_OUT_PAGE ? [pager(total, offset)] : []));
  }

  function pager(total, offset) {
    const last = Math.min(offset + LEFT_OUT_PAGE, total);
    const back = makeButton("Previous", () => go(offset - LEFT_OUT_PAGE, 0), { disabled: offset === 0 });
    const on = makeButton("Next", () => go(offset + LEFT_OUT_PAGE, 1), { disabled: last === total });
    const where = make("span", { role: "status" }, `${count(offset + 1)} to ${count(last)} of ${count(total)}`);
    const nav = make("nav", { className: "line", ariaLabel: `Pages of ${noun}s left out` }, back, where, on);
    return nav;
  }

  // pressed: which of the two buttons; the focus stays on it while there is somewhere to go.
  async function go(offset, pressed) {
    try {
      const state = await readIndexState(Math.max(0, offset), LEFT_OUT_PAGE);
      show(state[target].left_out);
      const buttons = [...box.querySelectorAll("nav button")];
      const wanted = buttons[pressed].disabled ? buttons[1 - pressed] : buttons[pressed];
      wanted?.focus();
    } catch (error) {
      showProblem(error, () => go(offset, pressed));
    }
  }
}
