import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { advance, CALM, type PressureState } from '../../../../../agent/resources/eviction/pressure-state.ts';
import { parseThresholds, type Threshold } from '../../../../../agent/resources/eviction/thresholds.ts';

const parse = (
  hard: Record<string, string>,
  soft: Record<string, string> = {},
  minimumReclaim: Record<string, string> = {},
): readonly Threshold[] =>
  parseThresholds({
    hard,
    soft,
    softGracePeriod: Object.fromEntries(Object.keys(soft).map((name) => [name, '30s'])),
    minimumReclaim,
    enforcePods: false,
  });

function walk(
  thresholds: readonly Threshold[],
  steps: readonly (readonly [atSeconds: number, available: number])[],
): { readonly due: number; readonly conditions: string[] }[] {
  let state: PressureState = CALM;
  return steps.map(([atSeconds, available]) => {
    state = advance(state, {
      thresholds,
      observations: new Map([['memory.available', { available, capacity: 1000 }]]),
      nowMs: atSeconds * 1000,
      transitionPeriodMs: 60_000,
    });
    return { due: state.due.length, conditions: [...state.conditions] };
  });
}

describe('the state of pressure', () => {
  it('acts on a hard threshold at once, and reports the condition until the transition period is over', () => {
    assert.deepEqual(
      walk(parse({ 'memory.available': '100' }), [
        [0, 500],
        [10, 50],
        [20, 500],
        [69, 500],
        [71, 500],
      ]),
      [
        { due: 0, conditions: [] },
        { due: 1, conditions: ['MemoryPressure'] },
        { due: 0, conditions: ['MemoryPressure'] },
        { due: 0, conditions: ['MemoryPressure'] },
        { due: 0, conditions: [] },
      ],
    );
  });

  it('acts on a soft threshold only when it was crossed all through its grace period', () => {
    const soft = parse({}, { 'memory.available': '100' });
    assert.deepEqual(
      walk(soft, [
        [0, 50],
        [20, 50],
        [25, 500],
        [30, 50],
        [59, 50],
        [60, 50],
      ]).map(({ due }) => due),
      [0, 0, 0, 0, 0, 1],
    );
  });

  it('continues until the minimum is reclaimed', () => {
    const reclaiming = parse({ 'memory.available': '100' }, {}, { 'memory.available': '100' });
    assert.deepEqual(
      walk(reclaiming, [
        [0, 150],
        [1, 50],
        [2, 150],
        [3, 250],
      ]).map(({ due }) => due),
      [0, 1, 1, 0],
    );
  });

  it('asks for no minimum while the grace period of a soft threshold is not over', () => {
    const soft = parse({}, { 'memory.available': '100' }, { 'memory.available': '100' });
    assert.deepEqual(
      walk(soft, [
        [0, 50],
        [20, 150],
        [31, 150],
        [32, 50],
        [62, 50],
        [63, 150],
      ]).map(({ due }) => due),
      [0, 0, 0, 0, 1, 1],
    );
  });
});
