// Formats numbers and dates for display, and ids for addresses.

const LANGUAGE = "en"; // the language of the page

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

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

export const NOUNS = { images: "photo", texts: "text" };

// --- Metadata ---

const DAY_MS = 86_400_000;
export const DATE_FIELD = "taken_at"; // read from photos
// Neither of the two coordinates says by itself where a photo was taken.
export const COORDINATES = ["lat", "lon"];
// Fields that have a word of their own, in the order in which a photo's are shown.
const LABELS = {
  title: "Title",
  description: "Description",
  people: "People",
  keywords: "Keywords",
  rating: "Rating",
  favourite: "Favourite",
  taken_at: "Date taken",
  date_source: "Source of the date",
  utc_offset: "Time zone",
  place: "Place",
  location: "Location",
  city: "City",
  state: "State",
  country: "Country",
  lat: "Latitude",
  lon: "Longitude",
  camera: "Camera",
  folder: "Folder",
  damage: "Damage",
};
const DATE_SOURCES = {
  exif: "the camera",
  xmp: "the photo's description (XMP)",
  iptc: "the photo's description (IPTC)",
  takeout: "Google Photos",
  name: "the file's name",
  file: "the file's time",
};
// How values of some fields are said; those of others are shown as they are.
const SAID = {
  date_source: (source) => DATE_SOURCES[source] ?? source,
  utc_offset: (offset) => `UTC${offset}`,
  rating: (stars) => (stars < 0 ? "rejected" : counted(stars, "star")),
};
// Details of another field, which order nothing by themselves.
export const SIDE_FIELDS = [...COORDINATES, "date_source", "utc_offset", "damage"];
const DATE = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: "long", timeZone: "UTC" });
const MOMENT = new Intl.DateTimeFormat(LANGUAGE, {
  dateStyle: "long",
  timeStyle: "short",
  timeZone: "UTC",
});

export const hasLabel = (field) => Object.hasOwn(LABELS, field);
export const fieldLabel = (field) => (hasLabel(field) ? LABELS[field] : field);

// Fields in the order of the labels, others behind them as they come.
export function byLabel(fields) {
  const order = Object.keys(LABELS);
  const place = (field) => (hasLabel(field) ? order.indexOf(field) : order.length);
  return [...fields].sort((one, other) => place(one) - place(other));
}

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

// A value of a field in words; a date as it was written: a camera's clock has no time zone.
export function shownValue(value, field) {
  if (value === "") return "(empty)";
  if (field !== undefined && Object.hasOwn(SAID, field)) return String(SAID[field](value));
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (!isDate(value)) return String(value);
  const time = value.slice(11, 16);
  const moment = Date.parse(`${value.slice(0, 10)}T${time || "00:00"}Z`);
  if (Number.isNaN(moment)) return value;
  return (time ? MOMENT : DATE).format(moment);
}
