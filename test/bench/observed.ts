/**
 * Loaded into the server under measurement (`node --import`): on SIGUSR2 it writes, to the file that ORCHLET_BENCH_FACTS
 * names, the event-loop delay since the last time and the memory in use after a garbage collection.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

export interface Facts {
  readonly loopDelayP99Ms: number;
  readonly loopDelayMaxMs: number;
  /** Time in which the event loop did not wait, of the main thread, since the last time. */
  readonly busyMs: number;
  /** Processor time of the main thread since the last time: what others on the machine do is not in it. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly usedBytes: number;
}

const file = process.env['ORCHLET_BENCH_FACTS'];
if (isMainThread && file !== undefined) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let usedSince = process.threadCpuUsage();
  let since = performance.eventLoopUtilization();
  process.on('SIGUSR2', () => {
    // The histogram counts the timer's own millisecond.
    const [p99, max] = [delay.percentile(99), delay.max].map((nanoseconds) => Math.max(0, nanoseconds / 1e6 - 1));
    const { active: busyMs } = performance.eventLoopUtilization(since);
    const { user, system } = process.threadCpuUsage(usedSince);
    const cpuMs = (user + system) / 1000;
    collect();
    const { rss, heapUsed, external } = process.memoryUsage();
    const facts: Facts = {
      loopDelayP99Ms: p99 ?? 0,
      loopDelayMaxMs: max ?? 0,
      busyMs,
      cpuMs,
      rssBytes: rss,
      usedBytes: heapUsed + external,
    };
    writeFileSync(`${file}.new`, JSON.stringify(facts));
    renameSync(`${file}.new`, file);
    delay.reset();
    usedSince = process.threadCpuUsage();
    since = performance.eventLoopUtilization();
  });
}
