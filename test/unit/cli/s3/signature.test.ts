/** Tests the examples that Amazon publishes for signature version 4 of S3 ("Examples: Signature Calculations"). */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodePath, encodeQuery, signedHeaders } from '../../../../cli/s3/signature.ts';

const context = {
  credentials: { accessKeyId: 'AKIAIOSFODNN7EXAMPLE', secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY' },
  region: 'us-east-1',
  now: Date.UTC(2013, 4, 24),
};

for (const [query, signature] of [
  [{ lifecycle: '' }, 'fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543'],
  [{ prefix: 'J', 'max-keys': '2' }, '34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7'],
] as const) {
  test(`a request with the query ${encodeQuery(query)} has the signature that Amazon publishes`, () => {
    const headers = signedHeaders(
      { method: 'GET', host: 'examplebucket.s3.amazonaws.com', path: '/', query, body: Buffer.alloc(0) },
      context,
    );
    assert.equal(headers['x-amz-date'], '20130524T000000Z');
    assert.match(headers['authorization'] ?? '', new RegExp(`Signature=${signature}$`));
  });
}

test('temporary credentials send and sign their token', () => {
  const headers = signedHeaders(
    { method: 'GET', host: 'h', path: '/', query: {}, body: Buffer.alloc(0) },
    { ...context, credentials: { ...context.credentials, sessionToken: 'token' } },
  );
  assert.equal(headers['x-amz-security-token'], 'token');
  assert.match(
    headers['authorization'] ?? '',
    /SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,/,
  );
});

test('paths and queries are encoded as the signature wants it', () => {
  assert.equal(encodePath("/a b/ü(1)'*!"), '/a%20b/%C3%BC%281%29%27%2A%21');
  assert.equal(encodeQuery({ b: '1/2', a: 'x y' }), 'a=x%20y&b=1%2F2');
});
