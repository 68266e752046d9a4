// From values to places along an axis, and where its ticks are.

const TICKS = 5;

// From values to places; has ticks and their labels, and the values where it begins and ends.
export function makeScale(values, start, end, { log = false, from, to, format, times = 1 }) {
  let [low, high] = [from ?? Math.min(...values), to ?? Math.max(...values)];
  if (low === high) [low, high] = log ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const ticks = log ? logTicks(low, high) : linearTicks(low, high);
  if (!log) {
    low = Math.min(low, from ?? ticks[0]);
    high = Math.max(high, to ?? ticks.at(-1));
  }
  const along = log ? Math.log : (value) => value;
  const scale = (value) =>
    start + ((along(value) - along(low)) / (along(high) - along(low))) * (end - start);
  const digits = log ? undefined : decimals(times * (ticks[1] - ticks[0]));
  return Object.assign(scale, { ticks: ticks.filter((tick) => tick >= low && tick <= high),
    label: (value) => format(value, digits), from: low, to: high });
}

// As many as a step needs to be written without rounding.
function decimals(step) {
  const exact = (digits) => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6;
  return [0, 1, 2, 3].find(exact) ?? 3;
}

// Round numbers from at or below `low` to at or above `high`.
function linearTicks(low, high) {
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5, 10].find((each) => each * power >= rough * 0.999) ?? 10);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, place) => (first + place) * step);
}

function logTicks(low, high) {
  const ticks = [];
  for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
    ticks.push(...[1, 2, 5].map((each) => each * power));
  }
  const inside = ticks.filter((tick) => tick >= low && tick <= high);
  return inside.length ? inside : [low, high];
}

// Leaves out ticks whose numbers would run into the ones before.
export function apart(ticks, scale, least) {
  const kept = [];
  for (const tick of ticks) {
    if (!kept.length || Math.abs(scale(tick) - scale(kept.at(-1))) >= least) kept.push(tick);
  }
  return kept;
}
