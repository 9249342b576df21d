import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import type { Pod } from '../../../../../agent/base/model/pod.ts';
import { type PodConsumption, rankPods } from '../../../../../agent/resources/eviction/ranking.ts';
import type { StarvedResource } from '../../../../../agent/resources/eviction/thresholds.ts';
import { pod, type PodShape } from './pods.ts';

const MI = 1024 * 1024;
const used = (given: Partial<PodConsumption>): PodConsumption => ({
  memoryBytes: 0,
  processes: 0,
  diskBytes: 0,
  inodes: 0,
  ...given,
});

function order(
  resource: StarvedResource,
  rows: readonly (readonly [PodShape, PodConsumption | undefined])[],
): string[] {
  const usage = new Map(rows.map(([shape, consumption]) => [`uid-${shape.name}`, consumption]));
  const of = (one: Pod): PodConsumption | undefined => usage.get(one.metadata.uid);
  return rankPods(
    rows.map(([shape]) => pod(shape)),
    of,
    resource,
  ).map((ranked) => ranked.pod.metadata.name);
}

describe('the ranking of pods', () => {
  it('for memory takes those above their request first, whatever their priority', () => {
    assert.deepEqual(
      order('memory', [
        [{ name: 'within', memory: '100Mi', priority: -5 }, used({ memoryBytes: 90 * MI })],
        [{ name: 'above', memory: '10Mi', priority: 1000 }, used({ memoryBytes: 11 * MI })],
      ]),
      ['above', 'within'],
    );
  });

  it('among those evicts the lower priority first, then the pod that is furthest above its request', () => {
    assert.deepEqual(
      order('memory', [
        [{ name: 'little', memory: '10Mi' }, used({ memoryBytes: 20 * MI })],
        [{ name: 'much', memory: '100Mi' }, used({ memoryBytes: 150 * MI })],
        [{ name: 'unimportant', memory: '10Mi', priority: -1 }, used({ memoryBytes: 11 * MI })],
      ]),
      ['unimportant', 'much', 'little'],
    );
  });

  it('evicts pods with unknown usage first', () => {
    assert.deepEqual(
      order('memory', [
        [{ name: 'known' }, used({ memoryBytes: 500 * MI })],
        [{ name: 'unknown', memory: '1Gi' }, undefined],
      ]),
      ['unknown', 'known'],
    );
  });

  it('for disks measures against the request of ephemeral storage', () => {
    assert.deepEqual(
      order('ephemeral-storage', [
        [{ name: 'asked', storage: '1Gi' }, used({ diskBytes: 900 * MI })],
        [{ name: 'sneaky' }, used({ diskBytes: 2 * MI })],
      ]),
      ['sneaky', 'asked'],
    );
  });

  it('for inodes and processes takes the lower priority, then the greater number', () => {
    assert.deepEqual(
      order('pids', [
        [{ name: 'few' }, used({ processes: 3 })],
        [{ name: 'many' }, used({ processes: 300 })],
        [{ name: 'low', priority: -1 }, used({ processes: 1 })],
      ]),
      ['low', 'many', 'few'],
    );
    assert.deepEqual(
      order('inodes', [
        [{ name: 'few' }, used({ inodes: 3 })],
        [{ name: 'many' }, used({ inodes: 300 })],
      ]),
      ['many', 'few'],
    );
  });

  it('for inodes deducts the request of ephemeral storage, as the kubelet does', () => {
    assert.deepEqual(
      order('inodes', [
        [{ name: 'many', storage: '1Gi' }, used({ inodes: 300 })],
        [{ name: 'few' }, used({ inodes: 3 })],
      ]),
      ['few', 'many'],
    );
  });

  it('spares static pods and those of the system', () => {
    const ranked = rankPods(
      [
        pod({ name: 'static', isStatic: true }),
        pod({ name: 'critical', priority: 2_000_001_000 }),
        pod({ name: 'plain' }),
      ],
      () => used({ memoryBytes: MI }),
      'memory',
    );
    assert.deepEqual(
      new Map(ranked.map((entry) => [entry.pod.metadata.name, entry.spared])),
      new Map([
        ['plain', false],
        ['static', true],
        ['critical', true],
      ]),
    );
  });

  it('does not depend on the order in which pods are given', () => {
    const shapes = fc.uniqueArray(
      fc.record({ memory: fc.nat(100), used: fc.nat(100), priority: fc.integer({ min: -2, max: 2 }) }),
      { maxLength: 8, selector: ({ memory, used: usage, priority }) => `${usage - memory}/${priority}/${usage}` },
    );
    fc.assert(
      fc.property(shapes, (rows) => {
        const given = rows.map(
          (row, index) =>
            [
              { name: `p${index}`, memory: `${row.memory}Mi`, priority: row.priority },
              used({ memoryBytes: row.used * MI }),
            ] as const,
        );
        assert.deepEqual(order('memory', given), order('memory', given.toReversed()));
      }),
    );
  });
});
