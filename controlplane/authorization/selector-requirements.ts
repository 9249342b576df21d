/** Selectors as authorizers see them: what a request selects by, and what a review asks about. */
import { parseFieldSelector } from '../../api/meta/field-selector.ts';
import { parseSelector } from '../../api/meta/selector-parser.ts';
import type { SelectorRequirement } from './authorization.ts';

/** What has no word here (`gt`, `lt`) is left out. */
const LABEL_OPERATORS: Readonly<Record<string, string>> = {
  in: 'In',
  '=': 'In',
  '==': 'In',
  notin: 'NotIn',
  '!=': 'NotIn',
  exists: 'Exists',
  '!': 'DoesNotExist',
};

/** Throws a Status where the text is no selector. */
export function labelRequirements(text: string): SelectorRequirement[] {
  return parseSelector(text).requirements.flatMap((one) => {
    const operator = LABEL_OPERATORS[one.operator];
    return operator === undefined ? [] : [{ key: one.key, operator, values: [...one.values] }];
  });
}

/** Throws a Status where the text is no selector. */
export function fieldRequirements(text: string): SelectorRequirement[] {
  return parseFieldSelector(text).requirements.map((one) => ({
    key: one.field,
    operator: one.operator === '!=' ? 'NotIn' : 'In',
    values: [one.value],
  }));
}
