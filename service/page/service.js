// Requests to the service, with the key where it needs one.

const KEY = "aladin-key"; // in the session's storage: gone when the tab is closed
const RETRIES = 3;

// What the service says is wrong.
export class Problem extends Error {}

// It says that a key is missing, or that the one it got is not known.
export class NeedsKey extends Problem {
  constructor(message, wasWrong) {
    super(message);
    this.wasWrong = wasWrong;
  }
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}

// Search for {text}, {file} or {id}; `options` are fields of the request.
export async function search(target, query, options, signal) {
  const request = { method: "POST", signal };
  if (query.file) {
    request.body = new FormData();
    request.body.append("image", query.file);
    for (const [name, value] of Object.entries(options)) request.body.append(name, value);
  } else {
    const what = "id" in query ? { id: query.id } : { text: query.text };
    request.headers = { "Content-Type": "application/json" };
    request.body = JSON.stringify({ ...what, ...options });
  }
  return (await ask(`v1/search/${target}`, request)).json();
}

export async function describeIndex() {
  return (await ask("v1/index", {})).json();
}

// Show an item's photo in an <img>, which cannot send a key itself.
export async function showPhoto(image, id, sizePx) {
  const address = `v1/images/${encodeURIComponent(id)}?size=${sizePx}`;
  if (sessionStorage.getItem(KEY) === null) {
    image.src = address;
    return;
  }
  try {
    const photo = await (await ask(address, {}, RETRIES)).blob();
    image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
    image.loading = "eager"; // it is here already
    image.src = URL.createObjectURL(photo);
  } catch {
    // What has no photo shows its name.
  }
}

async function ask(address, request, retries = 0) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...request.headers };
  if (key !== null) headers.Authorization = `Bearer ${key}`;
  const response = await fetch(address, { ...request, headers });
  if (response.ok) return response;
  if (response.status === 429 && retries > 0) {
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    await new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
    return ask(address, request, retries - 1);
  }
  const message = await errorMessage(response);
  if (response.status === 401) {
    // The user may have given another one meanwhile.
    if (sessionStorage.getItem(KEY) === key) sessionStorage.removeItem(KEY);
    throw new NeedsKey(message, key !== null);
  }
  throw new Problem(message);
}

async function errorMessage(response) {
  try {
    const { error } = await response.json();
    return `${error.message} (${error.code})`;
  } catch {
    return `The service answered with status ${response.status}.`; // a proxy in between did
  }
}
