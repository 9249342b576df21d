/**
 * Makes scripts with compiled forms of a bundle of modules, so that a start compiles little. The program as it is installed and
 * the executable have scripts. The npm package has modules, because its users have other versions of Node.js.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build, transform } from 'esbuild';

/** What `script-loader.ts` passes to a script. */
const PARAMETERS = 'module,exports,require,__filename,__dirname,__url';

/** Turns the modules in the folder into scripts. `entries` are the names of those that Node.js runs, without `.js`. */
export async function makeScripts(
  folder: string,
  { entries, node }: { readonly entries: readonly string[]; readonly node: string },
): Promise<void> {
  const modules = readdirSync(folder).filter((name) => name.endsWith('.js'));
  mkdirSync(join(folder, 'scripts'));
  for (const name of modules) {
    writeFileSync(join(folder, 'scripts', name), await scriptOf(readFileSync(join(folder, name), 'utf8'), node));
    rmSync(join(folder, name));
  }
  await build({
    entryPoints: { loader: join(import.meta.dirname, 'script-loader.ts') },
    outdir: folder,
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: node,
    logLevel: 'warning',
  });
  for (const name of entries) writeFileSync(join(folder, `${name}.js`), `require('./loader.js').load('${name}.js');\n`);
  writeFileSync(join(folder, 'package.json'), '{"type":"commonjs"}\n');
}

/**
 * Writes the compiled forms of the scripts in the folder for the Node.js of this process. A control plane runs for it for some
 * seconds.
 */
export function compileScripts(folder: string): void {
  const program = join(import.meta.dirname, 'compile-scripts.ts');
  execFileSync(process.execPath, ['--disable-warning=ExperimentalWarning', program, folder], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

/** Returns the code of a module as a function. */
async function scriptOf(module: string, node: string): Promise<string> {
  const { code } = await transform(module, {
    format: 'cjs',
    platform: 'node',
    target: node,
    minifySyntax: true,
    minifyWhitespace: true,
    // Other scripts are loaded by the loader.
    supported: { 'dynamic-import': false },
    define: { 'import.meta.url': '__url', 'import.meta.dirname': '__dirname' },
    logLevel: 'warning',
  });
  return `(function(${PARAMETERS}){${code}})`;
}
