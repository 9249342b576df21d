import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { nodeDeclaredFeatures } from '../../../../../controlplane/security/admission/node-declared-features.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import type { Listers } from '../../../../../controlplane/model/listers.ts';

const POD_LEVEL = 'InPlacePodLevelResourcesVerticalScaling';
const INIT = 'InPlacePodVerticalScalingInitContainers';

const nodesBy = new Map(
  [
    ['old', []],
    ['new', [POD_LEVEL, INIT]],
  ].map(([name, declaredFeatures]) => [name, { metadata: { name }, status: { declaredFeatures } }]),
);
const listers = {
  of: () => ({ get: (_: string, name: string) => nodesBy.get(name), live: () => Promise.resolve(undefined) }),
} as unknown as Listers;

const cpu = (value: string): object => ({ requests: { cpu: value } });

interface Change {
  readonly node?: string;
  readonly whole?: readonly [string, string];
  readonly init?: readonly [string, string];
  readonly restartPolicy?: string;
  readonly subresource?: string;
}

async function outcome({ node = 'old', whole, init, restartPolicy, subresource = 'resize' }: Change): Promise<string> {
  const pod = (at: 0 | 1): object => ({
    metadata: { name: 'p', namespace: 'ns' },
    spec: {
      nodeName: node,
      ...(whole === undefined ? {} : { resources: cpu(whole[at]) }),
      ...(init === undefined ? {} : { initContainers: [{ name: 'i', restartPolicy, resources: cpu(init[at]) }] }),
      containers: [{ name: 'c', resources: cpu(at === 0 ? '1' : '2') }],
    },
  });
  const attributes = {
    operation: 'UPDATE',
    resource: { group: '', version: 'v1', resource: 'pods' },
    subresource,
    name: 'p',
    namespace: 'ns',
    oldObject: pod(0),
    object: pod(1),
  } as unknown as AdmissionAttributes;
  try {
    await nodeDeclaredFeatures(listers).validate?.(attributes, new AbortController().signal);
    return 'admitted';
  } catch (error) {
    return (error as Error).message;
  }
}

const refused = (features: string, node = 'old'): string =>
  `pods "p" is forbidden: pod update requires features ${features} which are not available on node "${node}"`;

describe('a pod on a node whose agent declares no features', () => {
  for (const [what, expected, change] of [
    ['is resized by its containers', 'admitted', {}],
    ['is not resized as a whole', refused(POD_LEVEL), { whole: ['1', '2'] }],
    ['keeps what it has as a whole, in any spelling', 'admitted', { whole: ['1', '1000m'] }],
    ['is not resized by its init containers', refused(INIT), { init: ['1', '2'] }],
    ['is resized by its sidecars', 'admitted', { init: ['1', '2'], restartPolicy: 'Always' }],
    ['is resized by neither', refused(`${POD_LEVEL}, ${INIT}`), { whole: ['1', '2'], init: ['1', '2'] }],
    ['has a status that changes', 'admitted', { whole: ['1', '2'], subresource: 'status' }],
    ['is resized on a node whose agent does', 'admitted', { node: 'new', whole: ['1', '2'], init: ['1', '2'] }],
    ['is resized before it has a node', 'admitted', { node: '', whole: ['1', '2'] }],
    [
      'is not resized on a node that is gone',
      'pods "p" is forbidden: node "gone" not found',
      { node: 'gone', whole: ['1', '2'] },
    ],
  ] as const) {
    it(what, async () => assert.equal(await outcome(change), expected));
  }
});
