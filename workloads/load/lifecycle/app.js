// A JavaScript program with many small objects. Reads a part of the objects for each line of input.
const items = [];
for (let n = 0; n < 350000; n++) items.push({ name: `item ${n}`, tags: [`tag ${n % 97}`, `t${n}`] });
console.log('ready');
require('readline').createInterface({ input: process.stdin }).on('line', () => {
  let sum = 0;
  for (let n = 0; n < 60000; n++) sum += items[n].name.length + items[n].tags[1].length;
  console.log('done', sum);
});
