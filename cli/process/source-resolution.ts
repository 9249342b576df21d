/**
 * Resolves the imports between the sources of a checkout. For each module, Node.js looks for the file, and for a `package.json`
 * in every folder above it, which says how to read it. Here, an import names the file itself, with its extension, and every
 * `.ts` file is an ES module.
 */
import { registerHooks } from 'node:module';

/** Does nothing in the bundled program, which has no such imports. A file that does not exist fails when it is read. */
export function resolveSourcesDirectly(): void {
  if (!import.meta.url.endsWith('.ts')) return;
  registerHooks({
    resolve(specifier, context, next) {
      const { parentURL } = context;
      if (parentURL === undefined || !specifier.startsWith('.') || !specifier.endsWith('.ts'))
        return next(specifier, context);
      return { url: new URL(specifier, parentURL).href, format: 'module-typescript', shortCircuit: true };
    },
  });
}
