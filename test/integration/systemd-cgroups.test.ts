/**
 * Tests limits of pods, of all pods and of reserved resources as properties of slices with a real systemd: they are set,
 * changed, kept and removed.
 */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { until } from '../until.ts';
import type { Steps } from './systemd-cgroups-child.ts';
import { SystemdHost, whyNoSystemd } from './systemd-host.ts';

const ROOT = join(import.meta.dirname, '../..');
const SLICE = 'kubepods-burstable-pod1234_5678.slice';
const PATH = `kubepods.slice/kubepods-burstable.slice/${SLICE}`;

const podOf = (resources: object) =>
  ({
    metadata: { name: 'p', namespace: 'd', uid: '1234-5678' },
    spec: { containers: [{ name: 'c', resources }] },
  }) as NonNullable<Steps['ensure']>;
const POD = podOf({ limits: { cpu: '500m', memory: '64Mi' }, requests: { cpu: '250m', memory: '32Mi' } });

const skip = await whyNoSystemd();
if (skip !== false) console.log(`# skipped: ${skip}`);

describe('cgroups that systemd owns', { skip, timeout: 120_000 }, () => {
  let host: SystemdHost;
  let isV2 = false;

  /** Runs an agent with these steps, which must not log warnings. */
  function agent(steps: Steps): void {
    const output = host.must(
      `${ROOT}/bin/node ${ROOT}/test/integration/systemd-cgroups-child.ts '${JSON.stringify(steps)}'`,
    );
    assert.equal(output, '[]');
  }
  const shown = (unit: string, names: readonly string[]): readonly string[] =>
    names.map((name) => host.must(`systemctl show --property=${name} --value ${unit}`));
  /** Returns the path of a kernel file for v2 or v1. */
  const file = (path: string, v2: string, v1: string): string => {
    const [controller, name] = v1.split('/');
    return `/sys/fs/cgroup/${isV2 ? `${path}/${v2}` : `${controller}/${path}/${name}`}`;
  };
  /** Waits until a file of the cgroup has the text, because systemd responds to a request before it is applied. */
  const reads = (path: string, expected: string): Promise<true> =>
    until(`${expected} in ${path}`, () => (host.sh(`cat ${path}`).output === expected ? true : undefined));

  before(async () => {
    host = await SystemdHost.boot();
    isV2 = host.sh('test -e /sys/fs/cgroup/cgroup.controllers').code === 0;
  });
  after(async () => {
    await host?.remove();
  });

  test('all pods share a slice that is limited to the allocatable resources', async () => {
    agent({ enforcePods: { milliCpu: 1500, memoryBytes: 2 ** 30, pids: 1000 } });
    await reads(file('kubepods.slice', 'memory.max', 'memory/memory.limit_in_bytes'), '1073741824');
    await reads(file('kubepods.slice', 'cpu.weight', 'cpu/cpu.shares'), isV2 ? '59' : '1536');
    await reads(file('kubepods.slice', 'pids.max', 'pids/pids.max'), '1000');
    assert.deepEqual(shown('kubepods.slice', ['ActiveState', 'Transient', 'TasksMax']), ['active', 'yes', '1000']);
  });

  test('a pod is a slice below its class, with its limits', async () => {
    agent({ ensure: POD, qosOf: [POD] });
    await reads(file(PATH, 'memory.max', 'memory/memory.limit_in_bytes'), '67108864');
    await reads(file(PATH, 'cpu.weight', 'cpu/cpu.shares'), isV2 ? '10' : '256');
    await reads(file(PATH, 'cpu.max', 'cpu/cpu.cfs_quota_us'), isV2 ? '50000 100000' : '50000');
    await reads(file(PATH, 'pids.max', 'pids/pids.max'), '77');
    await reads(file('kubepods.slice/kubepods-burstable.slice', 'cpu.weight', 'cpu/cpu.shares'), isV2 ? '10' : '256');
    assert.deepEqual(shown(SLICE, ['ControlGroup', 'Transient']), [`/${PATH}`, 'yes']);
  });

  test('systemd keeps them when it reloads its units', async () => {
    host.must('systemctl daemon-reload');
    await reads(file(PATH, 'memory.max', 'memory/memory.limit_in_bytes'), '67108864');
    await reads(file('kubepods.slice', 'memory.max', 'memory/memory.limit_in_bytes'), '1073741824');
  });

  test('an agent that starts again updates what was resized', async () => {
    agent({ ensure: podOf({ limits: { memory: '128Mi' }, requests: { cpu: '500m' } }) });
    await reads(file(PATH, 'memory.max', 'memory/memory.limit_in_bytes'), '134217728');
    await reads(file(PATH, 'cpu.max', 'cpu/cpu.cfs_quota_us'), isV2 ? 'max 100000' : '-1');
    await reads(file(PATH, 'cpu.weight', 'cpu/cpu.shares'), isV2 ? '20' : '512');
  });

  test('processes in the slice keep running, and the slice is removed when they end', async () => {
    host.must(`systemd-run --scope --unit=container --slice=${SLICE} sleep 1000 >/dev/null 2>&1 & true`);
    await until('the scope', () =>
      host.sh('systemctl is-active container.scope').output === 'active' ? true : undefined,
    );
    assert.equal(
      host.must('systemctl show --property=ControlGroup --value container.scope'),
      `/${PATH}/container.scope`,
    );
    agent({ remove: POD });
    assert.equal(host.sh('systemctl is-active container.scope').output, 'active');
    host.must('systemctl stop container.scope');
    agent({ remove: POD });
    await until('the end of the slice', () =>
      host.sh(`ls -d /sys/fs/cgroup/${isV2 ? '' : '*/'}${PATH}`).code === 0 ? undefined : true,
    );
    await until('the end of the unit', () =>
      host.must(`systemctl list-units --all --no-legend ${SLICE}`) === '' ? true : undefined,
    );
    assert.deepEqual(shown('kubepods.slice', ['ActiveState']), ['active']);
  });

  test('systemd knows the properties of v2 whichever version the host has', () => {
    host.must('mkdir -p /run/v2 && echo cpu memory pids >/run/v2/cgroup.controllers');
    agent({ mountPoint: '/run/v2', ensure: POD });
    assert.deepEqual(
      shown(SLICE, ['CPUWeight', 'CPUQuotaPerSecUSec', 'MemoryMax', 'TasksMax', 'IOAccounting', 'DefaultDependencies']),
      ['10', '500ms', '67108864', '77', 'yes', 'no'],
    );
    agent({ mountPoint: '/run/v2', ensure: podOf({ requests: { cpu: '500m' } }) });
    assert.deepEqual(shown(SLICE, ['CPUWeight', 'CPUQuotaPerSecUSec', 'MemoryMax']), ['20', 'infinity', 'infinity']);
    host.must(`systemctl stop ${SLICE}`);
  });

  test('the system slice is limited to its reserved resources', async () => {
    host.must('systemctl start system.slice');
    agent({ enforce: ['/system.slice', { milliCpu: 500, memoryBytes: 2 ** 29, pids: 0 }] });
    await reads(file('system.slice', 'memory.max', 'memory/memory.limit_in_bytes'), '536870912');
    await reads(file('system.slice', 'cpu.weight', 'cpu/cpu.shares'), isV2 ? '20' : '512');
  });
});
