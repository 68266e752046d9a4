// The numbers on top: items of each side, and what takes up the disk.

import { make } from "./elements.js";
import { bytes, count, counted, timeAgo } from "./formats.js";

const SIDES = [["images", "Photos"], ["texts", "Texts"]];
// In the order of the bar; what is none of these is "rest".
const KINDS = ["tokens", "embeddings", "first stage", "items", "model", "changes", "photos",
  "other generations", "rest"];

export function showOverview(box, state) {
  const tiles = SIDES.filter(([target]) => state[target]).map(([target, name]) =>
    sideTile(name, state[target]));
  box.replaceChildren(make("div", { className: "tiles" }, ...tiles, liveTile(state)), disk(state));
}

function tile(name, value, ...more) {
  return make("div", { className: "tile" }, make("h2", {}, name),
    make("p", { className: "value" }, value), ...more.map((each) => make("p", {}, ...[each].flat())));
}

function sideTile(name, side) {
  const { built, added, deleted, live } = side.counts;
  const changes = added === null ? `${count(built)} pushed to the engine`
    : added || deleted ? `${count(built)} built, ${count(added)} added, ${count(deleted)} deleted since`
      : "none added or deleted since the build";
  const leftOut = side.left_out.total;
  const link = make("a", { href: "#left-out" }, `${count(leftOut)} left out at build`);
  return tile(name, count(live), changes, leftOut ? [link] : "none left out at build",
    `${counted(side.token_count, "token")} of ${side.token_dim} dimensions, ${side.token_dtype}`);
}

function liveTile(state) {
  const refused = state.generations.some(({ standing }) => standing === "refused");
  const since = state.live_since ? ["live since ", timeAgo(state.live_since)]
    : state.engine && !refused ? [`in ${state.engine}`]
    : [make("strong", { className: "wrong" }, "The newest generation was refused; this one answers.")];
  const model = make("code", { title: state.model_id }, state.model_id.slice(0, 12));
  const others = state.generations.length - 1;
  const use = state.engine ? "" : " to go back to";
  return tile("Generation", String(state.generation), since, ["model ", model],
    others ? `${counted(others, "other generation")} kept${use}` : "no other generation kept");
}

function disk({ disk: parts }) {
  const sizes = new Map(KINDS.map((kind) => [kind, 0]));
  for (const { part, bytes: size } of parts) {
    const kind = part.split(": ").at(-1);
    const known = sizes.has(kind) ? kind : "rest";
    sizes.set(known, sizes.get(known) + size);
  }
  const total = parts.reduce((sum, part) => sum + part.bytes, 0);
  const bar = make("div", { className: "stack", ariaHidden: "true" });
  const list = make("ul", { className: "legend" });
  list.setAttribute("role", "list");
  KINDS.forEach((kind, place) => {
    const size = sizes.get(kind);
    if (size === 0) return;
    const segment = make("i", { className: `fill-${place + 1}`, title: `${kind}: ${bytes(size)}` });
    segment.style.flexGrow = size;
    bar.append(segment);
    list.append(make("li", {}, make("i", { className: `fill-${place + 1}` }), `${kind} `,
      make("b", {}, bytes(size))));
  });
  const title = make("h2", { id: "disk-title" }, `${bytes(total)} on disk`);
  return make("div", { className: "panel" }, title, bar, list);
}
