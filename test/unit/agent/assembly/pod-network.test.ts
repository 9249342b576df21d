import assert from 'node:assert/strict';
import { test } from 'node:test';
import { chosenMode } from '../../../../agent/assembly/pod-network.ts';

const CASES: readonly (readonly [
  flag: string,
  providedByNodes: boolean,
  annotation: string,
  expected: string | undefined,
])[] = [
  ['wireguard', false, '', 'wireguard'],
  ['routes', true, 'vxlan', 'routes'],
  ['auto', false, '', undefined],
  ['auto', true, 'vxlan', 'vxlan'],
  ['auto', true, 'wireguard', 'wireguard'],
  ['auto', true, 'routes', 'routes'],
  ['auto', true, 'none', undefined],
  // A control plane of an earlier release.
  ['auto', true, '', 'vxlan'],
];

for (const [flag, providedByNodes, annotation, expected] of CASES)
  test(`--pod-network=${flag} in a cluster ${providedByNodes ? `that publishes '${annotation}'` : 'with a network plugin'}`, async () => {
    const cluster = { nodesProvideServices: () => Promise.resolve(providedByNodes), annotation: () => annotation };
    assert.equal(await chosenMode(flag, cluster, new AbortController().signal), expected);
  });
