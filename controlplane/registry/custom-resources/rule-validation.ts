/**
 * Evaluates a schema's rules on an object. Values that have not changed are not judged again; rules that read the old
 * value run only where there is one. All rules of a write share one budget.
 */
import type { Budget } from '../../../api/cel/cel.ts';
import { adapt, CelError, CostExceeded, Optional } from '../../../api/cel/values.ts';
import { FieldError, invalid } from '../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import type { JsonObject, JsonValue } from '../../../api/meta/object.ts';
import { isObject } from './json-schema.ts';
import { type CompiledRules, fieldPathNames, type Rule, type RuleNode } from './rule-compilation.ts';
import { celView } from './rule-values.ts';

/** What the rules of one write may cost together. */
const OBJECT_BUDGET = 10_000_000;
const MAX_MESSAGE = 5 * 1024;

class OutOfBudget extends Error {}

interface Visit {
  readonly errors: FieldError[];
  readonly budget: Budget;
}

export function validateRules(rules: CompiledRules, object: JsonObject, old: JsonObject | undefined): FieldError[] {
  const errors: FieldError[] = [];
  if (rules.root === undefined) return errors;
  try {
    visit(rules.root, object, old, '', { errors, budget: { left: OBJECT_BUDGET } });
  } catch (error) {
    if (!(error instanceof OutOfBudget)) throw error;
    const why = 'validation failed due to running out of cost budget, no further validation rules will be run';
    errors.push(invalid('', '', why));
  }
  return errors;
}

function visit(node: RuleNode, value: JsonValue, old: JsonValue | undefined, path: string, state: Visit): void {
  if (value === null) return;
  const unchanged = old !== undefined && jsonEqual(value, old);
  for (const rule of node.rules) {
    if (rule.isTransition && old === undefined && !rule.optionalOldSelf) continue;
    // What was there before and failed before is let through.
    const error = check(rule, node, value, old, path, state);
    if (error !== undefined && !(unchanged && !rule.isTransition)) state.errors.push(error);
  }
  if (Array.isArray(value)) {
    const { items } = node;
    if (items === undefined) return;
    value.forEach((item, index) => visit(items, item, oldItem(node, item, old), `${path}[${index}]`, state));
  } else if (isObject(value)) {
    const before = isObject(old) ? old : undefined;
    for (const [name, inner] of Object.entries(value)) {
      const child = node.properties.get(name) ?? node.members;
      if (child === undefined || inner === undefined) continue;
      const was = before !== undefined && Object.hasOwn(before, name) ? before[name] : undefined;
      visit(child, inner, was, path === '' ? name : `${path}.${name}`, state);
    }
  }
}

/** Items are the same only by the keys of their list. */
function oldItem(node: RuleNode, item: JsonValue, old: JsonValue | undefined): JsonValue | undefined {
  const keys = node.schema['x-kubernetes-list-map-keys'];
  if (keys === undefined || !Array.isArray(old) || !isObject(item)) return undefined;
  return old.find((one) => isObject(one) && keys.every((key) => jsonEqual(one[key], item[key])));
}

function check(
  rule: Rule,
  node: RuleNode,
  value: JsonValue,
  old: JsonValue | undefined,
  path: string,
  { budget }: Visit,
): FieldError | undefined {
  const self = celView(value, node.schema);
  const oldView = old === undefined ? undefined : celView(old, node.schema);
  const oldSelf = rule.optionalOldSelf ? new Optional(oldView === undefined ? undefined : adapt(oldView)) : oldView;
  const bindings = (name: string): unknown => (name === 'self' ? self : oldSelf);
  const at = path === '' ? '<nil>' : path;
  try {
    if (rule.program.run(bindings, budget) === true) return undefined;
  } catch (error) {
    if (error instanceof CostExceeded) {
      if (budget.left <= 0) throw new OutOfBudget();
      const why = `'${rule.source}': call cost exceeds limit for rule: ${rule.source}`;
      return invalid(at, shown(value), `rule evaluation error: ${why}`);
    }
    if (!(error instanceof CelError)) throw error;
    if (error.message === 'no such overload') {
      return invalid(
        at,
        shown(value),
        `'${rule.source}': call arguments did not match a supported operator, function or macro signature for rule: ${rule.source}`,
      );
    }
    return invalid(at, shown(value), `rule evaluation error: ${error.message}`);
  }
  return failure(rule, value, at, path, messageOf(rule, bindings, budget));
}

function messageOf(rule: Rule, bindings: (name: string) => unknown, budget: Budget): string {
  const plain = rule.message === '' ? `failed rule: ${rule.source.trim()}` : rule.message.trim();
  if (rule.messageProgram === undefined) return plain;
  try {
    const made = rule.messageProgram.run(bindings, budget);
    if (typeof made !== 'string') return plain;
    const text = made.trim();
    return text === '' || text.includes('\n') || text.length > MAX_MESSAGE ? plain : text;
  } catch (error) {
    if (error instanceof CelError || error instanceof CostExceeded) return plain;
    throw error;
  }
}

/** Objects and lists are not shown. */
function shown(value: JsonValue): unknown {
  return typeof value === 'object' ? (Array.isArray(value) ? 'array' : 'object') : value;
}

class RuleError extends FieldError {
  /** A failed rule of an object or a list names no value. */
  override body(): string {
    return `Invalid value: ${this.detail}`;
  }
}

function failure(rule: Rule, value: JsonValue, at: string, path: string, message: string): FieldError {
  const names = rule.fieldPath === '' ? [] : (fieldPathNames(rule.fieldPath) ?? []);
  const field = names.reduce((outer, name) => (outer === '' ? name : childPath(outer, name)), path) || at;
  const { reason } = rule;
  if (reason === 'FieldValueForbidden' || reason === 'FieldValueRequired')
    return new FieldError(reason, field, '', message);
  const type = reason === 'FieldValueDuplicate' ? reason : 'FieldValueInvalid';
  const isPlain = typeof value !== 'object' && names.length === 0;
  if (type === 'FieldValueInvalid' && !isPlain) return new RuleError(type, field, '', message);
  return new FieldError(type, field, isPlain ? value : '', message);
}

const childPath = (outer: string, name: string): string =>
  /^[A-Za-z_][A-Za-z0-9_-]*$/.test(name) ? `${outer}.${name}` : `${outer}[${name}]`;
