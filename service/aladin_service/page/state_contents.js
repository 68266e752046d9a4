// What is in the index: the items of each collection, what takes up the disk, the generations, and
// the items that the build skipped.

import { make, makeButton } from "./elements.js";
import { bytes, count, counted, share, timeAgo } from "./formats.js";
import { showProblem } from "./problems.js";
import { readIndexState } from "./service.js";
import { dataTable } from "./tables.js";

const COLLECTIONS = [["images", "Photos"], ["texts", "Texts"]];

// --- Overview ---

// The parts of the disk's bar, in its order; all other parts are "rest".
const KINDS = ["tokens", "embeddings", "first stage", "items", "model", "changes", "photos",
  "other generations", "rest"]; // "upgrade" and "other models" are there for a while only

export function showOverview(box, state) {
  const tiles = COLLECTIONS.filter(([target]) => state[target]).map(([target, name]) =>
    collectionTile(name, state[target]));
  box.replaceChildren(make("div", { className: "tiles" }, ...tiles, liveTile(state)), disk(state));
}

function tile(name, value, ...more) {
  return make("div", { className: "tile" }, make("h2", {}, name),
    make("p", { className: "value" }, value), ...more.map((each) => make("p", {}, ...[each].flat())));
}

function collectionTile(name, collection) {
  const { built, added, deleted, live } = collection.counts;
  const changes = added === null ? `${count(built)} pushed to the vector database`
    : added || deleted ? `${count(built)} built, ${count(added)} added, ${count(deleted)} deleted since`
      : "none added or deleted since the build";
  const skipped = collection.left_out.total;
  const link = make("a", { href: "#left-out" }, `${count(skipped)} skipped during the build`);
  return tile(name, count(live), changes, skipped ? [link] : "none skipped during the build",
    `${counted(collection.token_count, "token")} of ${collection.token_dim} dimensions, ${
      collection.token_dtype}`);
}

