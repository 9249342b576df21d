/**
 * The benchmark loads this file into the measured server (`node --import`). On SIGUSR2 it writes the event-loop delay since the
 * last signal and the memory after a garbage collection to the file that ORCHLET_BENCH_FACTS names.
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
   * The longest and the 99th percentile of the processor time of the main thread between two runs of a timer. This is the delay
   * of a request, without the influence of other processes.
   */
  readonly longestTurnCpuMs: number;
  readonly turnCpuP99Ms: number;
  /** The time since the last signal in which the main thread's event loop was not idle. */
  readonly busyMs: number;
  /** The processor time of the main thread since the last signal. */
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
    // The histogram includes the timer's own millisecond.
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
