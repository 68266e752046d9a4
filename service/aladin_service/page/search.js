// The state of a search, and its form in the address of the page. A search is an immutable value
// that is replaced as a whole, so the address, the request and the page always agree.
//
//   query  {text} | {id, name, of} an item of the index | {file} a local photo | null; of a photo
//          perhaps with a box, the part of it to search for: [x0, y0, x1, y1] in fractions
//   target "images" | "texts": the kind of items to find
//   order  "desc" | "asc" | "added": of the items that are listed where there is no query, by their
//          date or their addition
//   sort   null, or a field that orders the items, with a minus before it: largest value first
//   unread words of the text that are not to be read as a date or a place
//   from   null, or where the list of items by date begins: a year, "undated" or "future"
//   stack  whether photos that belong together are one; null for what is usual for the index
//   pages  how many times `k` hits are loaded and sorted together
//   terms  [{role: "all" | "not", text}, {role: "like", id, name, of}]: what hits have or do not
//          have besides the query, and items that they are like
//   whole  the text that the query and its terms were split from, or null
//   others fields of the request, null for the service's default; compare: show both rankings

export const NEW_SEARCH = Object.freeze({
  query: null,
  terms: [],
  whole: null,
  unread: [],
  target: "images",
  k: 24,
  offset: 0,
  rerank: true,
  candidates: null,
  fusion: null,
  minProbability: null,
  lexical: null,
  filter: {},
  order: "desc",
  sort: null,
  from: null,
  stack: null,
  pages: 1,
  compare: false,
});

const ROLES = ["all", "not", "like"];
const MAX_K = 1000; // of a request
const ORDERS = ["desc", "asc", "added"];

// A changed search starts on its first page unless the change names an offset. A field orders items
// of one collection, and what is listed and what is found are ordered separately.
export function changed(search, difference) {
  const next = { ...search, offset: 0, pages: 1, from: null, ...difference };
  const { query, terms, whole, unread } = difference;
  if (query !== undefined && unread === undefined) next.unread = [];
  if (query !== undefined && terms === undefined) next.terms = keptTerms(search, query);
  if ((query !== undefined || terms !== undefined) && whole === undefined) next.whole = null;
  const isOther = next.target !== search.target || (next.query === null) !== (search.query === null);
  if (isOther && !("sort" in difference)) next.sort = null;
  return Object.freeze(next);
}

// Other words are still refined by words; examples are right for what was searched.
function keptTerms(search, query) {
  if (!search.query?.text || !query?.text) return [];
  return search.terms.filter((term) => "text" in term);
}

// The fields of the request, except for the query.
export function requestOptions(search) {
  const { query, terms, offset, rerank, candidates, fusion, filter } = search;
  const k = hitsAtOnce(search);
  const sort = isSorted(search) ? search.sort : null;
  const options = { k, offset, sort, rerank, candidates, fusion };
  // The service has no probabilities for several terms or a box, nor words without a text.
  if (terms.length === 0 && !query?.box) options.min_probability = search.minProbability;
  if (terms.length === 0 && query?.text) {
    options.lexical = search.lexical;
    options.unread = search.unread.length ? search.unread : null;
  }
  if (Object.keys(filter).length) options.filter = filter;
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value != null));
}

// Whether the query and the target have different modalities, so that the second stage applies.
export function crossesKinds(search) {
  const { query, target } = search;
  if (query === null) return false;
  if ("text" in query) return target === "images";
  return (query.file ? "images" : query.of) !== target;
}

// Whether words or regions of the query are compared with regions or words of the hits.
export function hasEvidence(search) {
  return crossesKinds(search) || Boolean(search.query?.box);
}

// The queries among the terms that words and regions tell something of: [{role, query}].
export function comparedQueries(search) {
  const { query, terms, target } = search;
  const own = hasEvidence(search) ? [{ role: "all", query }] : [];
  const texts = target === "images" ? terms.filter((term) => "text" in term) : [];
  return [...own, ...texts.map(({ role, text }) => ({ role, query: { text } }))];
}

// The terms in the order of the answer: by their roles, the query first.
export function termsInOrder({ query, terms }) {
  const rest = ROLES.flatMap((role) => terms.filter((term) => term.role === role));
  return [{ role: "all", ...query }, ...rest];
}

// What a term is called: its words, or the name of its item or file.
export function termName({ text, name, file, box }) {
  const whole = text ?? name ?? (file?.name || "a photo");
  return box ? `Part of ${whole}` : whole;
}

// Whether both rankings are shown side by side.
export function isCompared(search) {
  return search.compare && search.rerank && hasEvidence(search);
}

// Whether the hits are sorted by a field.
export function isSorted(search) {
  return search.query !== null && search.sort !== null && !isCompared(search);
}

// The service sorts the hits of one request: it has to find all that are shown together.
export function hitsAtOnce({ pages, k }) {
  return pages > 1 ? Math.min(MAX_K, k * pages) : k;
}

// The same search with more hits to sort, or null if there cannot be more.
export function withMoreSorted(search) {
  const more = Object.freeze({ ...search, pages: search.pages + 1 });
  return hitsAtOnce(more) > hitsAtOnce(search) ? more : null;
}

