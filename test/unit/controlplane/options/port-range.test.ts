/** Tests ranges of ports in flags. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { checkPortRange, parsePortRange } from '../../../../controlplane/options/port-range.ts';

describe('a range of ports', () => {
  for (const [text, from, to] of [
    ['30000-32767', 30_000, 32_767],
    ['30000+2767', 30_000, 32_767],
    ['80-80', 80, 80],
    ['80+0', 80, 80],
    ['1-65535', 1, 65_535],
    ['30000', 30_000, 30_000],
  ] as const)
    it(`is ${from} to ${to} for ${text}`, () => {
      assert.deepEqual(parsePortRange(text), { from, to });
      assert.equal(checkPortRange(text), undefined);
    });

  for (const [what, text] of [
    ['an empty text', ''],
    ['a range without an end', '30000-'],
    ['the port 0', '0-100'],
    ['a port above 65535', '30000-65536'],
    ['a length that leads above 65535', '65535+1'],
    ['ends in the wrong order', '32767-30000'],
    ['a negative length', '30000+-1'],
    ['white space', ' 30000-32767'],
    ['a third number', '1-2-3'],
  ] as const)
    it(`refuses ${what}`, () => {
      assert.equal(parsePortRange(text), undefined);
      assert.equal(checkPortRange(text), 'must be a range of ports such as 30000-32767');
    });
});
