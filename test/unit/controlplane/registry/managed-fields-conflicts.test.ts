import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stringifyJson } from '../../../../api/codec/json.ts';
import { setOfPaths } from '../../../../api/codec/structured-merge/field-set.ts';
import { newApplyConflict } from '../../../../controlplane/registry/managed-fields-conflicts.ts';

test('conflicts with many managers of many fields are shown as far as they fit into a response, and counted', () => {
  const fields = setOfPaths(Array.from({ length: 8000 }, (_, at) => ['f:data', `f:k${at}`]));
  const conflicts = Array.from({ length: 27 }, (_, at) => ({
    owner: {
      manager: `m${at}`,
      operation: 'Apply' as const,
      apiVersion: 'v1',
      time: undefined,
      subresource: '',
      fields,
    },
    fields,
  }));
  const { status, message } = newApplyConflict(conflicts);
  assert.match(message, /^Apply failed with 216000 conflicts: conflicts with "m0":\n- \.data\.k0\n/);
  assert.match(message, /\nand \d+ more$/);
  assert.ok(stringifyJson(status).length < 2 << 20);
  assert.equal(Number(/and (\d+) more$/.exec(message)?.[1]) + (status.details?.causes?.length ?? 0), 216_000);
});
