import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { NodeObject } from '../../../../../agent/model/core-types.ts';
import { transitions } from '../../../../../agent/node/status/transitions.ts';

const node = (conditions: Record<string, string>): NodeObject =>
  ({
    metadata: { name: 'n' },
    status: { conditions: Object.entries(conditions).map(([type, status]) => ({ type, status })) },
  }) as unknown as NodeObject;

it('reports only the conditions that changed', () => {
  assert.deepEqual(
    transitions(
      node({ Ready: 'False', DiskPressure: 'False', MemoryPressure: 'True' }),
      node({ Ready: 'True', DiskPressure: 'False', MemoryPressure: 'False', Odd: 'True' }),
    ),
    ['NodeReady', 'NodeHasSufficientMemory'],
  );
});

it('reports all conditions of a new node', () => {
  assert.deepEqual(transitions({ metadata: { name: 'n' } }, node({ PIDPressure: 'False', Ready: 'False' })), [
    'NodeHasSufficientPID',
    'NodeNotReady',
  ]);
});
