import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { trim, trimEnd } from '../../../../api/component/trim.ts';

const texts = fc.string({ unit: fc.constantFrom('/', '-', '.', 'a', ' '), maxLength: 12 });

test('an end is cut as an expression would cut it', () => {
  fc.assert(
    fc.property(texts, (text) => {
      assert.equal(trimEnd(text, '-.'), text.replace(/[-.]+$/, ''));
      assert.equal(trim(text, '/ '), text.replace(/^[/ ]+|[/ ]+$/g, ''));
    }),
  );
});
