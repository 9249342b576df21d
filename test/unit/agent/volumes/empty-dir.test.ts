import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Pod } from '../../../../agent/base/model/pod.ts';
import { hugePageSize, memoryVolumeBytes } from '../../../../agent/volumes/empty-dir.ts';

const MI = 1024 * 1024;

function podOf(limits: readonly (string | undefined)[], more: Partial<Pod['spec']> = {}): Pod {
  const containers = limits.map((memory, index) => ({
    name: `c${index}`,
    resources: memory === undefined ? {} : { limits: { memory } },
  }));
  return { metadata: { name: 'p', namespace: 'ns', uid: 'p' }, spec: { containers, ...more } };
}

describe('the size of a volume in memory', () => {
  const init = (memory: string | undefined, restartPolicy?: string): object => ({
    name: 'i',
    resources: memory === undefined ? {} : { limits: { memory } },
    ...(restartPolicy === undefined ? {} : { restartPolicy }),
  });
  const table: [string, Pod, string | undefined, number, number][] = [
    ['what pods may use of the node', podOf([undefined]), undefined, 512 * MI, 512 * MI],
    ['its own limit', podOf([undefined]), '64Mi', 512 * MI, 64 * MI],
    ['what pods may use, where its limit is above that', podOf([undefined]), '1Gi', 512 * MI, 512 * MI],
    ['the limits of the containers together', podOf(['32Mi', '16Mi']), undefined, 512 * MI, 48 * MI],
    ['the limits of the containers, where its own is above', podOf(['32Mi']), '64Mi', 512 * MI, 32 * MI],
    ['no limit of containers, where one has none', podOf(['32Mi', undefined]), undefined, 512 * MI, 512 * MI],
    [
      'the limit of the pod',
      podOf(['32Mi'], { resources: { limits: { memory: '128Mi' } } }),
      undefined,
      512 * MI,
      128 * MI,
    ],
    [
      'the limit of an init container that is larger',
      podOf(['32Mi'], { initContainers: [init('100Mi')] as never }),
      undefined,
      512 * MI,
      100 * MI,
    ],
    [
      'the limits of containers and sidecars together',
      podOf(['32Mi'], { initContainers: [init('8Mi', 'Always')] as never }),
      undefined,
      512 * MI,
      40 * MI,
    ],
    ['no limit where nothing is known', podOf([undefined]), undefined, 0, 0],
  ];
  for (const [what, pod, limit, allocatable, expected] of table)
    it(`is ${what}`, () => assert.equal(memoryVolumeBytes(pod, limit, allocatable), expected));
});

describe('the page size of a volume of huge pages', () => {
  const asking = (...sizes: string[]): Pod => ({
    metadata: { name: 'p', namespace: 'ns', uid: 'p' },
    spec: {
      containers: sizes.map((size) => ({
        name: size,
        resources: { requests: { [`hugepages-${size}`]: '4Mi' }, limits: { [`hugepages-${size}`]: '4Mi' } },
      })),
    },
  });
  it('is that of its medium, or the one that the containers request', () => {
    assert.equal(hugePageSize(asking('2Mi', '1Gi'), 'HugePages-1Gi'), '1Gi');
    assert.equal(hugePageSize(asking('2Mi', '2Mi'), 'HugePages'), '2Mi');
  });
  it('must be the only one that a container requests', () => {
    const none = 'hugePages storage requested, but there is no resource request for huge pages';
    const several = "can't be used if container requests multiple huge page sizes";
    const refused = (medium: string, message: string, ...sizes: string[]): void =>
      assert.throws(() => hugePageSize(asking(...sizes), medium), { message });
    refused('HugePages-1Gi', `medium HugePages-1Gi: ${none}`, '2Mi');
    refused('HugePages', `medium HugePages: ${none}`);
    refused('HugePages', `medium: HugePages ${several}`, '2Mi', '1Gi');
  });
});
