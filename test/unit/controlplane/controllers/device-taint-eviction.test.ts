/** Tests evictions from devices with `NoExecute` taints, against the rules of kube-controller-manager 1.36. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Pod, ResourceClaim, ResourceSlice } from '../../../../api/kinds/kinds.ts';
import { formatTime } from '../../../../api/machinery/clock.ts';
import { events, pods, resourceClaims, resourceSlices } from '../../../../api/client/resources.ts';
import { newServiceUnavailable } from '../../../../api/meta/status-error.ts';
import { runDeviceTaintEviction } from '../../../../controlplane/controllers/device-taint-eviction/device-taint-eviction.ts';
import {
  deviceEvictionTime,
  type AllocatedDevice,
  type DeviceTaint,
} from '../../../../controlplane/controllers/device-taint-eviction/device-taints.ts';
import { type ControllerTest, controllerTest } from '../../../fakes/fake-controllers.ts';
import { FakeClock } from '../../../fakes/fake-clock.ts';

const START = new FakeClock().now();
const SECONDS = 1000;

type Tolerations = NonNullable<AllocatedDevice['tolerations']>;

const taint = (values: Partial<DeviceTaint> = {}): DeviceTaint => ({
  key: 'broken',
  effect: 'NoExecute',
  timeAdded: formatTime(START),
  ...values,
});

const forever: Tolerations = [{ key: 'broken', operator: 'Exists', effect: 'NoExecute' }];
const seconds = (tolerationSeconds: number): Tolerations => [
  { key: 'broken', operator: 'Exists', effect: 'NoExecute', tolerationSeconds },
];

/** Returns a slice with these devices and their taints. */
function slice(
  devices: Readonly<Record<string, DeviceTaint[]>>,
  { name = 'slice', generation = 1, pool = 'rack/1', nodeName = 'a' } = {},
): ResourceSlice {
  return {
    metadata: { name, uid: `slice-${name}` },
    spec: {
      driver: 'd.example',
      nodeName,
      pool: { name: pool, generation, resourceSliceCount: 1 },
      devices: Object.entries(devices).map(([device, taints]) => ({ name: device, taints })),
    },
  };
}

/** Returns a claim with these devices and their tolerations, reserved for the pods with the names. */
function claim(
  devices: Readonly<Record<string, Tolerations>>,
  { name = 'c', reservedFor = ['p'], metadata = {} }: { name?: string; reservedFor?: string[]; metadata?: object } = {},
): ResourceClaim {
  return {
    metadata: { name, namespace: 'n', uid: `claim-${name}`, ...metadata },
    spec: {},
    status: {
      reservedFor: reservedFor.map((pod) => ({ resource: 'pods', name: pod, uid: `pod-${pod}` })),
      allocation: {
        devices: {
          results: Object.entries(devices).map(([device, tolerations]) => ({
            request: 'r',
            driver: 'd.example',
            pool: 'rack/1',
            device,
            tolerations,
          })),
        },
      },
    },
  } as ResourceClaim;
}

/** Returns a pod that uses the claims. Its finalizer keeps it after its deletion. */
function pod(name: string, { claims = ['c'], nodeName = 'a', phase = 'Running' } = {}): Pod {
  return {
    metadata: { name, namespace: 'n', uid: `pod-${name}`, finalizers: ['x.y/z'] },
    spec: {
      nodeName,
      containers: [],
      resourceClaims: claims.map((resourceClaimName) => ({ name: `use-${resourceClaimName}`, resourceClaimName })),
    },
    status: { phase },
  } as unknown as Pod;
}

/** Starts the controller over these objects. */
async function started(...objects: (Pod | ResourceClaim | ResourceSlice)[]): Promise<ControllerTest> {
  const t = controllerTest({
    objects: objects.map((object) => {
      if (object.metadata.namespace === undefined) return [resourceSlices, object];
      return object.metadata.uid?.startsWith('pod-') === true ? [pods, object] : [resourceClaims, object];
    }),
  });
  await t.start(runDeviceTaintEviction);
  await t.advance(100);
  return t;
}

/** Returns the names of the pods that were deleted. */
const evicted = (t: ControllerTest): string[] =>
  t.client
    .peekAll(pods)
    .filter(({ metadata }) => metadata.deletionTimestamp !== undefined)
    .map(({ metadata }) => metadata.name ?? '')
    .toSorted();

