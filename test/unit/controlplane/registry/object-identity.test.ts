/** Tests duplicate owner references in one object. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { KubeObject, OwnerReference } from '../../../../api/meta/object.ts';
import { dropRepeatedOwners } from '../../../../controlplane/registry/object-identity.ts';
import type { RequestContext } from '../../../../controlplane/model/rest.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const owner = (more: Partial<OwnerReference> = {}): OwnerReference => ({
  apiVersion: 'v1',
  kind: 'Pod',
  name: 'p',
  uid: 'u',
  ...more,
});

function dropped(ownerReferences: OwnerReference[]): { readonly kept: number; readonly warnings: readonly string[] } {
  const warnings: string[] = [];
  const object: KubeObject = { metadata: { name: 'a', ownerReferences } };
  dropRepeatedOwners(object, { warn: (text: string) => warnings.push(text) } as unknown as RequestContext);
  return { kept: object.metadata.ownerReferences?.length ?? 0, warnings };
}

test('one of equal owner references is kept, with a warning that names the uid', () => {
  const { kept, warnings } = dropped([owner(), owner(), owner({ uid: 'v' }), owner()]);
  assert.equal(kept, 2);
  assert.match(warnings.join(), /duplicate UID\(s\) observed: u$/);
});

test('references with the same uid that differ are all kept, without a warning', () => {
  const references = [owner(), owner({ controller: true }), owner({ blockOwnerDeletion: true }), owner({ name: 'q' })];
  assert.deepEqual(dropped(references), { kept: 4, warnings: [] });
});

test('thousands of references with the same uid take time that grows with their number', async () => {
  const run = (size: number): Promise<void> => {
    assert.equal(dropped(Array.from({ length: size }, (_, index) => owner({ name: `p${index}` }))).kept, size);
    return Promise.resolve();
  };
  await assertLinearTime(run, { minBytes: 32_768, maxBytes: 32_768, noticeableMs: 250 });
});
