// Zoom and pan of the photo in the viewer: wheel, double click, pinch, drag, and the keys + - 0.

const MOST = 8;
const STEP = 1.5;
const TOGGLED = 2.5; // by a double click
const PER_WHEEL_PX = 1.0015;

let stage = null;
let frame = null;
let notify = null;
let [scale, left, top] = [1, 0, 0]; // left, top: of the photo's middle, in pixels from the stage's
const pointers = new Map();

// onZoom(scale): called after every change.
export function startZoom(element, onZoom) {
  stage = element;
  notify = onZoom;
  stage.addEventListener("wheel", onWheel, { passive: false });
  stage.addEventListener("dblclick", (event) => {
    if (frame) zoomAt(event, scale > 1 ? 1 / scale : TOGGLED);
  });
  stage.addEventListener("pointerdown", (event) => pointers.set(event.pointerId, event));
  stage.addEventListener("pointermove", onMove);
  for (const type of ["pointerup", "pointercancel", "pointerleave"]) {
    stage.addEventListener(type, (event) => pointers.delete(event.pointerId));
  }
}

// Begin with another photo; null: there is none.
export function zoomOn(element) {
  frame = element;
  pointers.clear();
  [scale, left, top] = [1, 0, 0];
  if (frame) apply();
}

export const zoomIn = () => frame && zoomAt(null, STEP);
export const zoomOut = () => frame && zoomAt(null, 1 / STEP);
export const zoomBack = () => frame && zoomAt(null, 1 / scale);

function onWheel(event) {
  if (!frame) return;
  event.preventDefault();
  zoomAt(event, PER_WHEEL_PX ** -event.deltaY);
}

function onMove(event) {
  const before = pointers.get(event.pointerId);
  if (!frame || !before) return;
  const other = [...pointers.values()].find(({ pointerId }) => pointerId !== event.pointerId);
  pointers.set(event.pointerId, event);
  if (other) {
    const distance = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    const middle = {
      clientX: (event.clientX + other.clientX) / 2,
      clientY: (event.clientY + other.clientY) / 2,
    };
    zoomAt(middle, distance(event) / Math.max(1, distance(before)));
  } else if (scale > 1) {
    stage.setPointerCapture(event.pointerId); // the drag goes on beyond the stage
    left += event.clientX - before.clientX;
    top += event.clientY - before.clientY;
    apply();
  }
}

// Zoom so that what is at a point stays there; without a point, around the middle of the stage.
function zoomAt(point, factor) {
  const next = Math.min(MOST, Math.max(1, scale * factor));
  const box = stage.getBoundingClientRect();
  const x = point ? point.clientX - box.left - box.width / 2 : 0;
  const y = point ? point.clientY - box.top - box.height / 2 : 0;
  const change = next / scale;
  [scale, left, top] = [next, x - (x - left) * change, y - (y - top) * change];
  apply();
}

function apply() {
  // The photo never leaves the stage.
  const room = (size, of) => Math.max(0, (size * scale - of) / 2);
  const across = room(frame.offsetWidth, stage.clientWidth);
  const down = room(frame.offsetHeight, stage.clientHeight);
  left = Math.min(across, Math.max(-across, left));
  top = Math.min(down, Math.max(-down, top));
  frame.style.transform = scale === 1 ? "" : `translate(${left}px, ${top}px) scale(${scale})`;
  stage.classList.toggle("zoomed", scale > 1);
  notify(scale);
}
