/** Tests options from queries and bodies, with kube-apiserver's errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import {
  parseDeleteOptions,
  parseListOptions,
  parseWriteOptions,
  validateListOptions,
} from '../../../../controlplane/server/options.ts';

const query = (text: string): URLSearchParams => new URLSearchParams(text);

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    if (isStatusError(error)) return `${error.code} ${error.status.message ?? ''}`;
    throw error;
  }
  return 'accepted';
}

const LISTS: readonly [string, string][] = [
  ['limit=many', '400 strconv.ParseInt: parsing "many": invalid syntax'],
  ['limit=-1', 'accepted'],
  ['limit=%2B5', 'accepted'],
  ['limit=0009223372036854775807&timeoutSeconds=-9223372036854775808', 'accepted'],
  ['limit=9223372036854775808', '400 strconv.ParseInt: parsing "9223372036854775808": value out of range'],
  ['resourceVersion=5&resourceVersionMatch=Exact', 'accepted'],
  [
    'resourceVersionMatch=Exact&continue=c',
    '422 ListOptions.meta.k8s.io "" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided]',
  ],
  ['watch=1&resourceVersion=5&continue=c', 'accepted'],
  [
    'watch=1&continue=c',
    '422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided',
  ],
  [
    'watch=1&sendInitialEvents=true',
    '422 ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan',
  ],
];

for (const [text, want] of LISTS) {
  test(`list options ${text}: ${want.slice(0, 40)}`, () => {
    assert.equal(
      messageOf(() => validateListOptions(parseListOptions(query(text)))),
      want,
    );
  });
}

test('a field manager is short and printable', () => {
  assert.match(
    messageOf(() => parseWriteOptions(query(`fieldManager=${'x'.repeat(129)}`), 'CreateOptions')),
    /fieldManager: Too long: may not be more than 128 bytes$/,
  );
  assert.match(
    messageOf(() => parseWriteOptions(query('fieldManager=bad%01name'), 'UpdateOptions')),
    /Invalid value: "bad\\x01name": invalid character U\+0001 \(at position 3\)$/,
  );
  assert.equal(parseWriteOptions(query('fieldManager=with%20space'), 'CreateOptions').fieldManager, 'with space');
});

test('dry runs are All or nothing', () => {
  assert.equal(parseWriteOptions(query('dryRun=All&dryRun=All'), 'CreateOptions').dryRun, true);
  assert.match(
    messageOf(() => parseWriteOptions(query('dryRun='), 'CreateOptions')),
    /dryRun: Unsupported value: \[""\]: supported values: "All"$/,
  );
});

test('apply needs a manager, and only apply can be forced', () => {
  assert.match(
    messageOf(() => parseWriteOptions(query(''), 'PatchOptions', true)),
    /Required value: is required for apply patch$/,
  );
  assert.match(
    messageOf(() => parseWriteOptions(query('force=true'), 'PatchOptions')),
    /may not be specified for non-apply patch$/,
  );
  assert.equal(parseWriteOptions(query('fieldManager=a&force=maybe'), 'PatchOptions', true).force, true);
});

test('a body of delete options replaces those of the query', () => {
  const options = parseDeleteOptions(query('gracePeriodSeconds=5'), {
    gracePeriodSeconds: 7,
    preconditions: { uid: 'u' },
  });
  assert.equal(options.gracePeriodSeconds, 7);
  assert.deepEqual(options.preconditions, { uid: 'u' });
  assert.equal(parseDeleteOptions(query('gracePeriodSeconds=5'), undefined).gracePeriodSeconds, 5);
  assert.match(
    messageOf(() => parseDeleteOptions(query(''), { propagationPolicy: 'Sometimes' })),
    /supported values: "Foreground", "Background", "Orphan", "nil"$/,
  );
});

test('the query of a delete has preconditions', () => {
  const { preconditions } = parseDeleteOptions(query('uid=u&resourceVersion=1'), undefined);
  assert.deepEqual(preconditions, { uid: 'u', resourceVersion: '1' });
});

test('delete options of the wrong type are refused in the words of the decoder', () => {
  const refusal = (body: object): string =>
    messageOf(() => parseDeleteOptions(query(''), body as Record<string, unknown>));
  assert.match(
    refusal({ gracePeriodSeconds: 1.5 }),
    /cannot unmarshal number 1\.5 into .*gracePeriodSeconds of type int64/,
  );
  assert.match(refusal({ gracePeriodSeconds: 1e30 }), /cannot unmarshal number 1e\+30 into .*gracePeriodSeconds/);
  assert.match(refusal({ dryRun: 'All' }), /cannot unmarshal string into .*dryRun of type \[\]string/);
});
