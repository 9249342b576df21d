/**
 * Tests the exit of `orchlet controlplane` when its storage can neither write nor close cleanly: the exit code is 74, and no
 * acknowledged write is lost.
 */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ControlPlaneProcess } from './controlplane-process.ts';
import { freePort } from './free-port.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';

const ORCHLET = join(import.meta.dirname, '../../bin/orchlet');
/** Blocks of 512 bytes: no file grows beyond 12 MB, so that a write to the log fails in the middle (EFBIG). */
const FILE_BLOCKS = 24_000;
const VALUE_BYTES = 900_000;

test(
  'a storage whose writes fail ends the process with 74; a start without the fault has every acknowledged write',
  { timeout: 120_000 },
  async (t) => {
    const directory = temporaryFolder();
    t.after(() => rmSync(directory, { recursive: true, force: true }));
    const port = await freePort();
    const flags = `--data-dir ${directory} --bind-address 127.0.0.1 --secure-port ${port}`;
    const child = spawn('sh', ['-c', `ulimit -f ${FILE_BLOCKS}; trap '' XFSZ; exec ${ORCHLET} controlplane ${flags}`], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    t.after(() => child.kill('SIGKILL'));
    const closed = once(child, 'close') as Promise<[number | null]>;
    let log = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => (log += chunk.toString()));
    const kubectl = (
      args: readonly string[],
      input = '',
    ): { readonly code: number | null; readonly output: string } => {
      const env = { ...process.env, KUBECONFIG: join(directory, 'admin.kubeconfig') };
      const done = spawnSync('kubectl', [...args, '--cache-dir', join(directory, 'kubecache')], {
        encoding: 'utf8',
        env,
        input,
      });
      return { code: done.status, output: done.stdout };
    };
    await until('a ready control plane', () =>
      kubectl(['get', '--raw', '/readyz']).output === 'ok' ? true : undefined,
    ).catch(() => assert.fail(log));
    const acknowledged: string[] = [];
    for (let at = 0; at < 40 && child.exitCode === null; at += 1) {
      const metadata = { name: `large-${at}`, namespace: 'default' };
      const object = { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { value: 'x'.repeat(VALUE_BYTES) } };
      if (kubectl(['create', '--validate=false', '-f', '-'], JSON.stringify(object)).code !== 0) break;
      acknowledged.push(`configmap/large-${at}`);
    }
    const [code] = await closed;
    assert.equal(code, 74, log);
    assert.match(log, /The storage cannot be relied on any more, so the process exits to be restarted/);
    assert.ok(acknowledged.length > 3, log);

    const again = await ControlPlaneProcess.start([], directory);
    t.after(() => again.remove());
    const names = again.kubectl(['get', 'configmaps', '-o', 'name']).stdout.split('\n');
    assert.deepEqual(
      acknowledged.filter((name) => !names.includes(name)),
      [],
    );
  },
);
