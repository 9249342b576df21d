import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import {
  amountOf,
  byUrgency,
  conditionOf,
  formatAmount,
  formatValue,
  isMet,
  parseThresholds,
  resourceOf,
  type Signal,
  SIGNALS,
  type Threshold,
  type ThresholdFlags,
  ThresholdError,
  thresholdsMet,
} from '../../../../../agent/resources/eviction/thresholds.ts';

const flags = (given: Partial<ThresholdFlags>): ThresholdFlags => ({
  hard: {},
  soft: {},
  softGracePeriod: {},
  minimumReclaim: {},
  enforcePods: false,
  ...given,
});
const only = (given: Partial<ThresholdFlags>): Threshold => {
  const [first, second] = parseThresholds(flags(given));
  assert.ok(first !== undefined && second === undefined);
  return first;
};

describe('eviction thresholds', () => {
  it('are quantities or percentages, with or without the sign of a comparison', () => {
    assert.equal(formatValue(only({ hard: { 'memory.available': '100Mi' } }).value), '100Mi');
    assert.equal(formatValue(only({ hard: { 'nodefs.available': '<10%' } }).value), '10%');
  });

  it('compute percentages as the kubelet does, so that the allocatable amounts are the same to the byte', () => {
    const { value } = only({ hard: { 'nodefs.available': '10%' } });
    assert.equal(270_553_174_016 - amountOf(value, 270_553_174_016), 243_497_856_212);
  });

  it('are switched off by 0 % and 100 %', () => {
    assert.deepEqual(parseThresholds(flags({ hard: { 'nodefs.available': '0%', 'imagefs.available': '100%' } })), []);
  });

  it('have the grace period and the minimum reclaim that other flags set for their signal', () => {
    const soft = only({
      soft: { 'memory.available': '1Gi' },
      softGracePeriod: { 'memory.available': '1m30s' },
      minimumReclaim: { 'memory.available': '500Mi' },
    });
    assert.equal(soft.gracePeriodMs, 90_000);
    assert.equal(soft.minimumReclaim === undefined ? '' : formatValue(soft.minimumReclaim), '500Mi');
  });

  it('limit all pods together to the same amount if the allocatable amounts are enforced', () => {
    const signals = parseThresholds(flags({ hard: { 'memory.available': '100Mi' }, enforcePods: true })).map(
      ({ signal }) => signal,
    );
    assert.deepEqual(signals, ['memory.available', 'allocatableMemory.available']);
  });

  for (const [name, given, message] of [
    ['an unknown signal', { hard: { 'memory.free': '1Gi' } }, 'unsupported eviction signal memory.free'],
    [
      'a soft threshold without a grace period',
      { soft: { 'memory.available': '1Gi' } },
      'grace period must be specified for the soft eviction threshold memory.available',
    ],
    [
      'a percentage above 100',
      { hard: { 'nodefs.available': '110%' } },
      'eviction percentage threshold nodefs.available must be <= 100%: 110%',
    ],
    [
      'a negative amount',
      { hard: { 'memory.available': '-1Gi' } },
      'eviction threshold memory.available must be positive: -1Gi',
    ],
    [
      'an amount of zero',
      { hard: { 'memory.available': '0' } },
      'eviction threshold memory.available must be positive: 0',
    ],
    [
      'a negative amount in other units',
      { hard: { 'memory.available': '-1024Mi' } },
      'eviction threshold memory.available must be positive: -1Gi',
    ],
    [
      'a minimum reclaim of 0 %',
      { minimumReclaim: { 'nodefs.available': '0%' } },
      'eviction percentage minimum reclaim nodefs.available must be positive: 0%',
    ],
    [
      'a negative minimum reclaim',
      { minimumReclaim: { 'nodefs.available': '-1Gi' } },
      'negative eviction minimum reclaim specified for nodefs.available',
    ],
    [
      'a negative grace period',
      { soft: { 'memory.available': '1Gi' }, softGracePeriod: { 'memory.available': '-1m' } },
      'invalid eviction grace period specified: -1m, must be a positive value',
    ],
  ] as const) {
    it(`refuse ${name}`, () => {
      assert.throws(
        () => parseThresholds(flags(given)),
        (error) => error instanceof ThresholdError && error.message === message,
      );
    });
  }

  it('are met below the amount, and with a minimum reclaim below the sum of both', () => {
    const threshold = only({ hard: { 'memory.available': '100' }, minimumReclaim: { 'memory.available': '50' } });
    const at = (available: number, withReclaim: boolean): boolean =>
      isMet(threshold, { available, capacity: 1000 }, { withReclaim });
    assert.deepEqual([at(99, false), at(100, false), at(120, true), at(150, true)], [true, false, true, false]);
  });

  it('are not met if their signal is unknown', () => {
    assert.deepEqual(
      thresholdsMet(parseThresholds(flags({ hard: { 'pid.available': '10%' } })), new Map(), { withReclaim: false }),
      [],
    );
  });

  it('of memory come first', () => {
    const parsed = parseThresholds(flags({ hard: { 'nodefs.available': '10%', 'memory.available': '1Gi' } }));
    assert.equal(byUrgency(parsed)[0]?.signal, 'memory.available');
  });

  it('stay met when less is free', () => {
    const threshold = only({ hard: { 'nodefs.available': '10%' } });
    fc.assert(
      fc.property(fc.nat(1e12), fc.nat(1e12), fc.nat(1e9), (capacity, available, less) => {
        const met = isMet(threshold, { available, capacity }, { withReclaim: false });
        return !met || isMet(threshold, { available: Math.max(0, available - less), capacity }, { withReclaim: false });
      }),
    );
  });

  it('are formatted with binary units for bytes and plain numbers for counts', () => {
    assert.equal(formatAmount('memory', 100 * 1024 * 1024), '100Mi');
    assert.equal(formatAmount('inodes', 838_860), '838860');
  });
});

describe('an eviction signal', () => {
  /** The conditions and resources of the kubelet (`signalToNodeCondition`, `signalToResource`). */
  const expected: Readonly<Record<Signal, readonly [condition: string, resource: string]>> = {
    'memory.available': ['MemoryPressure', 'memory'],
    'allocatableMemory.available': ['MemoryPressure', 'memory'],
    'nodefs.available': ['DiskPressure', 'ephemeral-storage'],
    'nodefs.inodesFree': ['DiskPressure', 'inodes'],
    'imagefs.available': ['DiskPressure', 'ephemeral-storage'],
    'imagefs.inodesFree': ['DiskPressure', 'inodes'],
    'containerfs.available': ['DiskPressure', 'ephemeral-storage'],
    'containerfs.inodesFree': ['DiskPressure', 'inodes'],
    'pid.available': ['PIDPressure', 'pids'],
  };
  for (const signal of SIGNALS)
    it(`${signal} sets the condition ${expected[signal][0]} and is about ${expected[signal][1]}`, () => {
      assert.deepEqual([conditionOf(signal), resourceOf(signal)], expected[signal]);
    });
});