export function titleOf({ query }) {
  const what = query && termName(query);
  return what ? `${what} · ALADIN search` : "ALADIN search";
}

export function nameOf(item) {
  return item.text ?? item.uri ?? item.id;
}

// The query by an item; of: its collection.
export const itemQuery = (item, of) => ({ id: item.id, name: nameOf(item), of });

// Where an item's file is, or its id.
export const fileOf = (item) => item.uri ?? item.id;

// What is written below a photo: its caption, or the name of its file without the folders.
export function labelOf(item) {
  return item.text ?? fileOf(item).replace(/[/\\]+$/, "").split(/[/\\]/).at(-1);
}

// --- The address: the search follows the #, so that it can be shared and revisited ---

const NUMBERS = { k: "k", offset: "offset", candidates: "candidates", fusion: "fusion",
  min_probability: "minProbability", lexical: "lexical" };

// Uploaded photos by the name used in the address. An address cannot hold a photo, so going back
// to such a search works only until the page is closed.
const photos = new Map();

export function toAddress(search, openId = null) {
  const address = new URLSearchParams();
  const { query } = search;
  if (query?.file) {
    photos.set(uploadName(query.file), query.file);
    address.set("upload", uploadName(query.file));
    if (query.box) address.set("box", query.box);
  } else if (query) {
    for (const [name, value] of Object.entries(query)) if (value) address.set(name, value);
  }
  if (search.terms.length) address.set("terms", JSON.stringify(search.terms));
  if (search.whole !== null) address.set("whole", search.whole);
  if (search.unread.length) address.set("unread", JSON.stringify(search.unread));
  address.set("target", search.target);
  for (const [name, field] of Object.entries(NUMBERS)) {
    if (search[field] !== NEW_SEARCH[field]) address.set(name, search[field]);
  }
  if (!search.rerank) address.set("rerank", "false");
  if (search.order !== NEW_SEARCH.order) address.set("order", search.order);
  if (search.sort !== null) address.set("sort", search.sort);
  if (search.from !== null) address.set("from", search.from);
  if (search.stack !== null) address.set("stack", search.stack);
  if (search.compare) address.set("compare", "true");
  if (Object.keys(search.filter).length) address.set("filter", JSON.stringify(search.filter));
  if (openId !== null) address.set("open", openId);
  return `#${address}`;
}

// Returns {search, openId, lostPhoto}; lostPhoto is the name of an uploaded photo that this page
// does not have.
export function fromAddress(hash) {
  const address = new URLSearchParams(hash.slice(1));
  const search = { ...NEW_SEARCH, ...readQuery(address) };
  if (search.query !== null) {
    search.terms = readTerms(parse(address.get("terms")));
    search.whole = address.get("whole") || null;
    search.unread = [parse(address.get("unread")) ?? []].flat().filter((words) => typeof words === "string");
  }
  if (address.get("target") === "texts") search.target = "texts";
  for (const [name, field] of Object.entries(NUMBERS)) {
    const value = parse(address.get(name));
    // The service reports numbers that are out of range.
    if (typeof value === "number") search[field] = value;
  }
  if (address.get("candidates") === "exhaustive") search.candidates = "exhaustive";
  search.rerank = address.get("rerank") !== "false";
  search.compare = address.get("compare") === "true";
  if (address.has("stack")) search.stack = address.get("stack") === "true";
  if (ORDERS.includes(address.get("order"))) search.order = address.get("order");
  if (address.get("sort")) search.sort = address.get("sort");
  if (/^(\d{4}|undated|future)$/.test(address.get("from"))) search.from = address.get("from");
  const filter = parse(address.get("filter"));
  if (filter !== null && typeof filter === "object" && !Array.isArray(filter)) {
    search.filter = filter;
  }
  const lostPhoto = address.has("upload") && search.query === null ? address.get("upload") : null;
  return { search: Object.freeze(search), openId: address.get("open"), lostPhoto };
}

function readQuery(address) {
  if (address.get("text")) return { query: { text: address.get("text") } };
  const box = readBox(address.get("box"));
  if (address.get("id")) {
    const [id, name, of] = ["id", "name", "of"].map((name) => address.get(name));
    return { query: { id, name: name ?? id, of: of ?? "images", ...box } };
  }
  const file = photos.get(address.get("upload"));
  return { query: file ? { file, ...box } : null };
}

function readBox(text) {
  const box = text?.split(",").map(Number) ?? [];
  return box.length === 4 && box.every(Number.isFinite) ? { box } : {};
}

// Parts that this page could have written; others are left out.
function readTerms(given) {
  const isText = (value) => typeof value === "string" && value !== "";
  return (Array.isArray(given) ? given : []).flatMap((term) => {
    const { role, text, id, name, of } = term ?? {};
    if (["all", "not"].includes(role) && isText(text)) return [{ role, text }];
    if (role !== "like" || !isText(id)) return [];
    return [{ role, id, name: isText(name) ? name : id, of: of === "texts" ? of : "images" }];
  });
}

function uploadName(file) {
  return `${file.name || "photo"} ${file.lastModified}`;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // an address that this page did not write
  }
}