const MARKED = 'Normal DeviceTaintManagerEviction Marking for deletion';
const CANCELLED = 'Normal DeviceTaintManagerEviction Cancelling deletion';

describe('the time of the eviction from a device', () => {
  const added = Date.parse('2026-01-01T00:00:00Z');
  const at = (values: Partial<DeviceTaint> = {}): DeviceTaint =>
    taint({ timeAdded: '2026-01-01T00:00:00Z', ...values });
  const cases: readonly (readonly [string, DeviceTaint[], Tolerations, number | undefined])[] = [
    ['never without taints', [], [], undefined],
    ['never for other effects', [at({ effect: 'NoSchedule' }), at({ effect: 'None' })], [], undefined],
    ['when the taint was added', [at()], [], added],
    ['never if it is tolerated', [at()], forever, undefined],
    ['never if every key is tolerated', [at()], [{ operator: 'Exists', effect: 'NoExecute' }], undefined],
    ['at once if the toleration has no effect', [at()], [{ key: 'broken', operator: 'Exists' }], added],
    ['at once if another key is tolerated', [at()], [{ key: 'hot', operator: 'Exists', effect: 'NoExecute' }], added],
    ['at once if another value is tolerated', [at({ value: 'x' })], [{ key: 'broken', effect: 'NoExecute' }], added],
    [
      'never if the value is equal',
      [at({ value: 'x' })],
      [{ key: 'broken', value: 'x', effect: 'NoExecute' }],
      undefined,
    ],
    ['after the seconds of the toleration', [at()], seconds(60), added + 60 * SECONDS],
    ['at once for negative seconds', [at()], seconds(-60), added],
    ['after the shortest toleration', [at()], [...seconds(60), ...seconds(30)], added + 30 * SECONDS],
    ['never if one of several tolerations has no limit', [at()], [...seconds(60), ...forever], undefined],
    ['for the first of several taints', [at(), at({ key: 'hot' })], seconds(60), added],
    ['never for a taint without a time', [{ key: 'broken', effect: 'NoExecute' }], [], undefined],
  ];
  for (const [name, taints, tolerations, expected] of cases)
    test(`is ${name}`, () => assert.equal(deviceEvictionTime(taints, tolerations), expected));
});

