/**
 * Opens many watches of one collection and counts the received events. The first watch reads the time in each object. The
 * process notifies its parent when all watches are open, and when all have received everything. `bench.ts` starts it.
 */
import { connect, type ClientHttp2Session } from 'node:http2';
import { TOKEN } from './server.ts';

const [origin = '', path = '', watcherCount = '0', eventCount = '0'] = process.argv.slice(2);
const wanted = Number(eventCount);
const PER_CONNECTION = 50;
const NEWLINE = 0x0a;

const delaysMs: number[] = [];
let begun = 0;
let complete = 0;
let bytes = 0;

const report = (message: object): void => void process.send?.(message);

function countLines(chunk: Buffer): number {
  let lines = 0;
  for (let at = chunk.indexOf(NEWLINE); at >= 0; at = chunk.indexOf(NEWLINE, at + 1)) lines += 1;
  return lines;
}

/** Records the times of the objects, which contain them as `sent-<milliseconds>`. */
function readTimes(chunk: Buffer): void {
  const now = Date.now();
  for (const match of chunk.toString('latin1').matchAll(/sent-(\d{13})/g)) delaysMs.push(now - Number(match[1]));
}

function watch(session: ClientHttp2Session, options: { readonly timed: boolean }): void {
  const stream = session.request({ ':path': path, authorization: `Bearer ${TOKEN}` });
  let seen = 0;
  stream.on('response', () => {
    begun += 1;
    if (begun === Number(watcherCount)) report({ type: 'begun' });
  });
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (options.timed) readTimes(chunk);
    const before = seen;
    seen += countLines(chunk);
    if (before < wanted && seen >= wanted) complete += 1;
    if (before < wanted && seen >= wanted && complete === Number(watcherCount)) finish();
  });
}

function finish(): void {
  delaysMs.sort((a, b) => a - b);
  report({ type: 'complete', bytes, delayP99Ms: delaysMs[Math.floor(delaysMs.length * 0.99)] ?? 0 });
}

for (let first = 0; first < Number(watcherCount); first += PER_CONNECTION) {
  const session = connect(origin, { rejectUnauthorized: false });
  for (let at = first; at < Math.min(first + PER_CONNECTION, Number(watcherCount)); at += 1)
    watch(session, { timed: at === 0 });
}
