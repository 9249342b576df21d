/**
 * Tests the executable of scripts/build-binary without a checkout and without Node.js: a cluster on both runtimes, with logs as
 * JSON.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { skipWithoutContainerd, skipWithoutDocker } from './container-runtimes.ts';
import { RunningCluster } from './running-cluster.ts';
import { until } from '../until.ts';
import { temporaryFolder } from '../temporary-folder.ts';
import { DEMO_IMAGE } from '../../scripts/images/demo-image.ts';

const ROOT = join(import.meta.dirname, '../..');

/** A pod with a gRPC probe. Nothing else loads the gRPC client on Docker. */
const POD = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'p' },
  spec: {
    terminationGracePeriodSeconds: 0,
    containers: [
      {
        name: 'c',
        image: DEMO_IMAGE,
        command: ['sh', '-c', 'echo started; sleep 1000'],
        startupProbe: { exec: { command: ['true'] }, periodSeconds: 1 },
        livenessProbe: { grpc: { port: 9 }, initialDelaySeconds: 0, periodSeconds: 1, failureThreshold: 1000 },
      },
    ],
  },
};

describe('the single executable', { timeout: 280_000 }, () => {
  let directory: string;
  let program: string;

  before(() => {
    directory = temporaryFolder();
    execFileSync(join(ROOT, 'scripts/build-binary'), [directory], { stdio: 'pipe' });
    assert.deepEqual(readdirSync(directory), ['orchlet'], 'the build leaves nothing else');
    program = join(directory, 'orchlet');
    assert.ok(statSync(program).size < 123e6);
    process.env['ORCHLET_UNPACK_DIR'] = join(directory, 'unpacked');
  });
  after(() => {
    delete process.env['ORCHLET_UNPACK_DIR'];
    rmSync(directory, { recursive: true, force: true });
  });

  test('prints its version, completes commands and checks the host', () => {
    const outputOf = (...args: string[]): string => execFileSync(program, args, { encoding: 'utf8', cwd: '/' });
    assert.match(outputOf('version'), /^orchlet \d/);
    assert.match(outputOf('completion', 'bash'), /complete /);
    assert.match(execFileSync('sh', ['-c', `${program} doctor; true`], { encoding: 'utf8', cwd: '/' }), /time/i);
  });

  for (const [on, skip, cidr] of [
    ['docker', skipWithoutDocker, '10.110.0.0/17'],
    ['containerd', skipWithoutContainerd, '10.110.128.0/17'],
  ] as const) {
    test(`is a cluster on ${on}`, { skip }, async () => {
      const flags = ['--cluster-cidr', cidr, '--logging-format', 'json'];
      const cluster = await RunningCluster.start(flags, on, { program });
      try {
        const manifest = join(cluster.directory, 'pod.json');
        writeFileSync(manifest, JSON.stringify(POD));
        await until('the pod to be taken', () => cluster.kubectl(['apply', '-f', manifest]).code === 0);
        cluster.run(['wait', '--for=condition=Ready', 'pod/p', '--timeout=100s'], { timeoutMs: 110_000 });
        assert.equal(cluster.run(['logs', 'p']), 'started\n');
        assert.equal(cluster.run(['exec', 'p', '--', 'echo', 'there']), 'there\n');
        assert.match(cluster.run(['explain', 'pod.spec.hostNetwork']), /network namespace/);
        await until('the failures of the probe', () =>
          /Liveness probe failed/.test(cluster.run(['get', 'events', '-o', 'jsonpath={.items[*].message}'])),
        );
        cluster.run(['delete', 'pod', 'p', '--timeout=60s'], { timeoutMs: 70_000 });
      } finally {
        await cluster.remove();
      }
    });
  }
});
