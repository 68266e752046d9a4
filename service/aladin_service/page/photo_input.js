// Ways in for a photo: dropped, pasted, chosen, or from the camera roll.

import { at } from "./elements.js";

const input = at("photo");

// onPhoto(file): there is one.
export function startPhotoInput(onPhoto) {
  const choose = () => input.click();
  at("choose").addEventListener("click", choose);
  at("drop-zone").addEventListener("click", choose);
  input.addEventListener("change", () => {
    if (input.files.length) onPhoto(input.files[0]);
    input.value = ""; // the same file may be chosen again
  });

  addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    // Of the window, not of an element on the way over it.
    if (event.relatedTarget === null) document.body.classList.remove("dropping");
  });
  addEventListener("drop", (event) => {
    document.body.classList.remove("dropping");
    if (!event.dataTransfer?.files.length) return; // words, for the field that they fall on
    event.preventDefault();
    onPhoto(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => {
    if (event.clipboardData?.files.length) onPhoto(event.clipboardData.files[0]);
  });
}
