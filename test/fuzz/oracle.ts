/**
 * Checks what must hold for every input: prototypes do not change, no input blocks the thread for a second, and memory is
 * bounded.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Violation } from './target.ts';

const MAX_CPU_MS = 1000;
const MAX_HEAP_BYTES = 600_000_000;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const PROTOTYPES: readonly object[] = [
  Object.prototype,
  Array.prototype,
  String.prototype,
  Number.prototype,
  Function.prototype,
  Map.prototype,
  Error.prototype,
  Object,
];
const before = PROTOTYPES.map((prototype) => Reflect.ownKeys(prototype).length);

/** Returns the CPU time of this thread, so that other processes do not matter. */
const cpuMs = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
};

/** Runs one input and returns its outcome. Throws the errors of the target, and `Violation`. */
export async function judged(run: () => string | Promise<string>): Promise<string> {
  const start = cpuMs();
  const pending = run();
  const outcome = typeof pending === 'string' ? pending : await pending;
  const spent = cpuMs() - start;
  if (spent > MAX_CPU_MS) throw new Violation(`one input took ${Math.round(spent)} ms`);
  PROTOTYPES.forEach((prototype, index) => {
    if (Reflect.ownKeys(prototype).length !== before[index]) throw new Violation('a prototype is polluted');
  });
  return outcome;
}

/** Throws a `Violation` if the memory is above the limit, also after a garbage collection. */
export function checkMemory(): void {
  if (process.memoryUsage().heapUsed > MAX_HEAP_BYTES) collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  if (heapUsed + external > MAX_HEAP_BYTES)
    throw new Violation(`memory has grown: heap ${heapUsed}, buffers ${external}`);
}
