import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { equalAs, equalFields } from '../../../../api/schema/semantic-equality.ts';

const POD_SPEC = 'io.k8s.api.core.v1.PodSpec';

describe('the semantic equality of built-in types', () => {
  const cases: readonly { readonly name: string; readonly a: object; readonly b: object; readonly equal: boolean }[] = [
    { name: 'an empty list equals an absent one', a: { tolerations: [] }, b: {}, equal: true },
    { name: 'an empty map equals an absent one', a: { nodeSelector: {} }, b: {}, equal: true },
    { name: 'a null equals an absent field', a: { affinity: null }, b: {}, equal: true },
    { name: 'an empty struct differs from an absent one', a: { affinity: {} }, b: {}, equal: false },
    {
      name: 'a struct with an empty list differs from an absent one',
      a: { dnsConfig: { options: [] } },
      b: {},
      equal: false,
    },
    { name: 'and equals an empty struct', a: { dnsConfig: { options: [] } }, b: { dnsConfig: {} }, equal: true },
    { name: 'a pointer to a zero differs from an absent one', a: { priority: 0 }, b: {}, equal: false },
    { name: 'a false that is no pointer equals an absent one', a: { hostNetwork: false }, b: {}, equal: true },
    {
      name: 'an absent struct that is no pointer equals an empty one',
      a: { containers: [{ name: 'c', resources: {} }] },
      b: { containers: [{ name: 'c' }] },
      equal: true,
    },
    {
      name: 'quantities compare by value',
      a: { overhead: { cpu: '1' } },
      b: { overhead: { cpu: '1000m' } },
      equal: true,
    },
    {
      name: 'lists compare in order',
      a: { tolerations: [{ key: 'a' }, { key: 'b' }] },
      b: { tolerations: [{ key: 'b' }, { key: 'a' }] },
      equal: false,
    },
    {
      name: 'maps compare their keys',
      a: { nodeSelector: { a: '' } },
      b: { nodeSelector: { b: '' } },
      equal: false,
    },
  ];
  for (const { name, a, b, equal } of cases) {
    it(name, () => {
      assert.equal(equalAs(POD_SPEC, a, b), equal);
      assert.equal(equalAs(POD_SPEC, b, a), equal);
    });
  }

  it('takes an absent value as a nil pointer', () => {
    assert.equal(equalAs(POD_SPEC, undefined, null), true);
    assert.equal(equalAs(POD_SPEC, undefined, {}), false);
  });

  it('compares one field of two objects of a kind', () => {
    const policy = { apiVersion: 'networking.k8s.io/v1', kind: 'NetworkPolicy' };
    const withPeer = (peer: object): object => ({ ...policy, spec: { podSelector: {}, ingress: [{ from: [peer] }] } });
    const [bare, empty] = [withPeer({ podSelector: {} }), withPeer({ podSelector: {}, namespaceSelector: {} })];
    assert.equal(equalFields(bare, empty, 'spec'), false);
    assert.equal(equalFields(bare, structuredClone(bare), 'spec'), true);
  });

  it('compares objects of other kinds without a type', () => {
    const object = { apiVersion: 'example.com/v1', kind: 'Foo', spec: { a: {} } };
    assert.equal(equalFields(object, { ...object, spec: {} }, 'spec'), true);
    assert.equal(equalFields(object, { ...object, spec: { b: 1 } }, 'spec'), false);
  });

  it('compares free values exactly', () => {
    const revision = { apiVersion: 'apps/v1', kind: 'ControllerRevision', data: { a: {} } };
    assert.equal(equalFields(revision, { ...revision, data: {} }, 'data'), false);
  });
});
