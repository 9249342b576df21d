/** Tests that DER elements with malformed content are rejected. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type DerElement, DerError, readElement, readBoolean, readOid, readTime } from '../../../../api/pki/der.ts';

const element = (tag: number, content: string): DerElement =>
  readElement(Buffer.concat([Buffer.from([tag, content.length]), Buffer.from(content, 'latin1')]));
const UTC_TIME = 0x17;
const GENERALIZED_TIME = 0x18;

test('a time is read to the second', () => {
  assert.equal(readTime(element(UTC_TIME, '240229235959Z')), Date.UTC(2024, 1, 29, 23, 59, 59));
  assert.equal(readTime(element(GENERALIZED_TIME, '20500101000000Z')), Date.UTC(2050, 0, 1));
});

test('a day or an hour that does not exist is rejected', () => {
  for (const text of ['230230000000Z', '230229000000Z', '230431000000Z', '231301000000Z', '230101240000Z']) {
    assert.throws(() => readTime(element(UTC_TIME, text)), DerError, text);
  }
});

test('a BOOLEAN without content is rejected', () => {
  assert.throws(() => readBoolean(element(1, '')), DerError);
  assert.equal(readBoolean(element(1, '\u00ff')), true);
  assert.equal(readBoolean(element(1, '\0')), false);
});

test('an object identifier that is empty or breaks off is rejected', () => {
  for (const content of ['', '\u0055\u001d\u0083']) assert.throws(() => readOid(element(6, content)), DerError);
  assert.equal(readOid(element(6, '\u0055\u001d\u0023')), '2.5.29.35');
});
