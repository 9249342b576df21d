import assert from 'node:assert/strict';
import { test } from 'node:test';
import { podAddresses } from '../../../../../agent/runtime/kuberuntime/pod-addresses.ts';
import { assembleRuntimeStatus } from '../../../../../agent/runtime/kuberuntime/runtime-status.ts';
import type { SandboxStatus } from '../../../../../agent/runtime/runtime.ts';

for (const [what, reported, expected] of [
  ['of both families stay in their order', ['fd00::1', '10.0.0.1'], ['fd00::1', '10.0.0.1']],
  ['beyond one of each family are left out', ['10.0.0.1', '10.0.0.2', 'fd00::1', 'fd00::2'], ['10.0.0.1', 'fd00::1']],
  ['that are reported twice count once', ['10.0.0.1', '10.0.0.1'], ['10.0.0.1']],
  ['get their canonical form', ['010.000.0.01', 'FD00:0:0:0:0:0:0:1'], ['10.0.0.1', 'fd00::1']],
  ['with a zone count as none', ['fe80::1%eth0'], []],
  ['that would be lines of /etc/hosts count as none', ['10.0.0.1', '10.0.0.2\n10.0.0.3 kubernetes.default'], []],
  ['that are empty are left out', ['', '10.0.0.1'], ['10.0.0.1']],
] as const)
  test(`addresses of a network plugin ${what}`, () => assert.deepEqual(podAddresses(reported), expected));

test('the status of a pod has no addresses that the API server refuses', () => {
  const sandbox = {
    ...{ id: 's', pod: { name: 'p', namespace: 'd', uid: 'u', attempt: 0 }, state: 'ready', createdAtMs: 1 },
    ...{
      ips: ['10.0.0.1', '10.0.0.9', 'fd00::1'],
      labels: {},
      annotations: {},
      networkMode: 'pod',
      runtimeHandler: '',
    },
  } as unknown as SandboxStatus;
  const { ips } = assembleRuntimeStatus({ uid: 'u', name: 'p', namespace: 'd' }, [sandbox], []);
  assert.deepEqual(ips, ['10.0.0.1', 'fd00::1']);
});
