/** Tests clauses in texts that are known only when the expression runs, so that the compiler cannot refuse them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { format } from '../../../../api/cel/text-format.ts';
import { CelError } from '../../../../api/cel/values.ts';

describe('the function format', () => {
  for (const [text, args, error] of [
    ['%!', [1n], 'could not parse formatting clause: unrecognized formatting clause "!"'],
    ['%-5s', ['a'], 'could not parse formatting clause: unrecognized formatting clause "-"'],
    ['%😀', ['a'], 'could not parse formatting clause: unrecognized formatting clause "😀"'],
    ['%.2%', [1n], 'could not parse formatting clause: unrecognized formatting clause "%"'],
    ['50%', [1n], 'unexpected end of string'],
    [
      '%.f',
      [1n],
      'could not parse formatting clause: error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing "": invalid syntax',
    ],
    [
      '%.2',
      [1n],
      'could not parse formatting clause: error while parsing precision: could not find end of precision specifier',
    ],
    ['%s %s', ['a'], 'index 1 out of range'],
  ] as const)
    test(`refuses ${text}`, () => {
      assert.throws(() => format(text, args), new CelError(error));
    });

  test('replaces clauses beside line breaks and percent signs', () => {
    assert.equal(format('%s\n%%%d%%', ['a', 5n]), 'a\n%5%');
  });
});
