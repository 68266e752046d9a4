// The slowest recent queries, and the time that each stage took.

import { make, makeButton } from "./elements.js";
import { bytes, counted, milliseconds, timeAgo } from "./formats.js";
import { readSlowQueries } from "./service.js";
import { dataTable } from "./tables.js";

const STAGES = [["queue", "waiting"], ["decode", "decode"], ["encode", "encode"],
  ["retrieve", "retrieve"], ["rerank", "re-rank"], ["rest", "other"]];
const LEAST_MS = 0.05; // shorter stages are not listed
const FORBIDDEN = 403;

export async function showSlowQueries(box) {
  try {
    const answer = await readSlowQueries();
    box.replaceChildren(...describe(answer));
  } catch (error) {
    const words = error.status === FORBIDDEN
      ? "Slow queries are shown only to keys with the scope metrics."
      : `The slow queries cannot be read: ${error.message}`;
    const again = makeButton("Try again", async () => {
      await showSlowQueries(box);
      box.focus(); // the button has been removed
    });
    box.replaceChildren(make("p", {}, words), ...(error.status === FORBIDDEN ? [] : [again]));
  }
}

function* describe({ limit, queries }) {
  if (limit === 0) {
    yield make("p", {}, "Slow queries are not recorded: ", make("code", {}, "ALADIN_SLOW_QUERIES"), " is 0.");
    return;
  }
  if (queries.length === 0) {
    yield make("p", {}, "No searches in the last hour.");
    return;
  }
  yield make("p", { className: "faint" }, "The slowest queries of about the last hour. They are",
    " kept in memory only, until the service stops.");
  const head = ["Query", { name: "Time", number: true }, "Stages", "When", "Request"];
  yield dataTable({ caption: "Slowest queries", head, rows: queries.map(cells) });
}

function cells(query) {
  return [
    [make("span", { className: "asked" }, asked(query)),
      make("span", { className: "faint" }, ` ${options(query)}`)],
    milliseconds(query.total_ms),
    query.took_ms ? stages(query) : `not answered: status ${query.status}`,
    timeAgo(query.at),
    query.request_id ? make("code", {}, query.request_id.slice(0, 12)) : null,
  ];
}

function asked({ kind, asked: words, photo_bytes: size }) {
  if (kind === "photo") return `a photo of ${bytes(size)}`;
  if (kind === "regions") return `a photo's regions, ${bytes(size)}`;
  if (kind === "parts") return words;
  return kind === "item" ? `item ${words}` : `“${words}”`;
}

function options(query) {
  const parts = [`in ${query.target === "images" ? "photos" : "texts"}`, counted(query.k, "hit")];
  if (query.offset) parts.push(`from rank ${query.offset + 1}`);
  if (query.candidates === "all") parts.push("all candidates");
  else if (query.candidates) parts.push(counted(query.candidates, "candidate"));
  if (query.filtered) parts.push("filtered");
  if (query.explain) parts.push("with evidence");
  if (query.batch > 1) parts.push(`encoded in a batch of ${query.batch}`);
  if (query.cached) parts.push("encoding cached");
  return [...parts, ...query.degraded.map((each) => `degraded: ${each}`)].join(" · ");
}

function stages({ took_ms: took, queue_ms: queue, total_ms: total }) {
  const parts = { ...took, queue };
  const known = STAGES.slice(0, -1).reduce((sum, [key]) => sum + parts[key], 0);
  parts.rest = Math.max(0, total - known);
  const bar = make("div", { className: "stack thin", ariaHidden: "true" });
  STAGES.forEach(([key], place) => {
    const segment = make("i", { className: `fill-${place + 1}` });
    segment.style.flexGrow = parts[key];
    bar.append(segment);
  });
  const list = make("ul", { className: "legend" });
  list.setAttribute("role", "list");
  STAGES.forEach(([key, name], place) => {
    if (parts[key] < LEAST_MS) return;
    list.append(make("li", {}, make("i", { className: `fill-${place + 1}` }),
      `${name} ${milliseconds(parts[key])}`));
  });
  return [bar, list];
}
