/** Tests the disk usage of pods: the amounts by which pods are ranked, and the limits that they can exceed. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { consumptionFrom } from '../../../../../agent/resources/eviction/consumption.ts';
import { exceededStorage, hasStorageLimits } from '../../../../../agent/resources/eviction/local-storage.ts';
import type { PodStorage, VolumeUsage } from '../../../../../agent/resources/statistics/storage-usage.ts';
import { NO_USAGE, type UsageSnapshot } from '../../../../../agent/resources/statistics/usage.ts';
import { pod } from './pods.ts';

const MIB = 1024 * 1024;
const disk = (mib: number) => ({ usedBytes: mib * MIB, inodesUsed: mib });
const volume = (name: string, mib: number, more: Partial<VolumeUsage> = {}): VolumeUsage => ({
  name,
  usage: disk(mib),
  filesystem: undefined,
  ephemeral: true,
  memory: false,
  claim: '',
  ...more,
});

/** 1 MiB of layers, 2 MiB of logs, and 4 MiB of ephemeral volumes on disk. Other usage does not count. */
const written: PodStorage = {
  containers: new Map([['main', { layer: disk(1), logs: disk(2) }]]),
  volumes: [
    volume('scratch', 4),
    volume('memory', 8, { memory: true }),
    volume('claimed', 16, { ephemeral: false, claim: 'data' }),
  ],
  ephemeral: disk(7),
};

const emptySnapshot: UsageSnapshot = {
  timeMs: 0,
  node: NO_USAGE,
  nodeNanoCores: undefined,
  allPods: undefined,
  qosClasses: [],
  pods: [],
};

describe('a pod is ranked by', () => {
  const web = pod({ name: 'web' });
  const storage = new Map([['uid-web', written]]);
  for (const [parts, mib] of [
    [['layers', 'logs', 'volumes'], 7],
    [['logs', 'volumes'], 6],
    [['layers'], 1],
    [[], 0],
  ] as const)
    it(`${mib} MiB where ${parts.length === 0 ? 'nothing' : parts.join(', ')} count`, () => {
      const { diskBytes, inodes } = consumptionFrom(emptySnapshot, storage, parts).of(web) ?? {};
      assert.deepEqual({ diskBytes, inodes }, { diskBytes: mib * MIB, inodes: mib });
    });

  it('nothing that is known, if neither its usage nor its storage was measured', () => {
    assert.equal(consumptionFrom(emptySnapshot, new Map(), ['layers']).of(web), undefined);
  });

  it('its memory and processes, and the message names its containers with what each has written', () => {
    const usage = { ...NO_USAGE, memory: { ...NO_USAGE.memory, workingSetBytes: 5 * MIB } };
    const container = { id: 'c1', image: 'i', startedAtMs: 0, cgroup: '', timeMs: 0, usage, nanoCores: undefined };
    const own = { pod: web, cgroup: '', timeMs: 0, usage, nanoCores: undefined, interfaces: [] };
    const snapshot = { ...emptySnapshot, pods: [{ ...own, containers: [{ name: 'main', ...container }] }] };
    const consumption = consumptionFrom(snapshot, storage, ['layers']);
    assert.equal(consumption.of(web)?.memoryBytes, 5 * MIB);
    assert.deepEqual(consumption.measured(web), {
      memoryBytes: 5 * MIB,
      containers: [{ name: 'main', memoryBytes: 5 * MIB, diskBytes: 3 * MIB }],
    });
  });
});

describe('the limits of a pod for storage', () => {
  const exceeded = (limited: Pod, dedicatedImages = false): string | undefined => {
    assert.ok(hasStorageLimits(limited));
    return exceededStorage(limited, written, { dedicatedImages })?.message;
  };

  it('need no measurement where there are none', () => {
    assert.equal(hasStorageLimits(pod({ name: 'web', storage: '1Gi' })), false);
  });

  it('of an emptyDir hold to the byte', () => {
    assert.equal(exceeded(pod({ name: 'web', emptyDirLimit: '4Mi' })), undefined);
    assert.match(
      exceeded(pod({ name: 'web', emptyDirLimit: '4194303' })) ?? '',
      /^Usage of EmptyDir volume "scratch" exceeds the limit "4194303"/,
    );
  });

  it('of zero does not limit an emptyDir', () => {
    assert.equal(exceeded(pod({ name: 'web', emptyDirLimit: '0' })), undefined);
  });

  it('together hold for layers, logs and ephemeral volumes', () => {
    assert.equal(exceeded(pod({ name: 'web', storageLimit: '7Mi' })), undefined);
    assert.match(
      exceeded(pod({ name: 'web', storageLimit: '6Mi' })) ?? '',
      /exceeds the total limit of containers 6Mi/,
    );
  });

  it('of a container hold for its layer and logs, and only for its logs where images have a disk of their own', () => {
    const web = pod({ name: 'web', storageLimit: '2Mi' });
    const second = { name: 'second', image: 'x', resources: { limits: { 'ephemeral-storage': '1Gi' } } };
    const two = { ...web, spec: { ...web.spec, containers: [...web.spec.containers, second] } } as Pod;
    assert.match(exceeded(two) ?? '', /^Container main exceeded its local ephemeral storage limit "2Mi"/);
    assert.equal(exceeded(two, true), undefined);
  });
});
