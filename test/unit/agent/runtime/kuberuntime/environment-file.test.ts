import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { environmentFileValue } from '../../../../../agent/runtime/kuberuntime/environment-file.ts';

const text = `# a comment
  A='one' # and another

B='two
lines # of it'
C= 'nothing'
D='$(A) "as it stands" \\n'
`;

describe('a file of variables', () => {
  for (const [key, value] of [
    ['A', 'one'],
    ['B', 'two\nlines # of it'],
    ['C', ''],
    ['D', '$(A) "as it stands" \\n'],
    ['E', ''],
  ] as const) {
    it(`yields the value of ${key}`, () => assert.equal(environmentFileValue(text, key), value));
  }
  for (const [wrong, problem] of [
    ['A', /at line 1: missing '='/],
    ["\nA ='x'", /at line 2: whitespace before '='/],
    ["='x'", /empty variable name/],
    ['A=x', /enclosed in single quotes/],
    ["A='x", /unclosed single quote/],
    ["A='x\ny'z", /at line 2: unexpected content after closing quote/],
  ] as const) {
    it(`is refused with ${JSON.stringify(wrong)}`, () =>
      assert.throws(() => environmentFileValue(wrong, 'Z'), problem));
  }
  it('gives back any value without a quote', () => {
    const value = fc.string().filter((one) => !one.includes("'") && !one.includes('\r'));
    fc.assert(fc.property(value, (one) => environmentFileValue(`X='y'\nK='${one}'\n`, 'K') === one));
  });
});
