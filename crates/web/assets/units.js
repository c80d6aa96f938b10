// Numbers as text, in the same form as the commands print them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

// Three significant digits.
function threeDigits(value) {
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

// `977 MiB`, `1.46 GiB`. A negative amount has a minus sign.
export function bytes(amount) {
  if (amount === null || amount === undefined) return "–";
  if (amount < 0) return "−" + bytes(-amount);
  let value = amount,
    unit = 0;
  while (value >= 999.5 && unit + 1 < UNITS.length) {
    value /= 1024;
    unit += 1;
  }
  return unit === 0 ? `${Math.round(amount)} B` : `${threeDigits(value)} ${UNITS[unit]}`;
}

// A share as percent: `0 %`, `0.25 %`, `12.5 %`, `100 %`.
export function percent(share) {
  const value = share * 100;
  const decimals = value === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(decimals)} %`;
}

// An idle age: `1 s`, `5 min`, `2 h`, `1 d`.
export function age(seconds) {
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ]) {
    if (seconds > 0 && seconds % length === 0) return `${seconds / length} ${unit}`;
  }
  return `${seconds} s`;
}

// A range of idle ages: `30 s to 1 min`, `1 d or longer`.
export function ageRange({ min_s, max_s }) {
  return max_s === null ? `${age(min_s)} or longer` : `${age(min_s)} to ${age(max_s)}`;
}

// A length of time with its two largest units: `3 d 4 h`, `2 min 5 s`, `0.4 s`.
export function duration(seconds) {
  if (seconds < 60) return `${threeDigits(seconds).replace(/\.?0+$/, "")} s`;
  const parts = [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
    ["s", 1],
  ];
  let rest = Math.round(seconds);
  const text = [];
  for (const [unit, length] of parts) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count > 0) text.push(`${count} ${unit}`);
    else if (text.length > 0) break;
    if (text.length === 2) break;
  }
  return text.join(" ");
}

export function number(value, digits = 2) {
  return value === 0 ? "0" : value.toFixed(digits);
}

export function gibHours(value) {
  if (value < 0) return "−" + gibHours(-value);
  return `${value === 0 ? "0" : threeDigits(value)} GiB·h`;
}

const two = (n) => String(n).padStart(2, "0");

// `14:03:07` today, else `2026-11-25 14:03:07`, in local time.
export function time(ms) {
  const at = new Date(ms);
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  return at.toDateString() === new Date().toDateString() ? clock : `${date(ms)} ${clock}`;
}

export function date(ms) {
  const at = new Date(ms);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

// For a field of type `datetime-local`.
export function localTime(ms) {
  const at = new Date(ms);
  return `${date(ms)}T${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}
