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

test('conflicts of a Scale name its own version and field', () => {
  const fields = setOfPaths([['f:spec', 'f:pool', 'f:size']]);
  const owner = {
    manager: 'm',
    operation: 'Update' as const,
    apiVersion: 'g/v1',
    time: undefined,
    subresource: '',
    fields,
  };
  const shown = { version: 'autoscaling/v1', field: '.spec.replicas' };
  assert.equal(
    newApplyConflict([{ owner, fields }], shown).message,
    'Apply failed with 1 conflict: conflict with "m" using autoscaling/v1: .spec.replicas',
  );
});
