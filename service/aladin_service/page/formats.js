// Formats numbers, sizes and times for display, and ids for addresses.

import { make } from "./elements.js";

const LANGUAGE = "en"; // the language of the page
const AGO = new Intl.RelativeTimeFormat(LANGUAGE, { numeric: "auto" });
const EXACT = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "medium", timeStyle: "long" });
const UNITS = [["year", 31536000], ["month", 2592000], ["week", 604800], ["day", 86400],
  ["hour", 3600], ["minute", 60]];
const SIZES = ["B", "kB", "MB", "GB", "TB"];

// An id as the end of a path. Slashes stay, because common proxies answer %2F with 404, but beside an
// empty part, "." or "..", which browsers and proxies would resolve.
export function itemPath(id) {
  const isResolved = (part) => ["", ".", ".."].includes(part);
  const parts = id.split("/");
  const slash = (n) => (isResolved(parts[n - 1]) || isResolved(parts[n]) ? "%2F" : "/");
  return parts.map((part, n) => (n ? slash(n) : "") + encodeURIComponent(part)).join("");
}

export const count = (number) => number.toLocaleString(LANGUAGE);

// 1,000 photos, 1 photo
export const counted = (number, one, many = `${one}s`) =>
  `${count(number)} ${number === 1 ? one : many}`;

export function bytes(number) {
  let power = 0;
  while (number >= 999.5 && power < SIZES.length - 1) {
    number /= 1000;
    power += 1;
  }
  const digits = power > 0 && number < 9.95 ? 1 : 0;
  return `${number.toFixed(digits)} ${SIZES[power]}`;
}

// 0.021 ms, 3.4 ms, 120 ms, 2.3 s
export function milliseconds(number) {
  if (number >= 999.5) return `${(number / 1000).toFixed(1)} s`;
  return `${significant(number)} ms`;
}

// At least two significant digits, at most four decimals: 0.0214 -> 0.021, 3.42 -> 3.4, 123.4 -> 123.
export function significant(number) {
  if (number === 0) return "0";
  const digits = Math.max(0, 1 - Math.floor(Math.log10(Math.abs(number))));
  return number.toLocaleString(LANGUAGE, {
    minimumFractionDigits: Math.min(digits, 4),
    maximumFractionDigits: Math.min(digits, 4),
  });
}

// A share in percent. A share below 1 is never rounded up to 100 %.
export function share(part, digits = 1) {
  if (part === 1) return "100 %";
  const shown = (100 * part).toFixed(digits);
  if (part < 1 && Number(shown) === 100) return `> ${(100 - 10 ** -digits).toFixed(digits)} %`;
  return `${shown} %`;
}

// --- Metadata ---

const DAY_MS = 86_400_000;
export const DATE_FIELD = "taken_at"; // read from photos
// Neither of the two coordinates says by itself where a photo was taken.
export const COORDINATES = ["lat", "lon"];
const LABELS = { taken_at: "Date taken", camera: "Camera", lat: "Latitude", lon: "Longitude" };
const DATE = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "long", timeZone: "UTC" });
const MOMENT = new Intl.DateTimeFormat(LANGUAGE, {
  dateStyle: "long",
  timeStyle: "short",
  timeZone: "UTC",
});

export const fieldLabel = (field) => LABELS[field] ?? field;

// Whether a value is a date, or a date with a time: 2024-05-31, 2024-05-31T18:05:00.
export const isDate = (value) =>
  typeof value === "string" &&
  /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$/.test(value) &&
  !Number.isNaN(Date.parse(value.slice(0, 10)));

// The day of a date, shifted by a number of days: 2024-05-31.
export function dayOf(date, days = 0) {
  const moment = Date.parse(date.slice(0, 10)) + days * DAY_MS;
  return new Date(moment).toISOString().slice(0, 10);
}

// A date in words, as it was written: a camera's clock has no time zone.
export function shownValue(value) {
  if (!isDate(value)) return String(value);
  const time = value.slice(11, 16);
  const moment = Date.parse(`${value.slice(0, 10)}T${time || "00:00"}Z`);
  if (Number.isNaN(moment)) return value;
  return (time ? MOMENT : DATE).format(moment);
}
