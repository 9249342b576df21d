/**
 * Lets V8 optimize the code of a control plane after fewer calls once it has started. The start itself runs most code once, for
 * which optimizing would cost more than it saves.
 */
import { flushCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

/**
 * Sets the number of calls after which V8 optimizes a function. It is called when all modules of the start are loaded, and
 * before requests have made functions hot, because V8 keeps the former number for functions whose calls it counts already. The
 * compile cache is written before, because V8 accepts compiled modules only under the flags under which they were written, and
 * the next start loads them under the default flags.
 */
export function optimizeRequests(): void {
  flushCompileCache();
  setFlagsFromString('--invocation-count-for-turbofan=300');
}
