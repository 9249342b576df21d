/**
 * `scripts/build-binary [DIR]`: one executable file with the runtime, the program and SQLite inside, at DIR/orchlet.
 *
 * esbuild bundles the program and the storage worker; the bundle, its data files and the SQLite addon are packed into one
 * asset. At its first start the executable unpacks them into a directory named by their hash, and runs from there.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { build, type Plugin } from 'esbuild';
import { UNUSED, unused } from '../agent/runtime/docker/dockerode-parts.ts';

const ROOT = join(import.meta.dirname, '..');
const output = resolve(process.argv[2] ?? join(ROOT, 'dist'));
const program = join(output, 'program');

/** Loaded as packages of their own: native code, or large and seldom used. */
const EXTERNAL = ['better-sqlite3', '@kubernetes/client-node'];

/** As a checkout's dockerode: without what nobody asks of it. */
const withoutUnusedParts: Plugin = {
  name: 'without-unused-parts',
  setup: ({ onLoad }) =>
    onLoad({ filter: new RegExp(`/(${UNUSED.map((file) => file.replaceAll('.', '\\.')).join('|')})$`) }, () => ({
      contents: `module.exports = ${unused.toString()}`,
      loader: 'js',
    })),
};

async function bundle(): Promise<void> {
  rmSync(program, { recursive: true, force: true });
  mkdirSync(program, { recursive: true });
  await build({
    entryPoints: { main: join(ROOT, 'cli/main.ts'), worker: join(ROOT, 'controlplane/storage/sqlite/worker.ts') },
    outdir: program,
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node26',
    minifySyntax: true,
    minifyWhitespace: true,
    keepNames: true,
    external: EXTERNAL,
    plugins: [withoutUnusedParts],
    // CommonJS packages inside of the bundle ask for built-in modules by require.
    banner: {
      js: "import { createRequire as __createRequire } from 'node:module';import { fileURLToPath as __path } from 'node:url';import { dirname as __dirnameOf } from 'node:path';const require = __createRequire(import.meta.url);const __filename = __path(import.meta.url);const __dirname = __dirnameOf(__filename);",
    },
    logLevel: 'warning',
  });
  for (const name of ['table.json', 'resources.json']) cpSync(join(ROOT, 'api/schema', name), join(program, name));
  writeFileSync(join(program, 'package.json'), '{"type":"module"}\n');
  const addon = join(program, 'node_modules/better-sqlite3');
  const source = join(ROOT, 'node_modules/better-sqlite3');
  mkdirSync(join(addon, 'prebuilds'), { recursive: true });
  cpSync(join(source, 'package.json'), join(addon, 'package.json'));
  cpSync(join(source, 'lib'), join(addon, 'lib'), { recursive: true });
  copyDescriptions();
  const binary = `linux-${process.arch}.node`;
  cpSync(join(source, 'prebuilds', binary), join(addon, 'prebuilds', binary));
}

/** The texts of the API's types stand in the client package's declarations: nothing else of it is needed. */
function copyDescriptions(): void {
  const name = '@kubernetes/client-node';
  const entry = createRequire(import.meta.url).resolve(name);
  const source = dirname(entry);
  const target = join(program, 'node_modules', name, 'dist');
  mkdirSync(join(target, 'gen/models'), { recursive: true });
  writeFileSync(join(target, '..', 'package.json'), JSON.stringify({ name, main: 'dist/index.js' }));
  writeFileSync(join(target, 'index.js'), '');
  const models = join(source, 'gen/models');
  for (const file of readdirSync(models).filter((candidate) => candidate.endsWith('.d.ts'))) {
    cpSync(join(models, file), join(target, 'gen/models', file));
  }
}

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

/** A line of JSON with names and sizes, then the contents; compressed. */
function pack(): { readonly archive: Buffer; readonly hash: string } {
  const files = filesBelow(program).sort();
  const index = files.map((file) => ({ name: relative(program, file), size: statSync(file).size }));
  const plain = Buffer.concat([Buffer.from(`${JSON.stringify(index)}\n`), ...files.map((file) => readFileSync(file))]);
  return { archive: zstdCompressSync(plain), hash: createHash('sha256').update(plain).digest('hex').slice(0, 16) };
}

/** The program of the executable: unpacks what is not there yet, and hands over. */
function loader(hash: string): string {
  return `'use strict';
const { getRawAsset } = require('node:sea');
const { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } = require('node:fs');
const { dirname, join } = require('node:path');
const { zstdDecompressSync } = require('node:zlib');
const { createRequire, enableCompileCache } = require('node:module');
// As bin/orchlet: the node agent's code must be far hotter before it is compiled for speed.
if (process.argv[2] === 'agent') for (const tier of ['turbofan', 'maglev', 'osr', 'maglev-osr']) require('node:v8').setFlagsFromString('--invocation-count-for-' + tier + '=1000000');
const base = process.env.ORCHLET_UNPACK_DIR || (process.getuid && process.getuid() === 0 ? '/var/lib/orchlet/program' : join(process.env.XDG_CACHE_HOME || join(process.env.HOME || '/tmp', '.cache'), 'orchlet'));
const directory = join(base, '${hash}');
if (!existsSync(join(directory, 'main.js'))) {
  const plain = zstdDecompressSync(Buffer.from(getRawAsset('program')));
  const end = plain.indexOf(10);
  const fresh = directory + '.' + process.pid;
  let at = end + 1;
  for (const { name, size } of JSON.parse(plain.toString('utf8', 0, end))) {
    const file = join(fresh, name);
    mkdirSync(dirname(file), { recursive: true, mode: 0o755 });
    writeFileSync(file, plain.subarray(at, at + size));
    at += size;
  }
  // Another process may have been faster: its copy is the same.
  try { renameSync(fresh, directory); } catch (error) { rmSync(fresh, { recursive: true, force: true }); if (!existsSync(join(directory, 'main.js'))) throw error; }
}
enableCompileCache(join(directory, '.compiled'));
createRequire(join(directory, 'main.js'))('./main.js');
`;
}

function makeExecutable(): string {
  const { archive, hash } = pack();
  writeFileSync(join(output, 'program.bin'), archive);
  writeFileSync(join(output, 'loader.cjs'), loader(hash));
  const executable = join(output, 'orchlet');
  const config = {
    main: join(output, 'loader.cjs'),
    output: executable,
    disableExperimentalSEAWarning: true,
    useCodeCache: false,
    // As bin/orchlet: a small young heap is worth its few more collections.
    execArgv: ['--expose-gc', '--max-semi-space-size=4', '--v8-pool-size=2', '--disable-warning=ExperimentalWarning'],
    assets: { program: join(output, 'program.bin') },
  };
  writeFileSync(join(output, 'sea.json'), JSON.stringify(config));
  rmSync(executable, { force: true });
  const made = spawnSync(process.execPath, [`--build-sea=${join(output, 'sea.json')}`], { encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`node --build-sea failed: ${made.stderr}${made.stdout}`);
  return executable;
}

await bundle();
const executable = makeExecutable();
console.log(`${executable} (${(statSync(executable).size / 2 ** 20).toFixed(0)} MiB)`);
