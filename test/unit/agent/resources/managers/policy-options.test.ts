/** Tests the policy options: which exist, which feature gates they need, and which exclude each other. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  checkCpuOptionsFit,
  cpuPolicyOptions,
  topologyPolicyOptions,
} from '../../../../../agent/resources/managers/policy-options.ts';

const DEFAULTS = { alpha: false, beta: true };

test('options of the CPU manager require the feature gate of their stage', () => {
  assert.equal(
    cpuPolicyOptions({ 'full-pcpus-only': 'true' }, { alpha: false, beta: false }).fullPhysicalCpusOnly,
    true,
  );
  assert.equal(cpuPolicyOptions({ 'distribute-cpus-across-numa': 'true' }, DEFAULTS).distributeAcrossNuma, true);
  assert.throws(() => cpuPolicyOptions({ 'distribute-cpus-across-numa': 'true' }, { alpha: true, beta: false }), {
    message: 'CPU Manager Policy Beta-level Options not enabled, but option "distribute-cpus-across-numa" provided',
  });
  assert.throws(() => cpuPolicyOptions({ 'align-by-socket': 'true' }, DEFAULTS), {
    message: 'CPU Manager Policy Alpha-level Options not enabled, but option "align-by-socket" provided',
  });
  assert.throws(() => cpuPolicyOptions({ nope: 'true' }, DEFAULTS), {
    message: 'unknown CPU Manager Policy option: "nope"',
  });
  assert.throws(
    () => cpuPolicyOptions({ 'full-pcpus-only': 'yes' }, DEFAULTS),
    /bad value for option "full-pcpus-only"/,
  );
});

test('options that contradict each other or the host are rejected', () => {
  const all = { alpha: true, beta: true };
  assert.throws(
    () => cpuPolicyOptions({ 'full-pcpus-only': 'true', 'distribute-cpus-across-cores': 'true' }, all),
    /full-pcpus-only and distribute-cpus-across-cores can not be used at the same time/,
  );
  const bySocket = cpuPolicyOptions({ 'align-by-socket': 'true' }, all);
  const fits = (sockets: number, numaNodes: number, topologyPolicy: 'restricted' | 'single-numa-node') => () =>
    checkCpuOptionsFit(bySocket, { sockets, numaNodes, topologyPolicy });
  assert.doesNotThrow(fits(2, 4, 'restricted'));
  assert.throws(fits(2, 4, 'single-numa-node'), /incompatible/);
  assert.throws(fits(2, 1, 'restricted'), /number of sockets are more than number of NUMA/);
});

test('options of the topology manager are validated', () => {
  assert.deepEqual(topologyPolicyOptions({}, DEFAULTS), { preferClosest: false, maxNumaNodes: 8 });
  assert.deepEqual(
    topologyPolicyOptions({ 'prefer-closest-numa-nodes': 'true', 'max-allowable-numa-nodes': '12' }, DEFAULTS),
    {
      preferClosest: true,
      maxNumaNodes: 12,
    },
  );
  assert.throws(
    () => topologyPolicyOptions({ 'max-allowable-numa-nodes': '4' }, DEFAULTS),
    /should not be less than 8/,
  );
  assert.throws(
    () => topologyPolicyOptions({ 'max-allowable-numa-nodes': 'x' }, DEFAULTS),
    /unable to convert policy option to integer/,
  );
  assert.throws(() => topologyPolicyOptions({ nope: '1' }, DEFAULTS), {
    message: 'unknown Topology Manager Policy option: "nope"',
  });
});
