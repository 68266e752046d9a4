// What the service takes at most, so that nothing is sent in vain.

import { Problem, readLimits } from "./service.js";

// Until they are known, and where they are not, the service refuses what is too large.
let limits = { max_image_bytes: Infinity, max_text_chars: Infinity, max_photo_size_px: Infinity };

export async function learnLimits() {
  try {
    limits = await readLimits();
  } catch {
    // Then it does.
  }
}

export function largestPhotoPx() {
  return limits.max_photo_size_px;
}

// Throws the Problem that the service would answer with.
export function checkQuery({ file, text }) {
  if (file?.size === 0) throw new Problem("the file is empty", { status: 415 });
  if (file?.size > limits.max_image_bytes) {
    throw new Problem(
      `expected at most ${megabytes(limits.max_image_bytes)}, it has ${megabytes(file.size)}`,
      { status: 413 },
    );
  }
  const characters = text ? [...text].length : 0;
  if (characters > limits.max_text_chars) {
    throw new Problem(
      `expected at most ${limits.max_text_chars} characters, got ${characters}`,
      { status: 422 },
    );
  }
}

function megabytes(bytes) {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
