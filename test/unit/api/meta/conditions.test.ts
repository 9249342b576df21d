import { deepStrictEqual } from 'node:assert/strict';
import { describe, it } from 'node:test';
import { conditionErrors } from '../../../../api/meta/conditions.ts';

const GOOD = { type: 'Ready', status: 'True', reason: 'Done', message: '', lastTransitionTime: '2026-01-01T00:00:00Z' };

describe('conditions of the common type', () => {
  it('accepts a complete condition', () => deepStrictEqual(conditionErrors([GOOD], 'status.conditions'), []));

  it('reports every invalid field in order', () => {
    const wrong = { type: 'a b', status: 'x', observedGeneration: -1, reason: '1', lastTransitionTime: null };
    const fields = conditionErrors([wrong], 'c').map(({ field }) => field);
    deepStrictEqual(fields, [
      'c[0].type',
      'c[0].status',
      'c[0].observedGeneration',
      'c[0].lastTransitionTime',
      'c[0].reason',
    ]);
  });

  it('accepts each type once', () =>
    deepStrictEqual(
      conditionErrors([GOOD, GOOD], 'c').map(({ field, type }) => `${type} ${field}`),
      ['FieldValueDuplicate c[1].type'],
    ));
});
