/** Tests how the hints of several resources are merged. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { NumaNode } from '../../../../../agent/resources/managers/topology/host-topology.ts';
import { countNodes, maskOf } from '../../../../../agent/resources/managers/topology/numa-mask.ts';
import {
  mergeHints,
  type MergeOptions,
  type TopologyHint,
} from '../../../../../agent/resources/managers/topologymanager/hints.ts';

/** Returns NUMA nodes. Nodes 0 and 1 are close to each other, and so are 2 and 3. */
const nodes = (count: number): NumaNode[] =>
  Array.from({ length: count }, (_, id) => ({
    id,
    memoryBytes: 1,
    hugePages: new Map<number, number>(),
    distances: new Map(
      Array.from({ length: count }, (_unused, to) => [to, to === id ? 10 : to >> 1 === id >> 1 ? 11 : 21]),
    ),
  }));

const hint = (preferred: boolean, ...ids: number[]): TopologyHint => ({ affinity: maskOf(ids), preferred });
const merge = (
  policy: MergeOptions['policy'],
  hints: Parameters<typeof mergeHints>[0],
  options: Partial<MergeOptions> = {},
) => mergeHints(hints, { policy, numaNodes: nodes(2), preferClosest: false, ...options });

test('without preferences every policy admits any node', () => {
  for (const policy of ['best-effort', 'restricted'] as const)
    assert.deepEqual(merge(policy, [{}, { cpu: undefined }]), { hint: hint(true, 0, 1), admitted: true });
  assert.deepEqual(merge('single-numa-node', [{}]), { hint: { affinity: undefined, preferred: true }, admitted: true });
});

test('the common node of all preferred hints wins', () => {
  const cpu = { cpu: [hint(true, 0), hint(true, 1), hint(false, 0, 1)] };
  const gpu = { gpu: [hint(true, 1), hint(false, 0, 1)] };
  for (const policy of ['best-effort', 'restricted', 'single-numa-node'] as const)
    assert.deepEqual(merge(policy, [cpu, gpu]), { hint: hint(true, 1), admitted: true });
});

test('resources on different nodes are admitted or rejected by the policy', () => {
  const apart = [{ cpu: [hint(true, 0)] }, { gpu: [hint(true, 1)] }];
  assert.deepEqual(merge('best-effort', apart), { hint: hint(false, 0, 1), admitted: true });
  assert.equal(merge('restricted', apart).admitted, false);
  assert.equal(merge('single-numa-node', apart).admitted, false);
});

test('only single-numa-node rejects a request that needs two nodes', () => {
  const wide = [{ cpu: [hint(true, 0, 1)] }];
  assert.equal(merge('best-effort', wide).admitted, true);
  assert.deepEqual(merge('restricted', wide), { hint: hint(true, 0, 1), admitted: true });
  assert.deepEqual(merge('single-numa-node', wide), {
    hint: { affinity: undefined, preferred: false },
    admitted: false,
  });
});

test('a resource that no node can provide is never preferred', () => {
  assert.equal(merge('restricted', [{ cpu: [hint(true, 0)] }, { gpu: [] }]).admitted, false);
  assert.equal(merge('best-effort', [{ gpu: [] }]).admitted, true);
});

test('with prefer-closest-numa-nodes, close nodes are preferred', () => {
  const pairs = [{ cpu: [hint(true, 0, 2), hint(true, 2, 3)] }];
  const four = { numaNodes: nodes(4) };
  assert.deepEqual(merge('best-effort', pairs, four).hint, hint(true, 0, 2));
  assert.deepEqual(merge('best-effort', pairs, { ...four, preferClosest: true }).hint, hint(true, 2, 3));
});

const someHints = fc.array(
  fc.dictionary(
    fc.constantFrom('cpu', 'memory', 'gpu'),
    fc.option(
      fc.array(
        fc.record({ affinity: fc.subarray([0, 1, 2, 3], { minLength: 1 }).map(maskOf), preferred: fc.boolean() }),
        { maxLength: 4 },
      ),
      { nil: undefined },
    ),
    { maxKeys: 2 },
  ),
  { maxLength: 3 },
);

test('hints lie within the host, policies are ordered by strictness, and the order of providers does not matter', () => {
  const all = maskOf([0, 1, 2, 3]);
  const four = { numaNodes: nodes(4) };
  fc.assert(
    fc.property(someHints, fc.boolean(), (hints, preferClosest) => {
      const options = { ...four, preferClosest };
      const effort = merge('best-effort', hints, options);
      const restricted = merge('restricted', hints, options);
      const single = merge('single-numa-node', hints, options);
      assert.equal(effort.admitted, true);
      assert.deepEqual(restricted.hint, effort.hint);
      assert.equal(restricted.admitted, restricted.hint.preferred);
      if (single.admitted) assert.equal(restricted.admitted, true);
      assert.equal((effort.hint.affinity ?? all) & ~all, 0n);
      if (single.hint.affinity !== undefined) assert.equal(countNodes(single.hint.affinity), 1);
      const turned = merge('restricted', hints.toReversed(), options);
      assert.equal(turned.admitted, restricted.admitted);
      if (restricted.admitted) assert.deepEqual(turned.hint, restricted.hint);
    }),
    { numRuns: 400 },
  );
});
