/** Converts names of cipher suites and groups. */
import assert from 'node:assert/strict';
import { getCiphers } from 'node:tls';
import { test } from 'node:test';
import { cipherName, groupNames } from '../../../../agent/options/tls-names.ts';

const names: readonly (readonly [iana: string, node: string | undefined])[] = [
  ['TLS_AES_128_GCM_SHA256', 'TLS_AES_128_GCM_SHA256'],
  ['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'ECDHE-RSA-AES128-GCM-SHA256'],
  ['TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384', 'ECDHE-ECDSA-AES256-GCM-SHA384'],
  ['TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256', 'ECDHE-RSA-CHACHA20-POLY1305'],
  ['TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305', 'ECDHE-RSA-CHACHA20-POLY1305'],
  ['TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA', 'ECDHE-ECDSA-AES128-SHA'],
  ['TLS_RSA_WITH_AES_256_GCM_SHA384', 'AES256-GCM-SHA384'],
  ['TLS_RSA_WITH_AES_128_CBC_SHA', 'AES128-SHA'],
  ['TLS_RSA_WITH_RC4_128_SHA', undefined],
  ['ECDHE-RSA-AES128-GCM-SHA256', undefined],
];
for (const [iana, node] of names) {
  test(`${iana} is ${node ?? 'unknown'}`, () => {
    assert.equal(cipherName(iana), node);
    if (node !== undefined) assert.ok(getCiphers().includes(node.toLowerCase()));
  });
}

test('groups have their names', () => assert.equal(groupNames(['29', '23']), 'X25519:P-256'));
