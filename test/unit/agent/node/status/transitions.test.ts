import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { NodeObject } from '../../../../../agent/base/model/node.ts';
import { transitions } from '../../../../../agent/node/status/transitions.ts';

const node = (conditions: Record<string, string>): NodeObject =>
  ({
    metadata: { name: 'n' },
    status: { conditions: Object.entries(conditions).map(([type, status]) => ({ type, status })) },
  }) as unknown as NodeObject;

const reasons = (before: NodeObject, after: NodeObject): readonly string[] =>
  transitions(before, after).map(({ reason }) => reason);

it('reports only the conditions that changed', () => {
  assert.deepEqual(
    reasons(
      node({ Ready: 'False', DiskPressure: 'False', MemoryPressure: 'True' }),
      node({ Ready: 'True', DiskPressure: 'False', MemoryPressure: 'False', Odd: 'True' }),
    ),
    ['NodeReady', 'NodeHasSufficientMemory'],
  );
});

it('reports all conditions of a new node', () => {
  assert.deepEqual(reasons({ metadata: { name: 'n' } }, node({ PIDPressure: 'False', Ready: 'False' })), [
    'NodeHasSufficientPID',
    'NodeNotReady',
  ]);
});

it('reports a host that has been rebooted', () => {
  const booted = (bootID: string): NodeObject =>
    ({ metadata: { name: 'n' }, status: { nodeInfo: { bootID } } }) as unknown as NodeObject;
  assert.deepEqual(transitions(booted('a'), booted('b')), [
    { type: 'Warning', reason: 'Rebooted', message: 'Node n has been rebooted, boot id: b' },
  ]);
  assert.deepEqual([...transitions(booted('a'), booted('a')), ...transitions(booted(''), booted('b'))], []);
});
