// What a search is: what is looked for, where, and how. A search is a value; it is never changed,
// only replaced, so that an address, a request and the page cannot disagree about it.
//
//   query  {text} | {id, name, of} an item of the index | {file} a photo of this machine's | null
//   target "images" | "texts", what is to be found
//   others fields of the request, null where the service is to decide; compare: both orders

export const NEW_SEARCH = Object.freeze({
  query: null,
  target: "images",
  k: 24,
  offset: 0,
  rerank: true,
  candidates: null,
  fusion: null,
  minProbability: null,
  filter: {},
  compare: false,
});

// Where a search differs, it begins on its first page.
export function changed(search, difference) {
  return Object.freeze({ ...search, offset: 0, ...difference });
}

// The fields of the request but for what is looked for.
export function requestOptions(search) {
  const { k, offset, rerank, candidates, fusion, minProbability, filter } = search;
  const options = { k, offset, rerank, candidates, fusion, min_probability: minProbability };
  if (Object.keys(filter).length) options.filter = filter;
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== null));
}

// Whether the second stage has a say: a word and a region belong to different kinds.
export function crossesKinds(search) {
  const { query, target } = search;
  if (query === null) return false;
  if ("text" in query) return target === "images";
  return (query.file ? "images" : query.of) !== target;
}

export function titleOf({ query }) {
  const what = query && (query.text ?? query.name ?? query.file.name);
  return what ? `${what} · ALADIN search` : "ALADIN search";
}

export function nameOf(hit) {
  return hit.text ?? hit.uri ?? hit.id;
}
