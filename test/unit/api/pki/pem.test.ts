import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readPem, writePem } from '../../../../api/pki/pem.ts';
import { assertLinearTime } from '../../../fuzz/growth.ts';

const A = writePem('A', Buffer.from('first'));
const B = writePem('PRIVATE KEY', Buffer.from('second'));
const labelsOf = (text: string): string[] => readPem(text).map(({ label }) => label);

for (const [name, text, labels] of [
  ['blocks and what stands between them', `x\n${A}y ----- z\n${B}`, ['A', 'PRIVATE KEY']],
  ['a block whose end is missing', `-----BEGIN X-----\naaaa\n${A}`, ['A']],
  ['a block whose end has another label', `-----BEGIN X-----\naaaa\n-----END Y-----\n${A}`, ['A']],
  ['an end without a beginning', `-----END A-----\n${A}`, ['A']],
  ['a block of other characters', `-----BEGIN X-----\n!!!!\n-----END X-----\n${A}`, ['A']],
  ['a beginning in the middle of a line', '-----BEGIN X----- aaaa\n-----END X-----', []],
  ['an empty text', '', []],
] as const) {
  test(`${name}: ${labels.length} are read`, () => {
    assert.deepEqual(labelsOf(text), labels);
  });
}

test('a block keeps its text, and its headers are not part of its bytes', () => {
  const [block] = readPem(`-----BEGIN A-----\r\nProc-Type: 4\r\n\r\nYWI=\r\n-----END A-----`);
  assert.deepEqual(block?.der.toString(), 'ab');
  assert.equal(block?.hasHeaders, true);
  assert.equal(readPem(A)[0]?.text, A.trim());
});

for (const [name, piece] of [
  ['beginnings', '-----BEGIN A-----\n'],
  ['ends', '-----END A-----\n'],
  ['beginnings of other labels than the ends', '-----BEGIN A-----\n-----END B-----\n'],
] as const) {
  test(`three megabytes of ${name} are read in time that grows with their size`, async () => {
    await assertLinearTime((size) => assert.deepEqual(readPem(piece.repeat(Math.ceil(size / piece.length))), []), {
      maxBytes: 3_000_000,
    });
  });
}
