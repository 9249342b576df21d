import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '../../../../api/meta/object.ts';
import type { ExpectedKind } from '../../../../controlplane/registry/object-decoding.ts';
import { patchObject } from '../../../../controlplane/registry/object-patching.ts';
import { atOnce, inTurns } from '../../../../api/machinery/pausing.ts';
import { turnsOf } from '../../../fakes/ticking-clock.ts';

const CONFIG_MAP = {} as ExpectedKind;

describe('JSON patches', () => {
  it('report members that no operation has, and duplicate members', () => {
    const patched = atOnce(
      patchObject(
        { metadata: { name: 'a' } },
        {
          type: 'json',
          body: [
            { op: 'add', path: '/x', value: { foo: 1 } },
            { op: 'test', path: '/x/foo', value: 1, why: '' },
          ],
          duplicates: ['[0].value.foo'],
        },
        CONFIG_MAP,
      ),
    );
    assert.deepEqual(patched.faults?.(), [
      'json patch duplicate field "[0].value.foo"',
      'json patch unknown field "[1].why"',
    ]);
    assert.deepEqual(patched.value, { metadata: { name: 'a' }, x: { foo: 1 } });
  });

  it('have nothing wrong where every member is known', () => {
    const body = [{ op: 'move', from: '/a', path: '/b' }];
    const patched = atOnce(patchObject({ metadata: {}, a: 1 }, { type: 'json', body, duplicates: [] }, CONFIG_MAP));
    assert.deepEqual(patched.faults?.(), []);
  });

  it('name the fields of numbers that are written with a fraction or an exponent', () => {
    const body = [
      { op: 'test', path: '/kind', value: 'x' },
      { op: 'add', path: '/spec/ports/0', value: { port: 80 } },
    ];
    const decimals = new Map([['[1].value.port', '8e1']]);
    const object = { kind: 'x', metadata: {}, spec: { ports: [] } };
    const patched = atOnce(patchObject(object, { type: 'json', body, duplicates: [], decimals }, CONFIG_MAP));
    assert.deepEqual([...(patched.decimals ?? [])], [['spec.ports[0].port', '8e1']]);
  });

  it('that move a long list ten thousand times let others have the event loop', async () => {
    const items = Array.from({ length: 90_000 }, (_, at) => at);
    const body = Array.from({ length: 10_000 }, () => ({ op: 'move', from: '/items/89999', path: '/items/0' }));
    const object = { metadata: {}, items } as KubeObject;
    const { result, turns } = await turnsOf(() =>
      inTurns(patchObject(object, { type: 'json', body, duplicates: [] }, CONFIG_MAP)),
    );
    assert.ok(turns >= 100, `${turns} turns`);
    assert.equal((result.value as unknown as { items: number[] }).items[0], 80_000);
  });
});
