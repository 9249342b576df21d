/**
 * Converts label and field selectors into the requirements that authorizers see: those of requests, and those of access
 * reviews.
 */
import { parseFieldSelector } from '../../../api/meta/field-selector.ts';
import { parseSelector } from '../../../api/meta/selector-parser.ts';
import type { SelectorRequirement } from './authorization.ts';

/** Operators without an equivalent (`gt`, `lt`) are omitted. */
const LABEL_OPERATORS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    in: 'In',
    '=': 'In',
    '==': 'In',
    notin: 'NotIn',
    '!=': 'NotIn',
    exists: 'Exists',
    '!': 'DoesNotExist',
  }),
);

/** Throws a `StatusError` if the text is not a selector. */
export function labelRequirements(text: string): SelectorRequirement[] {
  return parseSelector(text).requirements.flatMap((one) => {
    const operator = LABEL_OPERATORS.get(one.operator);
    return operator === undefined ? [] : [{ key: one.key, operator, values: [...one.values] }];
  });
}

/** Throws a `StatusError` if the text is not a selector. */
export function fieldRequirements(text: string): SelectorRequirement[] {
  return parseFieldSelector(text).requirements.map((one) => ({
    key: one.field,
    operator: one.operator === '!=' ? 'NotIn' : 'In',
    values: [one.value],
  }));
}
