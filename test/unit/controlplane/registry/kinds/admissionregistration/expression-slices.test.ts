import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { invalid, type FieldError } from '../../../../../../api/meta/field-error.ts';
import {
  checkedInSlices,
  type ExpressionChecker,
  expressionErrors,
} from '../../../../../../controlplane/registry/kinds/admissionregistration/expression-checks.ts';

describe('the expressions of an object', () => {
  const validate =
    (count: number) =>
    (check: ExpressionChecker): FieldError[] =>
      Array.from({ length: count }, (_none, index) =>
        expressionErrors(check, `spec[${index}]`, { place: 'deviceSelector', expression: `e${index}` }),
      ).flat();
  /** Returns a checker of expressions that takes a millisecond for each, with its clock. */
  const rig = () => {
    let nowMs = 0;
    let checks = 0;
    const check: ExpressionChecker = ({ expression }) => {
      nowMs += 1;
      checks += 1;
      return expression === 'e7' ? 'is wrong' : undefined;
    };
    return { check, clock: { monotonic: () => nowMs }, checks: () => checks };
  };

  it('are checked in slices if there are hundreds, and others get the event loop between them', async () => {
    const { check, clock, checks } = rig();
    const work = checkedInSlices(check, clock, validate(500));
    const seen = new Set<number>();
    let isOver = false;
    const watch = (): void => {
      seen.add(checks());
      if (!isOver) setImmediate(watch);
    };
    setImmediate(watch);
    assert.deepEqual(await work, [invalid('spec[7]', 'e7', 'is wrong')]);
    isOver = true;
    assert.equal(checks(), 500, 'each is checked once');
    assert.ok(seen.size > 40, `others had ${seen.size} turns`);
  });

  it('are checked at once if there are few', () => {
    const { check, clock } = rig();
    assert.deepEqual(checkedInSlices(check, clock, validate(2)), []);
  });
});
