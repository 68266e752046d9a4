// The address holds the search after its #, so that it can be shared and gone back to.

import { NEW_SEARCH } from "./search.js";

const NUMBERS = { k: "k", offset: "offset", candidates: "candidates", fusion: "fusion",
  min_probability: "minProbability" };

// Photos that were searched with: no address can hold one, so they are kept here by the name that
// their address has, until the page is left.
const photos = new Map();

export function toAddress(search, openId = null) {
  const parts = new URLSearchParams();
  const { query } = search;
  if (query?.file) {
    photos.set(uploadName(query.file), query.file);
    parts.set("upload", uploadName(query.file));
  } else if (query) {
    for (const [name, value] of Object.entries(query)) if (value) parts.set(name, value);
  }
  parts.set("target", search.target);
  for (const [name, field] of Object.entries(NUMBERS)) {
    if (search[field] !== NEW_SEARCH[field]) parts.set(name, search[field]);
  }
  if (!search.rerank) parts.set("rerank", "false");
  if (search.compare) parts.set("compare", "true");
  if (Object.keys(search.filter).length) parts.set("filter", JSON.stringify(search.filter));
  if (openId !== null) parts.set("open", openId);
  return `#${parts}`;
}

// {search, openId, lostPhoto}: the last is the name of a photo that only its finder has.
export function fromAddress(hash) {
  const parts = new URLSearchParams(hash.slice(1));
  const search = { ...NEW_SEARCH, ...readQuery(parts) };
  if (parts.get("target") === "texts") search.target = "texts";
  for (const [name, field] of Object.entries(NUMBERS)) {
    const value = parse(parts.get(name));
    // The service says what is wrong with a number that is out of its range.
    if (typeof value === "number") search[field] = value;
  }
  search.rerank = parts.get("rerank") !== "false";
  search.compare = parts.get("compare") === "true";
  const filter = parse(parts.get("filter"));
  if (filter !== null && typeof filter === "object" && !Array.isArray(filter)) {
    search.filter = filter;
  }
  const lostPhoto = parts.has("upload") && search.query === null ? parts.get("upload") : null;
  return { search: Object.freeze(search), openId: parts.get("open"), lostPhoto };
}

function readQuery(parts) {
  if (parts.get("text")) return { query: { text: parts.get("text") } };
  if (parts.get("id")) {
    const [id, name, of] = ["id", "name", "of"].map((part) => parts.get(part));
    return { query: { id, name: name ?? id, of: of ?? "images" } };
  }
  const file = photos.get(parts.get("upload"));
  return { query: file ? { file } : null };
}

function uploadName(file) {
  return `${file.name || "photo"} ${file.lastModified}`;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null; // somebody's own idea of an address
  }
}
