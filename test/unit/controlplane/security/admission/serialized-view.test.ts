import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import { loadSchema } from '../../../../../api/schema/table.ts';
import type { AdmissionAttributes } from '../../../../../controlplane/security/admission/admission.ts';
import { viewOf } from '../../../../../controlplane/security/admission/policy/request-view.ts';
import { catalogConversion } from '../../../../../controlplane/security/admission/webhook/catalog-conversion.ts';
import type { ResourceCatalog } from '../../../../../controlplane/model/rest.ts';

test('policies and webhooks see objects without the empty lists of the request', async () => {
  const resource = { group: '', version: 'v1', resource: 'pods' };
  const kind = { group: '', version: 'v1', kind: 'Pod' };
  const spec = { containers: [{ name: 'c', args: [] }], nodeSelector: {} };
  const object = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'p' }, spec } as KubeObject;
  const catalog = {} as unknown as ResourceCatalog;
  const attributes = { resource, kind, object, subresource: '' } as unknown as AdmissionAttributes;
  const view = await viewOf(attributes, resource, catalogConversion(catalog, loadSchema()));
  assert.deepEqual(view.object?.['spec'], { containers: [{ name: 'c' }] });
  assert.deepEqual(object['spec'], spec);
});
