// Node.js: timers, promises, a worker thread with shared memory, a child process, an HTTP server with a kept connection.
const fs = require('fs'), http = require('http'), { Worker } = require('worker_threads'), { spawn } = require('child_process');
const nonce = require('crypto').randomBytes(8).toString('hex');
const errors = [];
const expect = (what, value, wanted) => { if (value !== wanted && errors.length < 5) errors.push(`${what}: ${value}, not ${wanted}`); };
const shared = new BigInt64Array(new SharedArrayBuffer(16));
const worker = new Worker(`
  const { parentPort, workerData } = require('worker_threads');
  setInterval(() => { Atomics.add(workerData, 0, 1n); parentPort.postMessage(String(Atomics.load(workerData, 0))); }, 20);`, { eval: true, workerData: shared });
let messages = 0, ticks = 0, requests = 0, promises = 0, lines = 0, connections = 0;
worker.on('message', () => { messages++; });
worker.on('error', (e) => errors.push(String(e)));
setInterval(() => { ticks++; }, 20);
(async () => { for (;;) { await new Promise((done) => setTimeout(done, 15)); promises++; } })();
const cat = spawn('cat');
cat.stdout.on('data', (data) => { lines += String(data).split('\n').length - 1; });
const table = new Map(Array.from({ length: 100000 }, (_, i) => [i, `row ${i}`]));
const server = http.createServer((_, answer) => answer.end(String(++requests)));
server.on('connection', () => { connections++; });
const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
server.keepAliveTimeout = 3600e3;
server.listen(8090, '127.0.0.1', () => setInterval(() => {
  const before = requests;
  http.get({ port: 8090, host: '127.0.0.1', agent }, (answer) => {
    let body = '';
    answer.on('data', (data) => { body += data; }).on('end', () => expect('answer', Number(body) > before, true));
  }).on('error', (e) => errors.push(String(e)));
}, 50));
setInterval(() => {
  cat.stdin.write('line\n');
  const i = ticks * 31 % 100000;
  expect('row', table.get(i), `row ${i}`);
  fs.writeFileSync('/run/.now', JSON.stringify({
    same: { nonce, rows: table.size, connections }, errors,
    grows: { worker: Number(Atomics.load(shared, 0)), messages, ticks, requests, promises, 'lines through a child': lines },
  }));
  fs.renameSync('/run/.now', '/run/now');
}, 50);
