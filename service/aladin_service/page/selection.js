// A box on a photo: drawn by dragging, or moved and resized by the keyboard.

import { make } from "./elements.js";

const LEAST = 0.02; // of the photo's width and height: a shorter drag is a click
const STEP = 0.05; // of an arrow key
const FIRST = [0.25, 0.25, 0.75, 0.75];

// Let the reader draw a box on a frame; returns {toggle(on), isOn()}.
// on: {draw(box): a box was drawn, or Enter pressed; first: the box to begin with; toggle(isOn);
// starts(event): whether a drag draws, although the selection is off}
export function startSelection(frame, on) {
  const box = make("div", { className: "selection", hidden: true, tabIndex: 0 });
  box.setAttribute("role", "application");
  box.setAttribute("aria-roledescription", "selection");
  frame.append(box);
  let edges = on.first ?? FIRST;
  let isOn = false;
  let from = null; // where the drag began

  function toggle(wanted) {
    isOn = wanted;
    edges = on.first ?? FIRST;
    from = null;
    frame.classList.toggle("selecting", isOn);
    box.hidden = !isOn;
    if (isOn) {
      showBox(box, edges);
      box.focus({ preventScroll: true });
    }
    on.toggle?.(isOn);
  }

  frame.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || !event.isPrimary || !(isOn || on.starts?.(event))) return;
    event.stopPropagation(); // the photo is not moved
    event.preventDefault(); // nor is it dragged as a file
    from = { point: pointIn(frame, event), id: event.pointerId };
  });
  // At the window: the drag goes on outside of the photo.
  const onMove = (event) => {
    if (!frame.isConnected) stop();
    if (event.pointerId !== from?.id) return;
    const drawn = between(from.point, pointIn(frame, event));
    if (!isLarge(drawn)) return;
    edges = drawn;
    box.hidden = false;
    showBox(box, edges);
  };
  const onUp = (event) => {
    if (event.pointerId !== from?.id) return;
    const drawn = between(from.point, pointIn(frame, event));
    from = null;
    if (isLarge(drawn) && event.type === "pointerup") {
      swallowClick();
      on.draw(rounded(drawn));
    } else {
      box.hidden = !isOn;
    }
  };
  const stop = () => {
    removeEventListener("pointermove", onMove);
    for (const type of ["pointerup", "pointercancel"]) removeEventListener(type, onUp);
  };
  addEventListener("pointermove", onMove);
  for (const type of ["pointerup", "pointercancel"]) addEventListener(type, onUp);

  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter") on.draw(rounded(edges));
    else if (event.key === "Escape") toggle(false);
    else if (event.key in ARROWS) showBox(box, (edges = moved(edges, event)));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return { toggle, isOn: () => isOn, draw: () => on.draw(rounded(edges)) };
}

// Outline a box on a frame; it cannot be changed.
export function outlineBox(frame, edges, className) {
  const box = make("div", { className, ariaHidden: "true" });
  placeBox(box, edges);
  frame.append(box);
}

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// An arrow key moves a box, with Shift its lower right corner.
function moved(edges, { key, shiftKey }) {
  const [across, down] = ARROWS[key].map((step) => step * STEP);
  const [x0, y0, x1, y1] = edges;
  if (shiftKey) return [x0, y0, within(x1 + across, x0 + STEP, 1), within(y1 + down, y0 + STEP, 1)];
  const right = within(across, -x0, 1 - x1);
  const below = within(down, -y0, 1 - y1);
  return [x0 + right, y0 + below, x1 + right, y1 + below];
}

const within = (value, least, most) => Math.min(most, Math.max(least, value));

function pointIn(frame, { clientX, clientY }) {
  const { left, top, width, height } = frame.getBoundingClientRect();
  return [within((clientX - left) / width, 0, 1), within((clientY - top) / height, 0, 1)];
}

function between([x0, y0], [x1, y1]) {
  return [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];
}

const isLarge = ([x0, y0, x1, y1]) => x1 - x0 >= LEAST && y1 - y0 >= LEAST;

const rounded = (edges) => edges.map((edge) => Math.round(1000 * edge) / 1000);

// The click that ends a drag belongs to no region under it.
function swallowClick() {
  const swallow = (event) => event.stopPropagation();
  addEventListener("click", swallow, { capture: true, once: true });
  setTimeout(() => removeEventListener("click", swallow, { capture: true }));
}

function showBox(element, edges) {
  placeBox(element, edges);
  const [x0, y0, x1, y1] = edges.map((edge) => Math.round(100 * edge));
  element.ariaLabel = `Part of the photo, from ${x0} to ${x1} % of its width and ${y0} to ${y1} %`
    + " of its height. Arrow keys move it, with Shift they resize it, Enter searches for it.";
}

// Put an element where a box is on its frame.
export function placeBox(element, [x0, y0, x1, y1]) {
  const places = { left: x0, top: y0, width: x1 - x0, height: y1 - y0 };
  for (const [edge, share] of Object.entries(places)) element.style[edge] = `${100 * share}%`;
}
