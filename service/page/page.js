// The page at /: asks the service that it came from, and shows what it answers.
// Everything that comes from the index is put in as text, never as markup.

import { NeedsKey, Problem, describeIndex, search, setKey, showPhoto } from "./service.js";

const PAGE_SIZE = 24;
const THUMBNAIL_PX = 320;
const EXAMPLE_PX = 96;

const at = (id) => document.getElementById(id);
const form = at("search");
const words = at("words");
const hits = at("hits");

// What is searched for: words, a photo from this machine, or an item of the index.
// {text} | {file} | {id, name}; null before the first search.
let query = null;
let shown = 0;
let running = null; // the AbortController of the search under way

// --- Searching ---

function start(next) {
  query = next;
  showExample();
  remember();
  run(0);
}

async function run(offset) {
  running?.abort();
  const mine = (running = new AbortController());
  const target = form.elements.target.value;
  showError(null);
  hits.classList.add("waiting");
  at("status").textContent = "Searching…";
  try {
    const started = performance.now();
    const answer = await search(target, query, { k: PAGE_SIZE, offset }, mine.signal);
    if (mine !== running) return;
    showAnswer(answer, target, offset, performance.now() - started);
  } catch (error) {
    if (mine !== running) return;
    at("status").textContent = "";
    if (offset === 0) clear();
    if (error instanceof NeedsKey) askForKey(error);
    else showError(error);
  } finally {
    if (mine === running) hits.classList.remove("waiting");
  }
}

// --- Showing ---

function showAnswer(answer, target, offset, tookMs) {
  if (offset === 0) clear();
  hits.className = target;
  hits.append(...answer.hits.map((hit) => hitElement(hit, target)));
  shown += answer.hits.length;
  at("more").hidden = answer.hits.length < PAGE_SIZE;
  at("status").textContent = statusLine(answer, tookMs);
}

function clear() {
  hits.replaceChildren();
  hits.className = "";
  shown = 0;
  at("more").hidden = true;
}

function statusLine(answer, tookMs) {
  if (shown === 0) return "Nothing found.";
  const how = answer.reranked ? `re-ranked ${answer.candidates} candidates` : "by embedding alone";
  const without = answer.degraded.length ? ` (left out: ${answer.degraded.join(", ")})` : "";
  return `Best ${shown}, ${how}${without}, ${Math.round(tookMs)} ms`;
}

function hitElement(hit, target) {
  const name = hit.text ?? hit.uri ?? hit.id;
  const button = make("button", { type: "button" });
  button.addEventListener("click", () => start({ id: hit.id, name }));
  const about = make("div", { className: "about" });
  if (target === "images") {
    const photo = make("img", { alt: name, loading: "lazy" });
    showPhoto(photo, hit.id, THUMBNAIL_PX);
    button.setAttribute("aria-label", `Find what is like: ${name}`);
    button.title = "Find what is like this";
    button.append(photo);
    about.append(make("p", { className: "caption", textContent: name, title: name }));
  } else {
    button.append(make("span", { textContent: name }));
    button.title = "Find what fits this text";
  }
  about.append(stagesElement(hit));
  const item = make("li", { className: "hit" });
  item.append(button, about);
  return item;
}

function stagesElement(hit) {
  const line = make("p", { className: "stages" });
  line.append(make("strong", { textContent: `#${hit.rank} · ${hit.score.toFixed(2)}` }));
  for (const [stage, found] of Object.entries(hit.stages)) {
    if (!found) continue;
    const textContent = `${stage} #${found.rank} · ${found.score.toFixed(2)}`;
    line.append(" ", make("span", { textContent }));
  }
  return line;
}

function showExample() {
  const byWords = query === null || "text" in query;
  const photo = at("example-photo");
  at("example").hidden = byWords;
  words.hidden = !byWords;
  if (photo.src.startsWith("blob:")) URL.revokeObjectURL(photo.src);
  photo.removeAttribute("src");
  photo.hidden = true;
  if (byWords) return;
  at("example-name").textContent = query.file ? query.file.name || "a photo" : query.name;
  // A text has no photo, and a format that the browser does not know cannot be shown.
  photo.onload = () => (photo.hidden = false);
  if (query.file) photo.src = URL.createObjectURL(query.file);
  else showPhoto(photo, query.id, EXAMPLE_PX);
}

function showError(error) {
  const line = at("error");
  line.hidden = error === null;
  if (error === null) return;
  const known = error instanceof Problem;
  line.textContent = known ? error.message : "The service cannot be reached.";
}

function make(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

// --- The key, where the service needs one ---

function askForKey(error) {
  at("key-form").hidden = false;
  at("key").focus();
  if (error.wasWrong) showError(error);
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(at("key").value.trim());
  at("key").value = "";
  at("key-form").hidden = true;
  showIndex();
  if (query) run(0);
});

// --- The address holds the search, so that it can be shared and gone back to ---

function remember() {
  if (query.file) return; // a photo does not fit into an address
  const parts = new URLSearchParams({ ...query, target: form.elements.target.value });
  if (location.hash.slice(1) !== parts.toString()) history.pushState(null, "", `#${parts}`);
}

function recall() {
  const parts = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (parts.target === "images" || parts.target === "texts") {
    form.elements.target.value = parts.target;
  }
  if (parts.text) query = { text: parts.text };
  else if (parts.id) query = { id: parts.id, name: parts.name ?? parts.id };
  else return;
  words.value = parts.text ?? "";
  showExample();
  run(0);
}

addEventListener("popstate", recall);

// --- Input ---

form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (query && !("text" in query)) run(0);
  else if (words.value.trim()) start({ text: words.value.trim() });
});

form.addEventListener("change", (event) => {
  if (event.target.name === "target" && query) start(query);
});

at("more").addEventListener("click", () => run(shown));
at("choose").addEventListener("click", () => at("photo").click());
at("photo").addEventListener("change", () => {
  if (at("photo").files.length) start({ file: at("photo").files[0] });
  at("photo").value = ""; // the same file may be chosen again
});
at("example-remove").addEventListener("click", () => {
  running?.abort();
  running = query = null;
  clear();
  at("status").textContent = "";
  showExample();
  words.focus();
});

addEventListener("dragover", (event) => {
  if (!event.dataTransfer.types.includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) document.body.classList.remove("dropping");
});
addEventListener("drop", (event) => {
  if (!event.dataTransfer.files.length) return; // words, for the box that they fall on
  event.preventDefault();
  document.body.classList.remove("dropping");
  start({ file: event.dataTransfer.files[0] });
});
addEventListener("paste", (event) => {
  if (event.clipboardData.files.length) start({ file: event.clipboardData.files[0] });
});

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=radio])");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    (words.hidden ? at("example-remove") : words).focus();
  }
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const item = event.target.closest(".hit");
  if (step && item) {
    const next = step > 0 ? item.nextElementSibling : item.previousElementSibling;
    next?.querySelector("button").focus();
  }
});

// --- The index ---

async function showIndex() {
  try {
    const index = await describeIndex();
    const sides = [];
    for (const [target, noun] of [["images", "photos"], ["texts", "texts"]]) {
      const choice = form.querySelector(`input[value=${target}]`);
      choice.disabled = index[target] === null;
      if (index[target]) sides.push(`${index[target].count.toLocaleString()} ${noun}`);
      else if (choice.checked) form.querySelector("input[name=target]:not(:checked)").click();
    }
    at("index-info").textContent = sides.join(", ");
  } catch (error) {
    if (error instanceof NeedsKey) askForKey(error);
    else showError(error);
  }
}

showIndex();
recall();
