/** Tests the resources that a pod requests from a node. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../api/kinds/kinds.ts';
import { podRequests } from '../../../../controlplane/scheduler/pod-requests.ts';

const container = (cpu: string, more: object = {}) => ({ name: `c${cpu}`, resources: { requests: { cpu } }, ...more });
const requestsOf = (spec: object): Record<string, number> =>
  Object.fromEntries(podRequests({ metadata: {}, spec } as unknown as Pod).actual);

describe('requests of a pod', () => {
  const table: readonly [string, object, Record<string, number>][] = [
    ['containers add up', { containers: [container('100m'), container('1')] }, { cpu: 1100 }],
    [
      'an init container counts when it needs more',
      { containers: [container('100m')], initContainers: [container('2')] },
      { cpu: 2000 },
    ],
    [
      'a sidecar counts beside containers, and beside init containers that follow',
      {
        containers: [container('1')],
        initContainers: [container('500m', { restartPolicy: 'Always' }), container('2')],
      },
      { cpu: 2500 },
    ],
    [
      'an init container before a sidecar does not count it',
      {
        containers: [container('1')],
        initContainers: [container('1500m'), container('500m', { restartPolicy: 'Always' })],
      },
      { cpu: 1500 },
    ],
    [
      'pod-level requests take the place of the sum, overhead comes on top',
      { containers: [container('1')], resources: { requests: { cpu: '3', memory: '1Gi' } }, overhead: { cpu: '250m' } },
      { cpu: 3250, memory: 2 ** 30 },
    ],
  ];
  for (const [name, spec, expected] of table) {
    it(name, () => assert.deepEqual(requestsOf(spec), expected));
  }
});
