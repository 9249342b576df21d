/**
 * Loads the scripts of a program that `program-scripts.ts` has made. It is bundled beside them, as `loader.js`.
 *
 * A script is the code of one file of the bundle as a function. Beside it stands its compiled form with the functions that a
 * start runs. The compile cache of Node.js lacks those that are compiled when they are called, so that each start would compile
 * thousands of them again. V8 accepts a compiled form only from its own version with its own flags. Otherwise the script is
 * compiled.
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Script } from 'node:vm';

/** The folder of the scripts, below that of the program. */
const FOLDER = 'scripts';

type Exports = Readonly<Record<string, unknown>>;

interface Module {
  exports: Exports;
}

/** A script, with the parameters of `PARAMETERS` in `program-scripts.ts`. */
type Run = (...parameters: readonly unknown[]) => void;

const fromHere = createRequire(__filename);

const modules = new Map<string, Module>();

/** The loaded scripts by the paths of their files. */
export const scripts = new Map<string, Script>();

/** Runs a script of the program, such as `main.js`, if it has not run yet. Returns its exports. */
export function load(name: string): Exports {
  const known = modules.get(name);
  if (known !== undefined) return known.exports;
  const path = join(__dirname, FOLDER, name);
  // The build leaves only ASCII in scripts, which Latin-1 reads without a conversion.
  const script = new Script(readFileSync(path, 'latin1'), { filename: path, cachedData: compiledForm(path) });
  scripts.set(path, script);
  const module: Module = { exports: {} };
  modules.set(name, module);
  // To a script, its file is that beside the loader, as in a bundle of modules.
  const file = join(__dirname, name);
  const run = script.runInThisContext() as Run;
  run(module, module.exports, requireForScript, file, __dirname, pathToFileURL(file).href);
  module.exports = values(module.exports);
  return module.exports;
}

/** Returns the path of the compiled form of a script. */
export const compiledPath = (path: string): string => `${path}.compiled`;

function compiledForm(path: string): Buffer | undefined {
  try {
    return readFileSync(compiledPath(path));
  } catch {
    // The script is compiled.
    return undefined;
  }
}

/** Loads another script, such as `./chunk-AB.js`, a built-in module, or the storage addon. */
function requireForScript(specifier: string): unknown {
  return /^\.\/[^/]+\.js$/.test(specifier) ? load(specifier.slice(2)) : (fromHere(specifier) as unknown);
}

/**
 * Returns the exports as plain members, because esbuild makes getters, which cost a call for each use. Later assignments of an
 * exported variable do not reach the copy; the sources have none.
 */
function values(exports: Exports): Exports {
  const plain = Object.fromEntries(Object.keys(exports).map((name) => [name, exports[name]]));
  // `import()` returns an object with this mark without a default export of its own.
  return Object.defineProperty(plain, '__esModule', { value: true });
}
