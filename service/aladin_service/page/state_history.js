// All generations that are on the disk or in the engine, the newest first.

import { make } from "./elements.js";
import { bytes, count, share, timeAgo } from "./formats.js";
import { dataTable } from "./tables.js";

const SIDES = [["images", "Photos"], ["texts", "Texts"]];

export function showHistory(box, { generations, engine }) {
  const sides = SIDES.filter(([target]) => generations.some((each) => each[target]));
  const head = ["Generation", "Made by", "Published",
    ...sides.map(([, name]) => ({ name, number: true })),
    "First stage", { name: "Candidates", number: true }, { name: "Size", number: true }];
  const rows = generations.map((each) => ({ cells: cells(each, sides), marked: isLive(each) }));
  const caption = `Generations ${engine === null ? "on the disk" : "in the engine"}`;
  box.replaceChildren(dataTable({ caption, head, rows }));
  if (engine === null) {
    box.append(make("p", { className: "faint" }, make("code", {}, "aladin index rollback"),
      " makes another one live. Generations share files, so their sizes do not add up."));
  }
}

const isLive = ({ standing }) => standing === "live";

function cells(generation, sides) {
  const badge = make("span", { className: `badge ${generation.standing.replace(" ", "-")}` },
    generation.standing);
  return [
    [`${generation.generation} `, badge],
    [generation.made_by ?? "not noted", generation.calibrated ? ", calibrated" : ""],
    generation.published_at === null ? null : timeAgo(generation.published_at),
    ...sides.map(([target]) => items(generation[target])),
    each(generation, sides, ({ ann_factory: factory, ann_recall: recall }) =>
      `${factory}, ${share(recall)}`),
    each(generation, sides, ({ candidates, tuned }) =>
      `${count(candidates)}${tuned ? "" : " (not tuned)"}`),
    generation.bytes === null ? null : bytes(generation.bytes),
  ];
}

function items(side) {
  if (side === null) return null;
  const changes = [["+", side.added], ["−", side.deleted]].filter(([, number]) => number);
  if (changes.length === 0) return count(side.built);
  const words = changes.map(([sign, number]) => `${sign}${count(number)}`).join(" ");
  return [count(side.built), make("span", { className: "faint" }, ` ${words}`)];
}

// Of both sides, once where they are alike.
function each(generation, sides, tell) {
  const told = sides.filter(([target]) => generation[target]).map(([target]) =>
    tell(generation[target]));
  return [...new Set(told)].map((words) => make("div", {}, words));
}
