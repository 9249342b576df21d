/**
 * Limits the time of a validation whose effort depends on untrusted schemas, patterns and values. The caller of a validation
 * opens a budget, which everything validated within it shares.
 */
import { type FieldError, forbidden } from './field-error.ts';

/** The budget in steps. */
const MAX_STEPS = 200_000_000;

let left: number | undefined;

class EffortExceeded extends Error {}

/** Charges steps to the budget of the validation. Throws if the budget is used up. Does nothing without a budget. */
export function spendSteps(steps: number): void {
  if (left === undefined) return;
  left -= steps;
  if (left < 0) throw new EffortExceeded('the budget of validation is used up');
}

/** Runs a validation with a budget. If the budget is exceeded, the result is a single error without a field. */
export function withinBudget(validate: () => FieldError[]): FieldError[] {
  if (left !== undefined) return validate();
  left = MAX_STEPS;
  try {
    return validate();
  } catch (error) {
    if (!(error instanceof EffortExceeded)) throw error;
    return [forbidden('<nil>', 'validation takes too long; no further validation will be run')];
  } finally {
    left = undefined;
  }
}
