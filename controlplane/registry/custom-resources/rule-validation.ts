/** Rules in CEL of a schema, made ready to be evaluated. */
import type { FieldError } from '../../../api/meta/field-error.ts';
import type { JsonObject } from '../../../api/meta/object.ts';
import type { CompiledRules } from './rule-compilation.ts';
export function validateRules(
  _rules: CompiledRules,
  _object: JsonObject,
  _old: JsonObject | undefined,
  _nowMs: number,
): FieldError[] {
  return [];
}
