/** An agent that cannot start leaves the kernel parameters of its host as they are. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { temporaryFolder } from '../temporary-folder.ts';

const canUnshare = spawnSync('unshare', ['--mount', 'true']).status === 0;
const PARAMETER = '/proc/sys/vm/overcommit_memory';

for (const [what, flag, message] of [
  ['whose container runtime does not answer', '--container-runtime-endpoint=unix:///none.sock', /\/none\.sock/],
  ['whose kubeconfig is missing', '--kubeconfig=/none/kubeconfig', /\/none\/kubeconfig/],
] as const)
  test(`an agent ${what} sets no kernel parameter`, { skip: canUnshare ? false : 'no mount namespaces here' }, () => {
    const directory = temporaryFolder();
    const parameter = join(directory, 'parameter');
    writeFileSync(parameter, '0\n');
    const flags = [flag, '--fail-swap-on=false', '--port=0', '--read-only-port=0', '--healthz-port=0'];
    const agent = [process.execPath, resolve('cli/main.ts'), 'agent', '--root-dir', join(directory, 'root'), ...flags];
    const script = `mount --bind "$0" ${PARAMETER} && exec "$@"`;
    const { status, stdout, stderr } = spawnSync(
      'unshare',
      ['--mount', 'sh', '-c', script, parameter, ...agent, '--pod-logs-dir', join(directory, 'logs')],
      { encoding: 'utf8', timeout: 60_000 },
    );
    assert.equal(status, 1, stdout + stderr);
    assert.match(stdout + stderr, message);
    assert.equal(readFileSync(parameter, 'utf8'), '0\n');
    assert.equal(existsSync(join(directory, 'root', 'host-record.json')), false);
  });
