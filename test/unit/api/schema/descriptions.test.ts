import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describe } from '../../../../api/schema/descriptions.ts';

test('paragraphs of a description are separated by an empty line, where two blanks stand for it', () => {
  const META = 'io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta';
  assert.match(describe(META, 'creationTimestamp') ?? '', /in UTC\.\n\nPopulated by the system\./);
  assert.match(describe(META, 'finalizers') ?? '', /\. {2}\S/);
  assert.match(describe('io.k8s.api.core.v1.ServiceSpec', 'clusterIPs') ?? '', /\. {2}\S/);
});
