/** Tests that a recording of a soak test is read as it was written. */
import assert from 'node:assert/strict';
import { rmSync } from 'node:fs';
import { dirname } from 'node:path';
import { test } from 'node:test';
import type { Recording } from '../../soak/clients.ts';
import { violations } from '../../soak/history.ts';
import { keepRecording, readRecording } from '../../soak/recording.ts';

test('a kept recording of a soak test gets the same judgement when it is read again', () => {
  const event = (revision: number) => ({
    type: 'ADDED' as const,
    key: `k${revision}`,
    revision,
    value: `v${revision}`,
  });
  const recording: Recording = {
    operations: [
      { kind: 'list', startMs: 5, endMs: 6, revision: 2, items: new Map([['k1', { revision: 1, value: 'v1' }]]) },
      { kind: 'read', startMs: 7, endMs: 8, key: 'k3', found: undefined },
      {
        kind: 'write',
        startMs: 1,
        endMs: 2,
        key: 'k3',
        value: 'lost',
        expected: undefined,
        outcome: 'done',
        revision: 5,
      },
    ],
    segments: [{ name: 'w', from: 0, through: 9, events: [event(1), event(2)] }],
    counts: new Map([['kills', 3]]),
  };
  const file = keepRecording(recording, 7);
  try {
    const read = readRecording(file);
    assert.deepEqual(read, recording);
    const found = violations(read.operations, read.segments);
    assert.ok(found.length > 0, 'the acknowledged write is in no watch');
    assert.deepEqual(found, violations(recording.operations, recording.segments));
  } finally {
    rmSync(dirname(file), { recursive: true });
  }
});
