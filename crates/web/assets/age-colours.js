// Colours of idle ages and of heat. The colours of ages are in app.css (`--age-0` to `--age-5`), so that they
// follow the theme.

// Idle ages are shown in six groups: the 15 ranges of the agent are too many to tell apart by colour.
export const GROUPS = [
  { from: 0, name: "< 10 s" },
  { from: 10, name: "10 s – 1 min" },
  { from: 60, name: "1 – 10 min" },
  { from: 600, name: "10 min – 1 h" },
  { from: 3600, name: "1 – 6 h" },
  { from: 21600, name: "≥ 6 h" },
];

// Idle memory is memory that was not accessed for a minute: the rest is the working set.
export const IDLE_S = 60;

function groupOf(minSeconds) {
  return GROUPS.findLastIndex((group) => group.from <= minSeconds);
}

// Bytes in each group.
export function grouped(ages) {
  const sums = GROUPS.map(() => 0);
  for (const row of ages) sums[groupOf(row.min_s)] += row.bytes;
  return sums;
}

export function idleBytes(ages, from = IDLE_S) {
  return ages.filter((row) => row.min_s >= from).reduce((sum, row) => sum + row.bytes, 0);
}

const colours = new Map();
document.addEventListener("themechange", () => colours.clear());

// The colour of a variable of app.css, as a canvas understands it.
export function cssColour(name) {
  if (!colours.has(name)) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    colours.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(name);
}

// As in `thermo report heatmap`: evenly spaced square roots of the access rate.
const RAMP = [
  [11, 29, 58],
  [24, 78, 119],
  [42, 157, 143],
  [233, 196, 80],
  [244, 140, 60],
  [214, 40, 40],
];
const UNKNOWN = [128, 134, 142];

function mix(share) {
  const at = Math.sqrt(share) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  return RAMP[low].map((from, channel) => Math.round(from + (RAMP[low + 1][channel] - from) * (at - low)));
}

// A pixel of a canvas, as a number in the byte order of this machine.
const pixel = ([red, green, blue]) => new Uint32Array(new Uint8Array([red, green, blue, 255]).buffer)[0];
const HEAT = Array.from({ length: 101 }, (_, heat) => pixel(mix(heat / 100)));
const UNKNOWN_PIXEL = pixel(UNKNOWN);

// The pixel of a heat from 0 to 100, or of -1: not known.
export const heatPixel = (heat) => HEAT[heat] ?? UNKNOWN_PIXEL;
