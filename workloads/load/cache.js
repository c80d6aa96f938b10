// A cache of records in a node program: fills it, prints "ready", then reads it in a pattern and replaces a
// few records. The hot tenth moves several times in a run. The garbage collector reads everything at times.
//
// usage: node cache.js RECORDS BATCHES SEED
"use strict";

const [records, batches, seed] = process.argv.slice(2).map(Number);
const READS = 2000; // reads per batch; the time of a batch is a request latency
const STEPS = 3;

// xorshift: Math.random() cannot be seeded.
let state = seed * 2654435761 + 1 | 0 || 1;
function chance() {
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return (state >>> 0) / 4294967296;
}

const letters = "abcdefghijklmnopqrstuvwxyz";
const words = Array.from({ length: 1000 }, () =>
  Array.from({ length: 5 + Math.floor(chance() * 8) }, () => letters[Math.floor(chance() * 26)]).join(""));

function record(number) {
  let text = "";
  while (text.length < 400) text += words[Math.floor(1000 ** chance())] + " ";
  // The Buffer converts the string to one flat piece of memory.
  return { number, kind: "record", text: Buffer.from(text, "latin1").toString("latin1") };
}

const cache = new Map();
for (let number = 0; number < records; number++) cache.set(number, record(number));
console.log("ready");

const width = Math.floor(records / 10);
const perStep = Math.ceil(batches / STEPS);
const times = [];
let wrong = 0;
let sum = 0;
for (let batch = 0; batch < batches; batch++) {
  const begin = process.hrtime.bigint();
  const hot = Math.floor(batch / perStep) * width;
  for (let read = 0; read < READS; read++) {
    const anywhere = chance() < 0.00005;
    const number = anywhere ? Math.floor(chance() * records) : hot + Math.floor(width * chance() ** 2);
    const found = cache.get(number);
    if (found.number !== number) wrong++;
    for (let at = 0; at < found.text.length; at += 16) sum += found.text.charCodeAt(at);
    if (read === 0) cache.set(number, record(number));
  }
  times.push(Number(process.hrtime.bigint() - begin) / 1e6);
}
times.sort((a, b) => a - b);
const at = (share) => times[Math.min(times.length - 1, Math.floor(share * times.length))].toFixed(4);
if (wrong === 0 && sum > 0) console.log(`TEST PASSED p50_ms=${at(0.5)} p99_ms=${at(0.99)} p999_ms=${at(0.999)}`);
