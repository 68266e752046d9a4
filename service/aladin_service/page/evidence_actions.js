// What can be done from an open hit: other searches, and its evidence as one picture.

import { make, makeButton } from "./elements.js";
import { indexTargets } from "./index_facts.js";
import { crossesKinds } from "./search.js";
import { hasKey, readPicture } from "./service.js";

const SAVED_BY_MS = 10_000;

// act: {similar(hit), cross(hit), say(text)}
export function actionButtons(hit, search, act) {
  const [other, name] = search.target === "images"
    ? ["texts", "Texts for this photo"]
    : ["images", "Photos for this text"];
  const cross = makeButton(name, () => act.cross(hit), { hidden: true });
  indexTargets.then((targets) => (cross.hidden = !targets.includes(other)));
  const buttons = [makeButton("More like this", () => act.similar(hit)), cross];
  if (crossesKinds(search)) buttons.push(pictureButton(hit, search.query, act.say));
  return buttons;
}

// A link, or fetched where a link could not ask for it: with a key, or an own photo.
function pictureButton(hit, query, say) {
  const name = "As PNG";
  if (!query.file && !hasKey()) {
    return make("a", { className: "button", href: address(query, hit), target: "_blank" }, name);
  }
  return makeButton(name, async () => {
    try {
      save(await fetchPicture(query, hit));
    } catch (error) {
      say(`No picture: ${error.message}.`);
    }
  });
}

function address(query, hit) {
  const what = "text" in query ? { text: query.text } : { query_id: query.id };
  return `v1/explain.png?${new URLSearchParams({ ...what, id: hit.id })}`;
}

function fetchPicture(query, hit) {
  if (!query.file) return readPicture(address(query, hit));
  const body = new FormData();
  body.append("image", query.file);
  body.append("id", hit.id);
  return readPicture("v1/explain.png", { method: "POST", body });
}

function save(picture) {
  const link = make("a", { href: URL.createObjectURL(picture), download: "evidence.png" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), SAVED_BY_MS);
}