describe('a pod on a tainted device', () => {
  test('is marked and deleted when the controller starts, with the events of kube-controller-manager', async () => {
    const t = await started(pod('p'), claim({ gpu: [] }), slice({ gpu: [taint()] }));
    assert.deepEqual(evicted(t), ['p']);
    const [condition, ...others] = t.client.peek(pods, 'n', 'p')?.status?.conditions ?? [];
    assert.deepEqual(others, []);
    assert.deepEqual(condition, {
      type: 'DisruptionTarget',
      status: 'True',
      reason: 'DeletionByDeviceTaintManager',
      message: 'Device Taint manager: deleting due to NoExecute taint',
      lastTransitionTime: condition?.lastTransitionTime,
    });
    const deletion = t.client.calls.find(({ verb }) => verb === 'delete');
    assert.deepEqual(deletion?.options?.preconditions, { uid: 'pod-p' });
    assert.deepEqual(t.events(), [MARKED]);
    assert.deepEqual(t.client.peekAll(events)[0]?.involvedObject, {
      apiVersion: 'v1',
      kind: 'Pod',
      namespace: 'n',
      name: 'p',
      uid: 'pod-p',
    });
    await t.stop();
  });

  test('is deleted when the taint comes, and only it', async () => {
    const t = await started(
      pod('p'),
      pod('other', { claims: ['d'] }),
      claim({ gpu: [] }),
      claim({ spare: [] }, { name: 'd', reservedFor: ['other'] }),
      slice({ gpu: [], spare: [] }),
    );
    assert.deepEqual(evicted(t), []);
    t.client.seed(resourceSlices, slice({ gpu: [taint()], spare: [] }));
    await t.advance(100);
    assert.deepEqual(evicted(t), ['p']);
    await t.stop();
  });

  test('stays if the claim tolerates the taint', async () => {
    const t = await started(pod('p'), claim({ gpu: forever }), slice({ gpu: [taint()] }));
    await t.advance(3600 * SECONDS);
    assert.deepEqual(evicted(t), []);
    assert.deepEqual(t.events(), []);
    await t.stop();
  });

  test('is deleted if one device of several is not tolerated', async () => {
    const t = await started(
      pod('p', { claims: ['c', 'd'] }),
      claim({ gpu: forever, spare: [] }),
      claim({ nic: seconds(60) }, { name: 'd' }),
      slice({ gpu: [taint()], spare: [], nic: [taint()] }),
    );
    await t.advance(59 * SECONDS);
    assert.deepEqual(evicted(t), []);
    await t.advance(2 * SECONDS);
    assert.deepEqual(evicted(t), ['p']);
    assert.deepEqual(t.events(), [MARKED]);
    await t.stop();
  });

  test('is not touched if it is not scheduled, finished, or the claim is not reserved for it', async () => {
    const t = await started(
      pod('pending', { nodeName: '' }),
      pod('succeeded', { phase: 'Succeeded' }),
      pod('failed', { phase: 'Failed' }),
      pod('unreserved'),
      pod('p'),
      claim({ gpu: [] }, { reservedFor: ['pending', 'succeeded', 'failed', 'p'] }),
      slice({ gpu: [taint()] }),
    );
    assert.deepEqual(evicted(t), ['p']);
    t.client.seed(pods, pod('pending'));
    await t.advance(100);
    assert.deepEqual(evicted(t), ['p', 'pending']);
    await t.stop();
  });

  test('counts the claim of a template only if the pod owns it', async () => {
    const templated = (name: string, uid: string): [Pod, ResourceClaim] => [
      {
        ...pod(name),
        spec: {
          nodeName: 'a',
          containers: [],
          resourceClaims: [{ name: 'gpu', resourceClaimTemplateName: 't' }],
        },
        status: { phase: 'Running', resourceClaimStatuses: [{ name: 'gpu', resourceClaimName: name }] },
      },
      claim(
        { gpu: [] },
        {
          name,
          reservedFor: [name],
          metadata: { ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name, uid, controller: true }] },
        },
      ),
    ];
    const t = await started(
      ...templated('own', 'pod-own'),
      ...templated('foreign', 'another'),
      slice({ gpu: [taint()] }),
    );
    assert.deepEqual(evicted(t), ['own']);
    await t.stop();
  });

  test('stays if only its claim for extended resources has the device', async () => {
    const t = await started(
      {
        ...pod('p', { claims: [] }),
        status: { phase: 'Running', extendedResourceClaimStatus: { requestMappings: [], resourceClaimName: 'c' } },
      },
      claim({ gpu: [] }),
      slice({ gpu: [taint()] }),
    );
    assert.deepEqual(evicted(t), []);
    await t.stop();
  });
});

