import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { changes } from '../../../../../agent/runtime/cri/cri-events.ts';

const [created, running, exited] = [0, 1, 2];

type Look = Parameters<typeof changes>[0];
const containers = (states: Readonly<Record<string, number>>): Look =>
  new Map(Object.entries(states).map(([id, state]) => [id, { podUid: 'pod', state, sandbox: false }]));
const told = (before: Look, after: Look): readonly string[] =>
  changes(before, after).map(({ type, containerId }) => `${type} ${containerId}`);

describe('events from two looks at a runtime', () => {
  it('tells of creation, start and end', () => {
    assert.deepEqual(told(containers({}), containers({ a: created })), ['created a']);
    assert.deepEqual(told(containers({ a: created }), containers({ a: running })), ['started a']);
    assert.deepEqual(told(containers({ a: running }), containers({ a: exited })), ['stopped a']);
    assert.deepEqual(told(containers({ a: exited }), containers({})), ['deleted a']);
  });

  it('leaves out nothing of what was too quick to be seen', () => {
    assert.deepEqual(told(containers({}), containers({ a: exited })), ['created a', 'started a', 'stopped a']);
    assert.deepEqual(told(containers({ a: created }), containers({ a: exited })), ['started a', 'stopped a']);
  });

  it('says nothing where nothing changed', () =>
    assert.deepEqual(told(containers({ a: running }), containers({ a: running })), []));

  it('tells of a sandbox as such', () => {
    const sandbox = (state: number): Look => new Map([['s', { podUid: 'pod', state, sandbox: true }]]);
    assert.deepEqual(told(sandbox(0), sandbox(1)), ['sandbox-changed s']);
    assert.deepEqual(told(sandbox(1), new Map()), ['sandbox-changed s']);
  });
});
