/**
 * Lets V8 optimize the code of a control plane after fewer calls once it has started. The start itself runs most code once, for
 * which optimizing would cost more than it saves.
 */
import { flushCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';
import type { Clock } from '../../api/machinery/clock.ts';

/** The time after the start in which the controllers and the scheduler are loaded. */
const LOADED_AFTER_MS = 2_000;

/**
 * Sets the number of calls after which V8 optimizes a function, some time after the start. The compile cache is written before,
 * because V8 accepts compiled modules only under the flags under which they were written, and the next start loads them
 * under the default flags.
 */
export function optimizeRequests(clock: Clock): void {
  clock.after(LOADED_AFTER_MS, () => {
    flushCompileCache();
    setFlagsFromString('--invocation-count-for-turbofan=1000');
  });
}
