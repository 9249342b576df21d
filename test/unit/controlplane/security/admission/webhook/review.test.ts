import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AdmissionAttributes } from '../../../../../../controlplane/security/admission/admission.ts';
import { deniedError, reviewOf } from '../../../../../../controlplane/security/admission/webhook/review.ts';

for (const code of [99_999, 1000, 400.5, 200, -1, '403', Number.POSITIVE_INFINITY]) {
  test(`a webhook that refuses with the code ${code} makes it 400, as no answer can have it`, () => {
    assert.equal(deniedError('w', { code }).code, 400);
  });
}

test('only those details of a webhook are kept that have the right type', () => {
  const cause = { reason: 'FieldValueInvalid', field: 'spec', message: 7 };
  const details = { name: 'a', uid: ['x'], causes: [cause, 'text'], retryAfterSeconds: ['5\r\n'], other: 1 };
  assert.deepEqual(deniedError('w', { code: 422, details }).status.details, {
    name: 'a',
    causes: [{ reason: 'FieldValueInvalid', field: 'spec' }],
  });
  assert.equal(deniedError('w', { code: 429, details: { retryAfterSeconds: 5 } }).status.details?.retryAfterSeconds, 5);
});

test('a review of a Namespace names the namespace itself, so that a webhook which guards one by its name sees it', () => {
  const kind = { group: '', version: 'v1', kind: 'Namespace' };
  const resource = { group: '', version: 'v1', resource: 'namespaces' };
  const object = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'prod' } };
  const attributes = {
    ...{ operation: 'UPDATE', kind, resource, subresource: '', namespace: '', name: 'prod' },
    object,
  };
  const more = { user: { name: 'ann', groups: [] }, options: {}, dryRun: false };
  const view = { kind, resource, object, oldObject: object };
  const { body } = reviewOf({ ...attributes, ...more } as unknown as AdmissionAttributes, view, 'v1');
  const { request } = JSON.parse(body) as { request: Record<string, unknown> };
  assert.deepEqual([request['namespace'], request['name']], ['prod', 'prod']);
});
