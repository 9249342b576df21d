/** Tests the backup of a running control plane, its restore, and `orchlet stop`. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { until } from '../until.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');

describe('a backup of the control plane', { timeout: 120_000 }, () => {
  let plane: ControlPlaneProcess;
  let file: string;
  const scratch = temporaryFolder();

  const orchlet = (...args: readonly string[]): { readonly code: number | null; readonly output: string } => {
    const done = spawnSync(ORCHLET, [...args, '--data-dir', plane.directory], { encoding: 'utf8', timeout: 60_000 });
    return { code: done.status, output: `${done.stdout}${done.stderr}` };
  };
  const kubectl = (...args: readonly string[]): string => {
    const done = plane.kubectl(args);
    assert.equal(done.code, 0, done.stderr);
    return done.stdout;
  };
  const revision = (): number =>
    Number(kubectl('get', 'configmap', 'kept', '-o', 'jsonpath={.metadata.resourceVersion}'));
  const newestRevision = (): number =>
    Number(
      (JSON.parse(kubectl('get', '--raw', '/api/v1/nodes')) as { metadata: { resourceVersion: string } }).metadata
        .resourceVersion,
    );

  before(async () => {
    plane = await ControlPlaneProcess.start();
    file = join(scratch, 'cluster.tgz');
  });
  after(async () => {
    await plane?.remove();
    rmSync(scratch, { recursive: true, force: true });
  });

  test('is created while the control plane runs, and only its owner can read it', () => {
    kubectl('create', 'configmap', 'kept', '--from-literal=a=1');
    const made = orchlet('token', 'create', 'abcdef.0123456789abcdef');
    assert.equal(made.code, 0, made.output);
    const taken = orchlet('backup', file);
    assert.equal(taken.code, 0, taken.output);
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(scratch), ['cluster.tgz'], 'nothing half-written');
    assert.deepEqual(readdirSync(join(plane.directory, 'backup')), []);
  });

  test('cannot be restored into a running control plane', () => {
    const refused = orchlet('restore', file);
    assert.equal(refused.code, 1);
    assert.match(refused.output, /runs \(process \d+\): stop it first/);
  });

  test('restores objects, tokens and certificates, and clients detect that the history changed', async () => {
    kubectl('create', 'configmap', 'lost', '--from-literal=a=1');
    const before = revision();
    const newest = newestRevision();
    const caPem = readFileSync(join(plane.directory, 'pki', 'ca.crt'), 'utf8');
    const stopped = orchlet('stop');
    assert.equal(stopped.code, 0, stopped.output);
    await plane.stop();
    // The CA differs from that of the backup, so it must be restored as well.
    rmSync(join(plane.directory, 'pki'), { recursive: true });
    const restored = orchlet('restore', file);
    assert.equal(restored.code, 0, restored.output);
    assert.match(restored.output, /what was there is in .*before-restore-/);
    await plane.launch();
    assert.equal(readFileSync(join(plane.directory, 'pki', 'ca.crt'), 'utf8'), caPem);
    assert.equal(revision(), before);
    assert.equal(plane.kubectl(['get', 'configmap', 'lost']).code, 1);
    assert.match(kubectl('get', 'secrets', '-n', 'kube-system'), /bootstrap-token-abcdef/);
    assert.ok(newestRevision() > newest + 1000);
    // A client that has seen later versions than those in the backup must list again.
    const old = plane.kubectl([
      'get',
      '--raw',
      `/api/v1/configmaps?watch=true&timeoutSeconds=2&resourceVersion=${newest}`,
    ]);
    assert.match(`${old.stdout}${old.stderr}`, /too old resource version|"code":410|Expired/);
    kubectl('create', 'configmap', 'after', '--from-literal=a=1');
  });

  test('can be created while the control plane is stopped; an invalid file is refused and changes nothing', async () => {
    await plane.stop();
    const second = join(scratch, 'second.tgz');
    const taken = orchlet('backup', second);
    assert.equal(taken.code, 0, taken.output);
    writeFileSync(join(scratch, 'none.tgz'), 'no archive');
    const refused = orchlet('restore', join(scratch, 'none.tgz'));
    assert.equal(refused.code, 1);
    assert.match(refused.output, /cannot be read as a backup/);
    assert.equal(orchlet('restore', second).code, 0);
    await plane.launch();
    kubectl('get', 'configmap', 'after');
  });
});

test('a schedule writes verified backups while the control plane runs', { timeout: 120_000 }, async () => {
  const directory = temporaryFolder();
  const scheduled = ['--backup-schedule', '* * * * * *', '--backup-keep', '2', '--backup-dir', directory];
  const plane = await ControlPlaneProcess.start(scheduled);
  try {
    const files = (): string[] => readdirSync(directory).filter((name) => name.endsWith('.tgz'));
    const first = await until('a scheduled backup', () => files()[0]);
    await until('the replacement of the first backup by later ones', () => !files().includes(first));
    assert.equal(statSync(join(directory, files()[0] ?? '')).mode & 0o777, 0o600);
  } finally {
    await plane.remove();
    rmSync(directory, { recursive: true, force: true });
  }
});
