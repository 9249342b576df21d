/** Tests backups in Ceph's S3 server: they are uploaded in several parts, scheduled, pruned, and restored on an empty host. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { CephGateway, skipWithoutCeph } from './ceph-gateway.ts';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
const BUCKET = 'backups';
/** The number of objects of random bytes, which cannot be compressed: the archive has three parts of 8 MiB. */
const OBJECTS = 36;

describe('backups in the S3 server of Ceph', { skip: skipWithoutCeph, timeout: 280_000 }, () => {
  let gateway: CephGateway;
  let plane: ControlPlaneProcess;
  let restored: ControlPlaneProcess | undefined;
  const scratch = temporaryFolder();

  const orchlet = (dataDir: string, ...args: readonly string[]): string => {
    const flags = ['--data-dir', dataDir, '--backup-s3-endpoint', gateway.endpoint];
    const done = spawnSync(ORCHLET, [...args, ...flags], { encoding: 'utf8', timeout: 120_000 });
    assert.equal(done.status, 0, `${done.stdout}${done.stderr}`);
    return done.stdout;
  };
  const objects = (prefix: string): { readonly key: string; readonly etag: string; readonly bytes: number }[] => {
    const { status, text } = gateway.request('GET', `/${BUCKET}?list-type=2`);
    assert.equal(status, 200, text);
    return [...text.matchAll(/<Key>([^<]*)<.*?<ETag>([^<]*)<.*?<Size>(\d+)</g)]
      .map(([, key = '', etag = '', bytes]) => ({ key, etag: etag.replaceAll('&quot;', ''), bytes: Number(bytes) }))
      .filter(({ key }) => key.startsWith(prefix));
  };

  before(async () => {
    gateway = await CephGateway.start(BUCKET);
    Object.assign(process.env, gateway.credentials);
    plane = await ControlPlaneProcess.start([
      ...['--backup-schedule', '* * * * *', '--backup-keep', '1', '--backup-dir', `s3://${BUCKET}/nightly`],
      ...['--backup-s3-endpoint', gateway.endpoint],
    ]);
    for (let index = 0; index < OBJECTS; index += 1) {
      const object = {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: `large-${index}` },
        data: { content: randomBytes(500_000).toString('base64') },
      };
      const made = plane.kubectl(['create', '-f', '-'], { input: JSON.stringify(object) });
      assert.equal(made.code, 0, made.stderr);
    }
  });
  after(async () => {
    await restored?.remove();
    await plane?.remove();
    await gateway?.remove();
    rmSync(scratch, { recursive: true, force: true });
  });

  test('a backup is uploaded in parts, and a new host is restored from it alone', async () => {
    orchlet(plane.directory, 'backup', `s3://${BUCKET}/one/cluster.tgz`);
    const [archive, ...others] = objects('one/');
    assert.deepEqual(others, []);
    assert.ok((archive?.bytes ?? 0) > 16 * 1024 * 1024, String(archive?.bytes));
    assert.match(archive?.etag ?? '', /-[3-9]/, 'the tag of an upload in parts ends with their number');
    const directory = join(scratch, 'data');
    assert.ok(!existsSync(directory));
    orchlet(directory, 'restore', `s3://${BUCKET}/one/cluster.tgz`);
    restored = await ControlPlaneProcess.start([], directory);
    const names = restored.kubectl(['get', 'configmaps', '-o', 'name']).stdout;
    assert.equal(names.match(/large-/g)?.length, OBJECTS);
  });

  test('only the configured number of scheduled backups is kept', async () => {
    const seen = new Set<string>();
    const kept = await until(
      'a second backup',
      () => {
        const now = objects('nightly/').map(({ key }) => key);
        for (const key of now) seen.add(key);
        return seen.size >= 2 && now.length === 1 ? now : undefined;
      },
      200_000,
    );
    assert.deepEqual(kept, [...seen].sort().slice(-1));
  });
});
