// Ticks of a time axis at round local times, for the heatmap and the history below it.

import { date, time } from "./units.js";

const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400, 172800];
const ROOM = 90;

// Ticks between two times in milliseconds, over `width` pixels, as [time, text].
export function ticks(from, to, width) {
  const wanted = Math.max(2, width / ROOM);
  const step = (STEPS_S.find((seconds) => (to - from) / 1000 / seconds <= wanted) ?? 604800) * 1000;
  const offset = new Date(from).getTimezoneOffset() * 60000;
  const all = [];
  for (let at = Math.ceil((from - offset) / step) * step + offset; at <= to; at += step)
    all.push([at, text(at, step)]);
  return all;
}

// A clock time; at midnight, and for steps of days, the date.
function text(ms, step) {
  const clock = time(ms).split(" ").at(-1),
    day = date(ms).slice(5);
  if (step >= 86400000 || (clock === "00:00:00" && step >= 60000)) return day;
  return step >= 60000 ? clock.slice(0, 5) : clock;
}
