import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { ExpectedKind } from '../../../../controlplane/registry/object-decoding.ts';
import { patchObject } from '../../../../controlplane/registry/object-patching.ts';

const CONFIG_MAP = {} as ExpectedKind;

describe('JSON patches', () => {
  it('report members that no operation has, and duplicate members', () => {
    const patched = patchObject(
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
    );
    assert.deepEqual(patched.faults?.(), [
      'json patch duplicate field "[0].value.foo"',
      'json patch unknown field "[1].why"',
    ]);
    assert.deepEqual(patched.value, { metadata: { name: 'a' }, x: { foo: 1 } });
  });

  it('have nothing wrong where every member is known', () => {
    const body = [{ op: 'move', from: '/a', path: '/b' }];
    const patched = patchObject({ metadata: {}, a: 1 }, { type: 'json', body, duplicates: [] }, CONFIG_MAP);
    assert.deepEqual(patched.faults?.(), []);
  });

  it('name the fields of numbers that are written with a fraction or an exponent', () => {
    const body = [
      { op: 'test', path: '/kind', value: 'x' },
      { op: 'add', path: '/spec/ports/0', value: { port: 80 } },
    ];
    const decimals = new Map([['[1].value.port', '8e1']]);
    const object = { kind: 'x', metadata: {}, spec: { ports: [] } };
    const patched = patchObject(object, { type: 'json', body, duplicates: [], decimals }, CONFIG_MAP);
    assert.deepEqual([...(patched.decimals ?? [])], [['spec.ports[0].port', '8e1']]);
  });
});
