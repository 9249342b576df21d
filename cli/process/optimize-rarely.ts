/** Keeps optimized code, which takes memory, out of a process that is idle most of the time. */
import { setFlagsFromString } from 'node:v8';

/**
 * Makes V8 optimize a function only after a million calls. It is called when the modules are loaded: with these flags on the
 * command line, V8 would reject the compiled forms of the modules of Node.js and of this program, which were made without them.
 */
export function optimizeRarely(): void {
  for (const tier of ['turbofan', 'maglev', 'osr', 'maglev-osr'])
    setFlagsFromString(`--invocation-count-for-${tier}=1000000`);
}
