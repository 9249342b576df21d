/** Expensive rules of one write yield to the event loop, and cheap ones run without a pause. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { KubeObject } from '../../../../../api/meta/object.ts';
import type { JsonSchema } from '../../../../../controlplane/registry/schemas/json-schema.ts';
import { validateCustomObjectInTurns } from '../../../../../controlplane/registry/custom-resources/object-validation.ts';
import { inTurns } from '../../../../../api/machinery/pausing.ts';
import { compileRules } from '../../../../../controlplane/registry/schemas/rule-compilation.ts';
import { ruleErrors } from '../../../../../controlplane/registry/schemas/rule-validation.ts';

/** The cost of an item is about the square of its length. */
const rule = 'self.all(a, self.all(b, a + b >= 0))';
const item: JsonSchema = {
  type: 'array',
  maxItems: 10,
  items: { type: 'integer' },
  'x-kubernetes-validations': [{ rule }],
};
const schema: JsonSchema = { type: 'object', properties: { items: { type: 'array', maxItems: 10, items: item } } };
const { rules } = compileRules(schema, '');
const objectOf = (count: number, numbers: number): { items: number[][] } => ({
  items: Array.from({ length: count }, () => Array.from({ length: numbers }, (_value, at) => at)),
});

const pauses = (count: number, numbers: number): number =>
  [...ruleErrors(rules, objectOf(count, numbers), undefined)].length;

describe('rules of one write', () => {
  test('pause as often as their cost demands', () => {
    assert.equal(pauses(20, 10), 0);
    // A rule for 200 numbers exceeds the cost between two pauses, so each one is followed by a pause.
    assert.equal(pauses(20, 200), 20);
  });

  test('are done at once where they cost little', () => {
    const validator = { schema, rules, scale: undefined };
    const object = { metadata: {}, ...objectOf(20, 10) } as unknown as KubeObject;
    assert.ok(Array.isArray(validateCustomObjectInTurns(validator, object, undefined)));
  });

  test('let others have the event loop, and find the same', async () => {
    let turns = 0;
    const count = (): void => {
      turns += 1;
      timer = setImmediate(count);
    };
    let timer = setImmediate(count);
    const found = await inTurns(ruleErrors(rules, { items: [...objectOf(10, 200).items, [-1]] }, undefined));
    clearImmediate(timer);
    assert.ok(turns >= 9, String(turns));
    assert.deepEqual(found.map(String), [`items[10]: Invalid value: failed rule: ${rule}`]);
  });
});
