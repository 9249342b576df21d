/** Tests the media types that clients can request, and the response to others. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isStatusError } from '../../../../api/meta/status-error.ts';
import {
  acceptsGzip,
  inputFormat,
  negotiateError,
  negotiateOutput,
} from '../../../../controlplane/server/media-type.ts';

const BUILT_IN = { protobuf: true, table: true, watch: 'never', routeCheck: true } as const;
const CUSTOM = { protobuf: false, table: true, watch: 'never', routeCheck: false } as const;
const TABLE = 'application/json;as=Table;g=meta.k8s.io;v=v1';

const GIVEN: readonly [string | undefined, string][] = [
  [undefined, 'json'],
  ['*/*', 'json'],
  ['application/yaml, application/json', 'yaml'],
  ['application/json;q=0.4, application/yaml;q=0.9', 'yaml'],
  ['text/html, */*;q=0.1', 'json'],
  ['application/json; charset=utf-8', 'json'],
  ['application/vnd.kubernetes.protobuf,application/json', 'protobuf'],
  [`${TABLE},application/json`, 'json Table v1'],
  ['application/json;as=Table;g=meta.k8s.io;v=v9, application/json', 'json'],
  ['application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1', 'json PartialObjectMetadata v1beta1'],
  // A quality of 0 is the last choice, and so is one that is no number.
  ['application/yaml;q=0', 'yaml'],
  ['application/yaml;q=0, application/json;q=0.1', 'json'],
  ['application/yaml;q=high, application/json;q=0.1', 'json'],
  // What has no wildcards moves before what has them, but not what follows it.
  ['*/*, application/yaml;q=0.1', 'yaml'],
  ['application/yaml;q=0.1, */*', 'json'],
  // Unknown parameters do not matter, and an empty or a repeated sign makes none.
  ['application/yaml;unknown=1;charset', 'yaml'],
  ['application/yaml;stream=, application/json', 'yaml'],
  ['application/json;as=a=b, application/yaml', 'json'],
  ['application/yaml;stream=watch, application/json', 'json'],
  ['application/yaml;sv=v1, application/json', 'yaml'],
  ['application/yaml;sv=v2, application/json', 'json'],
  ['application/json;v=v1;as=Table;x=1;g=meta.k8s.io;q=0.5, application/json;q=0.4', 'json Table v1'],
  ['application/json;q=0.5, application/json;as=Table;g=meta.k8s.io;v=v1;q=0.6', 'json Table v1'],
  ['yaml, application/yaml/1, application/json', 'json'],
];

for (const [accept, want] of GIVEN) {
  test(`${String(accept)} gets ${want}`, () => {
    const { format, as, version } = negotiateOutput(accept, BUILT_IN);
    assert.equal(as === '' ? format : `${format} ${as} ${version}`, want);
  });
}

test('a type that no route gives is refused with the list of representations', () => {
  for (const accept of ['text/html', 'application/*', 'application/cbor', ',', 'Application/JSON']) {
    assert.throws(
      () => negotiateOutput(accept, BUILT_IN),
      (error) =>
        isStatusError(error, 'NotAcceptable') &&
        error.status.message?.startsWith('406: Not Acceptable\n\nAvailable representations: application/json, ') ===
          true,
    );
  }
});

test('an unknown transformation is refused with another message', () => {
  for (const accept of [
    'application/json;as=Chart;g=meta.k8s.io;v=v1',
    'application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1',
    'application/json;g=meta.k8s.io',
    'application/json;stream=other',
    'application/yaml;stream=watch',
  ]) {
    assert.throws(
      () => negotiateOutput(accept, BUILT_IN),
      (error) => isStatusError(error) && error.status.message?.startsWith('only the following media types') === true,
    );
  }
});

test('an object without columns is not given as a Table, but its metadata are', () => {
  const scope = { ...BUILT_IN, table: false };
  assert.throws(
    () => negotiateOutput(TABLE, scope),
    (error) => isStatusError(error, 'NotAcceptable'),
  );
  assert.equal(negotiateOutput(`${TABLE}, application/json`, scope).as, '');
  const metadata = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1';
  assert.equal(negotiateOutput(metadata, scope).as, 'PartialObjectMetadata');
});

test('custom resources have no protobuf form', () => {
  assert.throws(
    () => negotiateOutput('application/vnd.kubernetes.protobuf', CUSTOM),
    /application\/json, application\/yaml, application\/vnd\.kubernetes\.protobuf$/,
  );
  assert.throws(() => inputFormat('application/vnd.kubernetes.protobuf', CUSTOM), /unknown format/);
});

test('errors fall back to indented JSON', () => {
  for (const [accept, format, pretty] of [
    ['application/json', 'json', false],
    ['*/*', 'json', false],
    ['application/json;pretty=1', 'json', true],
    ['text/html', 'json', true],
    ['application/yaml', 'yaml', false],
    ['application/vnd.kubernetes.protobuf', 'protobuf', false],
    ['application/yaml;sv=v1', 'json', true],
    ['application/yaml;q=0', 'yaml', false],
  ] as const) {
    const found = negotiateError(accept);
    assert.deepEqual([found.format, found.pretty], [format, pretty], accept);
  }
});

test('gzip is taken only where it is named', () => {
  assert.equal(acceptsGzip('deflate, gzip;q=1'), true);
  assert.equal(acceptsGzip('br'), false);
  assert.equal(acceptsGzip(undefined), false);
});
