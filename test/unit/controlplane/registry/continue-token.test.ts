/** Continue tokens: the keys that they may have. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stringifyJson } from '../../../../api/codec/json.ts';
import { decodeContinue, encodeContinue } from '../../../../controlplane/registry/continue-token.ts';

const tokenFrom = (start: string): string =>
  Buffer.from(stringifyJson({ v: 'meta.k8s.io/v1', rv: 5, start })).toString('base64url');

test('a token leads back to its key', () => {
  const token = { revision: 5, after: 'ns/name' };
  assert.deepEqual(decodeContinue(encodeContinue(token)), token);
});

test('a key may begin with a slash', () => {
  assert.deepEqual(decodeContinue(tokenFrom('/ns/name\u0000')), { revision: 5, after: 'ns/name' });
  assert.deepEqual(decodeContinue(tokenFrom('/')), { revision: 5, after: '' });
});

test('a revision that is not an integer of 64 bits is refused', () => {
  const why = (rv: string): string =>
    `json: cannot unmarshal ${rv} into Go struct field continueToken.rv of type int64`;
  for (const [rv, message] of [
    ['1.5', why('number 1.5')],
    ['1e3', why('number 1e3')],
    ['100000000000000000000', why('number 100000000000000000000')],
    ['"5"', why('string')],
    ['null', 'incorrect encoded start resourceVersion (version meta.k8s.io/v1)'],
  ] as const) {
    const token = Buffer.from(`{"v":"meta.k8s.io/v1","rv":${rv},"start":"a"}`).toString('base64url');
    assert.throws(() => decodeContinue(token), {
      code: 400,
      message: `invalid continue token: continue key is not valid: ${message}`,
    });
  }
});

test('a key that goes up, or has empty or needless parts, is refused', () => {
  for (const start of ['../x', '/../x', 'a/../b', 'a//b', 'a/./b', 'a/', '//a'])
    assert.throws(() => decodeContinue(tokenFrom(start)), {
      code: 400,
      message: `invalid continue token: continue key is not valid: ${start}`,
    });
});
