/**
 * Tests the npm package of scripts/build-package as a dependency of a user's tests, and the program that scripts/install
 * installs. Both contain only what runs.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, globSync, lstatSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { temporaryFolder } from '../temporary-folder.ts';
import { until } from '../until.ts';

const ROOT = join(import.meta.dirname, '../..');
const MEGABYTE = 1e6;
/** The user's Node.js is that of the tests. */
const ENVIRONMENT = { ...process.env, PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}` };

const IN_MEMORY = `
import { startControlPlane } from 'orchlet';
const plane = await startControlPlane({ memory: true });
console.log((await fetch(plane.url + '/readyz').catch((error) => error.cause.code)));
await plane.close();
`;

const ON_DISK = `
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { startControlPlane } from 'orchlet';
const plane = await startControlPlane({ flags: { dataDir: process.argv[2], securePort: 0, bindAddress: '127.0.0.1' } });
console.log(plane.url);
writeFileSync('kubeconfig', plane.kubeconfig);
// The descriptions are those of declarations that nothing imports.
const explained = await promisify(execFile)('kubectl', ['--kubeconfig', 'kubeconfig', 'explain', 'configmap.data']);
console.log(/data contains the configuration data/i.test(explained.stdout));
await plane.close();
`;

const TYPED = `
import { startControlPlane, type ControlPlane } from 'orchlet';
const plane: ControlPlane = await startControlPlane({ memory: true, flags: { securePort: 0 } });
const url: string = plane.url;
// @ts-expect-error a port is a number
await startControlPlane({ flags: { securePort: url } });
const names: string[] = (await plane.client.list({ group: '', version: 'v1', resource: 'nodes', kind: 'Node', namespaced: false })).items.map((node) => node.metadata.name ?? '');
export { names };
`;

/** Counts whole blocks, like du(1). */
function diskUsage(folder: string): number {
  const entries = readdirSync(folder, { recursive: true, encoding: 'utf8' });
  return entries.reduce((sum, entry) => sum + lstatSync(join(folder, entry)).blocks * 512, 0);
}

/** Returns the files that are loaded before an entry runs. */
function loadedFirst(folder: string, entry: string): ReadonlySet<string> {
  const found = new Set([entry]);
  for (const file of found) {
    const text = readFileSync(join(folder, file), 'utf8');
    for (const [, name = ''] of text.matchAll(/(?:^|[;}\n])(?:import|export)\b[^;"']*["']\.\/([^"']+)["']/g))
      found.add(name);
  }
  return found;
}

describe('the npm package', { timeout: 240_000 }, () => {
  let project: string;
  let installed: string;
  let npm: string;
  const run = (file: string, args: readonly string[]): string =>
    execFileSync(file, args, { cwd: project, encoding: 'utf8', timeout: 120_000, env: ENVIRONMENT });

  before(() => {
    project = temporaryFolder();
    installed = join(project, 'node_modules/orchlet');
    const packed = execFileSync(join(ROOT, 'scripts/build-package'), { cwd: ROOT, encoding: 'utf8' }).trim();
    writeFileSync(join(project, 'package.json'), '{"private": true, "type": "module"}\n');
    // npm needs no network, because the package has no dependencies.
    npm = run('sh', ['-c', `npm install --offline --no-audit --no-fund '${join(ROOT, packed)}' 2>&1`]);
  });
  after(() => rmSync(project, { recursive: true, force: true }));

  test('installs offline as one package of less than 40 MB, without scripts and without warnings', () => {
    assert.match(npm, /added 1 package /);
    // Warnings of npm about its own settings are not about the package.
    assert.deepEqual(
      npm.split('\n').filter((line) => /warn|deprecated/i.test(line) && !/Unknown .*config/.test(line)),
      [],
    );
    assert.ok(diskUsage(join(project, 'node_modules')) < 40 * MEGABYTE);
    const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as Readonly<
      Record<string, unknown>
    >;
    for (const field of [
      'dependencies',
      'optionalDependencies',
      'peerDependencies',
      'devDependencies',
      'scripts',
      'private',
    ])
      assert.equal(manifest[field], undefined, field);
  });

  test('contains the licences of its packages', () => {
    const licences = readFileSync(join(installed, 'dist/program/licenses.txt'), 'utf8');
    for (const name of ['better-sqlite3', 'dockerode', 'fastify', 'pino', 'ws', '@kubernetes/client-node'])
      assert.match(licences, new RegExp(`^${name} \\d`, 'm'), name);
  });

  test('an import loads only the control plane, from a few files', () => {
    const program = join(installed, 'dist/program');
    const files = loadedFirst(program, 'library.js');
    const texts = [...files].map((file) => readFileSync(join(program, file), 'utf8'));
    const bytes = texts.reduce((sum, text) => sum + text.length, 0);
    assert.ok(files.size > 5 && files.size < 150, `${files.size} files`);
    assert.ok(bytes > 1e6 && bytes < 3e6, `${bytes} bytes`);
    for (const name of ['docker-modem', '@grpc/grpc-js', 'fastify', 'protobufjs'])
      assert.ok(!texts.some((text) => text.includes(`node_modules/${name}/`)), name);
  });

  test('starts a control plane in memory, and one with its storage on disk', () => {
    writeFileSync(join(project, 'memory.mjs'), IN_MEMORY);
    // The program does not trust the CA of the certificate.
    assert.match(run(process.execPath, ['memory.mjs']), /CERT/);
    writeFileSync(join(project, 'disk.mjs'), ON_DISK);
    assert.match(run(process.execPath, ['disk.mjs', join(project, 'data')]), /^https:\/\/127\.0\.0\.1:\d+\ntrue\n$/);
  });

  test('its types need only the types of Node.js', () => {
    writeFileSync(join(project, 'typed.ts'), TYPED);
    const options = {
      strict: true,
      noEmit: true,
      module: 'nodenext',
      target: 'esnext',
      skipLibCheck: false,
      types: [],
    };
    const compilerOptions = { ...options, lib: ['esnext', 'dom', 'dom.iterable', 'dom.asynciterable'] };
    writeFileSync(join(project, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['typed.ts'] }));
    assert.equal(run(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), '-p', '.']), '');
  });

  test('contains the command', () => {
    assert.match(run('npx', ['--offline', 'orchlet', 'version']), /^orchlet \d/);
  });
});

test('an installation from a checkout holds no sources and no tools, and takes less than 200 MB with its Node.js', (t) => {
  const destination = temporaryFolder();
  t.after(() => rmSync(destination, { recursive: true, force: true }));
  execFileSync(join(ROOT, 'scripts/install'), { env: { ...process.env, DESTDIR: destination }, stdio: 'pipe' });
  const program = join(destination, 'usr/local/lib/orchlet');
  assert.ok(diskUsage(program) < 200 * MEGABYTE);
  const sources = globSync('**/*.ts', { cwd: program }).filter((file) => !file.startsWith('dist/program/models/'));
  assert.deepEqual(sources, []);
  assert.deepEqual(readdirSync(program).sort(), ['README.md', 'bin', 'dist']);
  // The program uses its own Node.js; there is none on the path.
  const output = execFileSync(join(program, 'bin/orchlet'), ['version'], {
    encoding: 'utf8',
    env: { PATH: '/usr/bin:/bin', NODE_COMPILE_CACHE: join(destination, 'compiled') },
  });
  assert.match(output, new RegExp(`^node ${process.version}$`, 'm'));
});

test('a control plane of an installation is found and stopped by the installed command', async (t) => {
  const destination = temporaryFolder();
  t.after(() => rmSync(destination, { recursive: true, force: true }));
  execFileSync(join(ROOT, 'scripts/install'), { env: { ...process.env, DESTDIR: destination }, stdio: 'pipe' });
  const command = join(destination, 'usr/local/lib/orchlet/bin/orchlet');
  const data = join(destination, 'data');
  const plane = spawn(
    command,
    ['controlplane', '--data-dir', data, '--secure-port', '0', '--bind-address', '127.0.0.1'],
    {
      stdio: ['ignore', 'ignore', 'inherit'],
    },
  );
  t.after(() => plane.kill('SIGKILL'));
  const stopped = new Promise((resolve) => plane.once('exit', resolve));
  await until('the storage to be open', () => existsSync(join(data, 'admin.kubeconfig')));
  const output = execFileSync(command, ['stop', '--data-dir', data], { encoding: 'utf8' });
  assert.equal(output, `process ${plane.pid} is stopped\n`);
  await stopped;
});
