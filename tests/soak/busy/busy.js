// Workers that compress data, and timers, until standard input ends. Then prints whether an error occurred.
const { Worker, isMainThread, parentPort } = require('node:worker_threads');
const crypto = require('node:crypto');
const zlib = require('node:zlib');

function once() {
  const text = crypto.randomBytes(1 << 16);
  return zlib.inflateSync(zlib.deflateSync(text)).equals(text);
}

if (!isMainThread) {
  const work = () => {
    if (!once()) throw new Error('inflate returned other data');
    parentPort.postMessage(1);
    setImmediate(work);
  };
  work();
} else {
  let [rounds, ticks, wrong] = [0, 0, 0];
  for (let n = 0; n < 3; n++) {
    new Worker(__filename).on('message', () => rounds++).on('error', () => wrong++);
  }
  setInterval(() => {
    ticks++;
    zlib.deflate(Buffer.alloc(1000), (error) => { if (error) wrong++; });
  }, 5);
  process.stdin.on('data', () => {}).on('end', () => {
    console.log(rounds > 0 && ticks > 0 && wrong === 0 ? 'TEST PASSED' : 'TEST FAILED');
    process.exit(0);
  });
  console.log('ready');
}
