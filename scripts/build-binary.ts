/**
 * `scripts/build-binary [DIR]`: one executable file with the runtime, the program and SQLite inside, at DIR/orchlet.
 *
 * The bundle of `program-bundle.ts` is packed into one asset of a Node.js without its symbols. At its first start the
 * executable unpacks the asset into a directory named by its hash, and runs from there.
 */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative, resolve } from 'node:path';
import { constants, zstdCompressSync } from 'node:zlib';
import { withoutSymbols } from './elf-symbols.ts';
import { bundleProgram } from './program-bundle.ts';

const ROOT = join(import.meta.dirname, '..');
const output = resolve(process.argv[2] ?? join(ROOT, 'dist'));

function filesBelow(directory: string): string[] {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

/** Returns the compressed asset: a line of JSON with names and sizes, then the contents. */
function pack(program: string): { readonly archive: Buffer; readonly hash: string } {
  const files = filesBelow(program).sort();
  const index = files.map((file) => ({ name: relative(program, file), size: statSync(file).size }));
  const plain = Buffer.concat([Buffer.from(`${JSON.stringify(index)}\n`), ...files.map((file) => readFileSync(file))]);
  const archive = zstdCompressSync(plain, { params: { [constants.ZSTD_c_compressionLevel]: 19 } });
  return { archive, hash: createHash('sha256').update(plain).digest('hex').slice(0, 16) };
}

/** Returns the program of the executable: unpacks the bundle unless it is there, and runs it. */
function loader(hash: string): string {
  return `'use strict';
const { getRawAsset } = require('node:sea');
const { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } = require('node:fs');
const { dirname, join } = require('node:path');
const { zstdDecompressSync } = require('node:zlib');
const { createRequire, enableCompileCache } = require('node:module');
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
  // Another process may have written the directory first; its copy is the same.
  try { renameSync(fresh, directory); } catch (error) { rmSync(fresh, { recursive: true, force: true }); if (!existsSync(join(directory, 'main.js'))) throw error; }
}
enableCompileCache(join(directory, '.compiled'));
createRequire(join(directory, 'main.js'))('./main.js');
`;
}

function makeExecutable(work: string): string {
  const { archive, hash } = pack(join(work, 'program'));
  writeFileSync(join(work, 'program.bin'), archive);
  writeFileSync(join(work, 'loader.cjs'), loader(hash));
  writeFileSync(join(work, 'node'), withoutSymbols(readFileSync(process.execPath)), { mode: 0o755 });
  const executable = join(output, 'orchlet');
  const config = {
    main: join(work, 'loader.cjs'),
    executable: join(work, 'node'),
    output: executable,
    disableExperimentalSEAWarning: true,
    useCodeCache: false,
    // The same as bin/orchlet does for a control plane.
    execArgv: ['--max-semi-space-size=16', '--v8-pool-size=2', '--disable-warning=ExperimentalWarning'],
    assets: { program: join(work, 'program.bin') },
  };
  writeFileSync(join(work, 'sea.json'), JSON.stringify(config));
  rmSync(executable, { force: true });
  mkdirSync(output, { recursive: true });
  const made = spawnSync(process.execPath, [`--build-sea=${join(work, 'sea.json')}`], { encoding: 'utf8' });
  if (made.status !== 0) throw new Error(`node --build-sea failed: ${made.stderr}${made.stdout}`);
  return executable;
}

const work = mkdtempSync(join(tmpdir(), 'orchlet-executable-'));
try {
  await bundleProgram(join(work, 'program'), {
    entries: { main: 'cli/main.ts' },
    addons: [`linux-${process.arch}`],
    node: 'node26',
    compiled: true,
  });
  const executable = makeExecutable(work);
  console.log(`${executable} (${(statSync(executable).size / 2 ** 20).toFixed(0)} MiB)`);
} finally {
  rmSync(work, { recursive: true, force: true });
}
