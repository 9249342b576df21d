/**
 * Loaded into the server under measurement (`node --import`): on SIGUSR2 it writes, to the file that ORCHLET_BENCH_FACTS
 * names, the event-loop delay since the last time and the memory in use after a garbage collection.
 */
import { renameSync, writeFileSync } from 'node:fs';
import { createHistogram, monitorEventLoopDelay, performance } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { isMainThread } from 'node:worker_threads';

export interface Facts {
  readonly loopDelayP99Ms: number;
  readonly loopDelayMaxMs: number;
  /**
   * Longest and 99th percentile of the processor time that the main thread took between two turns of a timer: what a request
   * has to wait for, without what other processes on the machine do.
   */
  readonly longestTurnCpuMs: number;
  readonly turnCpuP99Ms: number;
  /** Time in which the event loop did not wait, of the main thread, since the last time. */
  readonly busyMs: number;
  /** Processor time of the main thread since the last time: what others on the machine do is not in it. */
  readonly cpuMs: number;
  readonly rssBytes: number;
  readonly usedBytes: number;
}

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

class TurnCpu {
  #turns = createHistogram();
  #last = usedMs();

  constructor() {
    setInterval(() => this.#turn(), 1).unref();
  }

  take(): { readonly longestMs: number; readonly p99Ms: number } {
    this.#turn();
    const turns = this.#turns;
    this.#turns = createHistogram();
    return { longestMs: turns.max / 1000, p99Ms: turns.percentile(99) / 1000 };
  }

  #turn(): void {
    const now = usedMs();
    this.#turns.record(Math.max(1, Math.round((now - this.#last) * 1000)));
    this.#last = now;
  }
}

const file = process.env['ORCHLET_BENCH_FACTS'];
if (isMainThread && file !== undefined) {
  const delay = monitorEventLoopDelay({ resolution: 1 });
  delay.enable();
  const turns = new TurnCpu();
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  let usedSince = process.threadCpuUsage();
  let since = performance.eventLoopUtilization();
  process.on('SIGUSR2', () => {
    // The histogram counts the timer's own millisecond.
    const [p99, max] = [delay.percentile(99), delay.max].map((nanoseconds) => Math.max(0, nanoseconds / 1e6 - 1));
    const { active: busyMs } = performance.eventLoopUtilization(since);
    const { longestMs: longestTurnCpuMs, p99Ms: turnCpuP99Ms } = turns.take();
    const { user, system } = process.threadCpuUsage(usedSince);
    const cpuMs = (user + system) / 1000;
    collect();
    const { rss, heapUsed, external } = process.memoryUsage();
    const facts: Facts = {
      loopDelayP99Ms: p99 ?? 0,
      loopDelayMaxMs: max ?? 0,
      longestTurnCpuMs,
      turnCpuP99Ms,
      busyMs,
      cpuMs,
      rssBytes: rss,
      usedBytes: heapUsed + external,
    };
    writeFileSync(`${file}.new`, JSON.stringify(facts));
    renameSync(`${file}.new`, file);
    delay.reset();
    turns.take();
    usedSince = process.threadCpuUsage();
    since = performance.eventLoopUtilization();
  });
}
