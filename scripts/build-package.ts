/**
 * `build-package.ts DIR`: builds what the npm package holds, the bundle, the declarations of its entry and its package.json, in
 * DIR.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { bundleProgram } from './program-bundle.ts';

const ROOT = join(import.meta.dirname, '..');
const [target] = process.argv.slice(2);
const ENTRY = 'controlplane/main';
/** The platforms of the npm package, which is for tests of controllers. Everything else runs on Linux only. */
const ADDONS = ['linux-x64', 'linux-arm64', 'linuxmusl-x64', 'linuxmusl-arm64', 'darwin-x64', 'darwin-arm64'];

/** Writes the package.json of a checkout without its tools and without dependencies, which are in the bundle. */
function writeManifest(file: string): void {
  const {
    private: _checkout,
    scripts: _scripts,
    dependencies: _bundled,
    devDependencies: _tools,
    optionalDependencies: _runtimes,
    ...manifest
  } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as Readonly<Record<string, unknown>>;
  const exports = { '.': { types: `./dist/types/${ENTRY}.d.ts`, default: './dist/program/library.js' } };
  writeFileSync(file, `${JSON.stringify({ ...manifest, exports }, null, 2)}\n`);
}

/** Keeps the declarations that those of the entry refer to, about ten of a thousand. */
function writeTypes(folder: string): void {
  const all = mkdtempSync(join(tmpdir(), 'orchlet-types-'));
  try {
    const compiler = join(ROOT, 'node_modules/typescript/bin/tsc');
    execFileSync(process.execPath, [compiler, '-p', 'tsconfig.package.json', '--outDir', all], { cwd: ROOT });
    for (const file of reachable(all, `${ENTRY}.d.ts`)) {
      mkdirSync(dirname(join(folder, file)), { recursive: true });
      cpSync(join(all, file), join(folder, file));
    }
  } finally {
    rmSync(all, { recursive: true, force: true });
  }
}

function reachable(folder: string, entry: string): ReadonlySet<string> {
  const found = new Set([entry]);
  for (const file of found) {
    const text = readFileSync(join(folder, file), 'utf8');
    for (const [, specifier = ''] of text.matchAll(/(?:\bfrom|\bimport)\s*\(?\s*['"]([^'"]+)['"]/g)) {
      // The user would have to install a package that is named here.
      if (!specifier.startsWith('.')) throw new Error(`${file} needs the types of ${specifier}`);
      found.add(join(dirname(file), specifier.replace(/\.[jt]s$/, '.d.ts')));
    }
  }
  return found;
}

if (target === undefined) throw new Error('usage: build-package.ts DIR');
await bundleProgram(join(target, 'dist/program'), {
  entries: { main: 'cli/main.ts', library: `${ENTRY}.ts` },
  addons: ADDONS,
  node: 'node24',
});
writeTypes(join(target, 'dist/types'));
writeManifest(join(target, 'package.json'));