describe('a planned eviction', () => {
  const planned = (): Promise<ControllerTest> =>
    started(pod('p'), claim({ gpu: seconds(60) }), slice({ gpu: [taint()] }));

  test('happens at its time', async () => {
    const t = await planned();
    await t.advance(59 * SECONDS);
    assert.deepEqual(evicted(t), []);
    assert.deepEqual(t.events(), []);
    await t.advance(2 * SECONDS);
    assert.deepEqual(evicted(t), ['p']);
    await t.stop();
  });

  test('counts from the time of the taint, also for a controller that starts later', async () => {
    const t = await started(
      pod('p'),
      claim({ gpu: seconds(60) }),
      slice({ gpu: [taint({ timeAdded: formatTime(START - 50 * SECONDS) })] }),
    );
    await t.advance(8 * SECONDS);
    assert.deepEqual(evicted(t), []);
    await t.advance(4 * SECONDS);
    assert.deepEqual(evicted(t), ['p']);
    await t.stop();
  });

  for (const [name, change] of [
    ['the taint goes', (t) => t.client.seed(resourceSlices, slice({ gpu: [] }))],
    ['the slice goes', (t) => t.client.delete(resourceSlices, '', 'slice')],
    [
      'a newer generation of the pool lacks the taint',
      (t) => t.client.seed(resourceSlices, slice({ gpu: [] }, { name: 'new', generation: 2 })),
    ],
    ['the claim gets a device without the taint', (t) => t.client.seed(resourceClaims, claim({ spare: [] }))],
    ['the claim gets the device with a toleration', (t) => t.client.seed(resourceClaims, claim({ gpu: forever }))],
    [
      'the claim is no longer reserved for the pod',
      (t) => t.client.seed(resourceClaims, claim({ gpu: [] }, { reservedFor: [] })),
    ],
    ['the claim goes', (t) => t.client.delete(resourceClaims, 'n', 'c')],
  ] as readonly (readonly [string, (t: ControllerTest) => unknown])[])
    test(`is cancelled if ${name}`, async () => {
      const t = await planned();
      await t.advance(30 * SECONDS);
      await change(t);
      await t.advance(1 * SECONDS);
      assert.deepEqual(t.events(), [CANCELLED]);
      await t.advance(3600 * SECONDS);
      assert.deepEqual(evicted(t), []);
      assert.deepEqual(t.events(), [CANCELLED]);
      await t.stop();
    });

  test('happens if the newer generation without the taint goes again', async () => {
    const t = await planned();
    t.client.seed(resourceSlices, slice({ gpu: [] }, { name: 'new', generation: 2 }));
    await t.advance(120 * SECONDS);
    assert.deepEqual(evicted(t), []);
    await t.client.delete(resourceSlices, '', 'new');
    await t.advance(100);
    assert.deepEqual(evicted(t), ['p']);
    await t.stop();
  });

  test('does not concern the next pod of the name', async () => {
    const t = await planned();
    t.client.seed(pods, { ...pod('p'), metadata: { name: 'p', namespace: 'n', uid: 'pod-next' } });
    await t.advance(3600 * SECONDS);
    assert.deepEqual(evicted(t), []);
    assert.equal(t.client.peek(pods, 'n', 'p')?.metadata.uid, 'pod-next');
    assert.deepEqual(t.events(), []);
    await t.stop();
  });
});

test('a controller that starts between the condition and the deletion deletes the pod and keeps the condition', async () => {
  const condition = {
    type: 'DisruptionTarget',
    status: 'True',
    reason: 'DeletionByDeviceTaintManager',
    message: 'Device Taint manager: deleting due to NoExecute taint',
    lastTransitionTime: '2025-12-31T00:00:00Z',
  };
  const t = await started(
    { ...pod('p'), status: { phase: 'Running', conditions: [condition] } },
    claim({ gpu: [] }),
    slice({ gpu: [taint()] }),
  );
  assert.deepEqual(evicted(t), ['p']);
  assert.deepEqual(t.client.peek(pods, 'n', 'p')?.status?.conditions, [condition]);
  assert.equal(t.client.calls.filter(({ verb }) => verb === 'patch').length, 0);
  await t.stop();
});

test('a deletion that fails is tried again', async () => {
  const t = controllerTest({
    objects: [
      [pods, pod('p')],
      [resourceClaims, claim({ gpu: [] })],
      [resourceSlices, slice({ gpu: [taint()] })],
    ],
  });
  let failures = 2;
  t.client.intercept(({ verb, resource }) => {
    if (verb === 'delete' && resource === pods && failures-- > 0) throw newServiceUnavailable('not now');
    return undefined;
  });
  await t.start(runDeviceTaintEviction);
  await t.advance(SECONDS);
  assert.deepEqual(evicted(t), ['p']);
  assert.equal(t.client.calls.filter(({ verb, resource }) => verb === 'patch' && resource === pods).length, 1);
  await t.stop();
});

for (const [what, generation] of [
  ['of the same generation', 1],
  ['of a newer one', 999],
] as const) {
  test(`a node evicts no pod of another node by a slice ${what} with the name of its pool`, async () => {
    const t = await started(
      pod('p'),
      claim({ gpu: [] }),
      slice({ gpu: [] }),
      slice({ gpu: [taint()] }, { name: 'hostile', nodeName: 'hostile', generation }),
    );
    assert.deepEqual(evicted(t), []);
    await t.stop();
  });

  test(`a node keeps no pod of another node on a tainted device by a slice ${what}`, async () => {
    const t = await started(
      pod('p'),
      claim({ gpu: [] }),
      slice({ gpu: [] }, { name: 'hostile', nodeName: 'hostile', generation }),
      slice({ gpu: [taint()] }),
    );
    assert.deepEqual(evicted(t), ['p']);
    await t.stop();
  });
}