function liveTile(state) {
  const refused = state.generations.some(({ standing }) => standing === "refused");
  const since = state.live_since ? ["live since ", timeAgo(state.live_since)]
    : state.engine && !refused ? [`in ${state.engine}`]
    : [make("strong", { className: "wrong" },
      "The newest generation was rejected; this one is served instead.")];
  const model = make("code", { title: state.model_id }, state.model_id.slice(0, 12));
  const others = state.generations.length - 1;
  const use = state.engine ? "" : " for rollback";
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

// --- An unfinished upgrade ---

export function showUpgrade(box, state) {
  box.hidden = state.upgrade === null;
  if (box.hidden) return;
  const { new_model_id: id, started_at: since } = state.upgrade;
  const parts = COLLECTIONS.filter(([target]) => state.upgrade[target]).map(([target, name]) => {
    const { encoded, skipped, rest, total } = state.upgrade[target];
    const missing = skipped ? `, ${count(skipped)} cannot be` : "";
    const others = rest === null ? "the old model answers alone"
      : rest === "bridge" ? "the others are asked by the new model over a bridge"
        : "the others are asked by the old model";
    return ` ${name}: ${count(encoded)} of ${count(total)} encoded${missing}; ${others}.`;
  });
  box.replaceChildren("This index is being upgraded to the model ",
    make("code", { title: id }, id.slice(0, 12)), " since ", timeAgo(since), ".", ...parts);
}

// --- Generations, the newest first ---

export function showHistory(box, { generations, engine }) {
  const present = COLLECTIONS.filter(([target]) => generations.some((each) => each[target]));
  const head = ["Generation", "Created by", "Published",
    ...present.map(([, name]) => ({ name, number: true })),
    "First stage", { name: "Candidates", number: true }, { name: "Size", number: true }];
  const rows = generations.map((each) => ({ cells: cells(each, present), marked: isLive(each) }));
  const caption = `Generations ${engine === null ? "on disk" : "in the vector database"}`;
  box.replaceChildren(dataTable({ caption, head, rows }));
  if (engine === null) {
    box.append(make("p", { className: "faint" }, make("code", {}, "aladin index rollback"),
      " makes another generation live. Generations share files, so their sizes do not add up."));
  }
}

const isLive = ({ standing }) => standing === "live";

function cells(generation, present) {
  const badge = make("span", { className: `badge ${generation.standing.replace(" ", "-")}` },
    generation.standing);
  return [
    [`${generation.generation} `, badge],
    [generation.made_by ?? "not recorded", generation.calibrated ? ", calibrated" : ""],
    generation.published_at === null ? null : timeAgo(generation.published_at),
    ...present.map(([target]) => items(generation[target])),
    distinct(generation, present, ({ ann_factory: factory, ann_recall: recall }) =>
      `${factory}, ${share(recall)}`),
    distinct(generation, present, ({ candidates, tuned }) =>
      `${count(candidates)}${tuned ? "" : " (not tuned)"}`),
    generation.bytes === null ? null : bytes(generation.bytes),
  ];
}

function items(collection) {
  if (collection === null) return null;
  const { built, added, deleted } = collection;
  const changes = [["+", added], ["−", deleted]].filter(([, number]) => number);
  if (changes.length === 0) return count(built);
  const words = changes.map(([sign, number]) => `${sign}${count(number)}`).join(" ");
  return [count(built), make("span", { className: "faint" }, ` ${words}`)];
}

// The description of each collection, once if they are equal.
function distinct(generation, present, describe) {
  const described = present.filter(([target]) => generation[target]).map(([target]) =>
    describe(generation[target]));
  return [...new Set(described)].map((words) => make("div", {}, words));
}

// --- Skipped items, one page at a time ---

export const SKIPPED_PER_PAGE = 20;
const NOUNS = { images: "photo", texts: "text" };

export function showSkipped(box, state) {
  const targets = Object.keys(NOUNS).filter((target) => state[target]?.left_out.total);
  if (targets.length === 0) {
    box.replaceChildren(make("p", {}, "No item was skipped during the build."));
    return;
  }
  box.replaceChildren(...targets.map((target) =>
    skippedList(target, state[target].left_out, state.engine)));
}

function skippedList(target, first, engine) {
  const noun = NOUNS[target];
  const box = make("div", {});
  show(first);
  return box;

  function show({ total, offset, items: skipped }) {
    const title = make("h3", {}, `${counted(total, noun)} skipped`);
    if (engine !== null) {
      const where = "The vector database does not store the skipped items. They are listed in the "
        + "index on disk from which it was pushed.";
      box.replaceChildren(title, make("p", {}, where));
      return;
    }
    const rows = skipped.map(({ id, reason }) => [make("code", {}, id), reason]);
    const table = dataTable({ caption: `${counted(total, noun)} skipped`, head: ["Id", "Reason"], rows });
    box.replaceChildren(title, table, ...(total > SKIPPED_PER_PAGE ? [pager(total, offset)] : []));
  }

  function pager(total, offset) {
    const last = Math.min(offset + SKIPPED_PER_PAGE, total);
    const back = makeButton("Previous", () => go(offset - SKIPPED_PER_PAGE, 0), { disabled: offset === 0 });
    const on = makeButton("Next", () => go(offset + SKIPPED_PER_PAGE, 1), { disabled: last === total });
    const where = make("span", { role: "status" }, `${count(offset + 1)} to ${count(last)} of ${count(total)}`);
    const label = `Pages of skipped ${noun}s`;
    return make("nav", { className: "line", ariaLabel: label }, back, where, on);
  }

  // pressed: the index of the button that was clicked; it keeps the focus unless it is disabled.
  async function go(offset, pressed) {
    try {
      const state = await readIndexState(Math.max(0, offset), SKIPPED_PER_PAGE);
      show(state[target].left_out);
      const buttons = [...box.querySelectorAll("nav button")];
      const wanted = buttons[pressed].disabled ? buttons[1 - pressed] : buttons[pressed];
      wanted?.focus();
    } catch (error) {
      showProblem(error, () => go(offset, pressed));
    }
  }
}
