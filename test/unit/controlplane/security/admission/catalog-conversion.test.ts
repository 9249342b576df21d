/** What webhooks return is fitted to the kind of the request: another object in its place is refused. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { builtinResources } from '../../../../../api/schema/resources.ts';
import type { ResourceInfo } from '../../../../../api/schema/schema.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import { catalogConversion } from '../../../../../controlplane/security/admission/webhook/catalog-conversion.ts';
import { createCatalog } from '../../../../../controlplane/registry/resource-catalog.ts';

const widgets = (version: string): ResourceInfo => ({
  group: 'example.com',
  version,
  resource: 'widgets',
  kind: 'Widget',
  singular: 'widget',
  shortNames: [],
  categories: [],
  namespaced: true,
  verbs: ['get'],
  subresources: [{ name: 'scale', group: 'autoscaling', version: 'v1', kind: 'Scale', verbs: ['get'] }],
  custom: { listKind: 'WidgetList', deprecation: '' },
});

const catalog = createCatalog();
for (const info of [
  ...builtinResources().filter(({ resource }) => resource === 'events'),
  widgets('v1'),
  widgets('v2'),
])
  catalog.set([{ info, subresource: undefined }]);
const conversion = catalogConversion(catalog, loadSchema());
const kind = { group: 'example.com', version: 'v1', kind: 'Widget' };
const conform = (object: object): KubeObject => {
  assert.ok(conversion.conform);
  return conversion.conform(object as KubeObject, kind);
};
const widget = { apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name: 'a' } };

describe('a patched custom resource', () => {
  it('may have another version of its group, and gets that of the request', () =>
    assert.deepEqual(conform({ ...widget, apiVersion: 'example.com/v2', spec: { n: 1 } }), {
      ...widget,
      spec: { n: 1 },
    }));

  it('loses metadata whose type is wrong, and empty lists', () =>
    assert.deepEqual(
      conform({ ...widget, metadata: { name: 'a', labels: 'no map', finalizers: [], unknown: 1 } }),
      widget,
    ));

  it('loses metadata that is no object', () =>
    assert.deepEqual(conform({ ...widget, metadata: 'text' }), { ...widget, metadata: {} }));

  for (const [what, change, message] of [
    ['without a kind', { kind: undefined }, /^Object 'Kind' is missing in /],
    ['of another kind', { kind: 'Secret' }, /kind: Invalid value: "Secret": must be Widget/],
    [
      'of another group',
      { apiVersion: 'v1' },
      /v1, Kind=Widget is unstructured and is not suitable for converting to "example.com\/v1"/,
    ],
    ['of a version that is not served', { apiVersion: 'example.com/v3' }, /is not suitable for converting/],
  ] as const)
    it(`${what} is refused`, () => {
      assert.throws(
        () => conform({ ...widget, ...change }),
        (error: Error) => message.test(error.message),
      );
    });
});

describe('the resources that a webhook may have registered for', () => {
  it('are those of the same name in other versions of the group', () =>
    assert.deepEqual(conversion.equivalents({ group: 'example.com', version: 'v1', resource: 'widgets' }, ''), [
      { group: 'example.com', version: 'v2', resource: 'widgets' },
    ]));

  it('are in both groups for events', () =>
    assert.deepEqual(conversion.equivalents({ group: '', version: 'v1', resource: 'events' }, ''), [
      { group: 'events.k8s.io', version: 'v1', resource: 'events' },
    ]));

  it('have the kind of their subresource, and none if they are not served', () => {
    const resource = { group: 'example.com', version: 'v1', resource: 'widgets' };
    assert.deepEqual(conversion.kindOf(resource, 'scale'), { group: 'autoscaling', version: 'v1', kind: 'Scale' });
    assert.deepEqual(conversion.kindOf(resource, ''), kind);
    assert.equal(conversion.kindOf({ ...resource, version: 'v3' }, ''), undefined);
  });
});
