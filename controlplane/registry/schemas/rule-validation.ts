/**
 * Evaluates a schema's rules on an object. Rules with `oldSelf` are only evaluated if there is an old value, except with
 * `optionalOldSelf`. All rules of a write share one cost budget.
 */
import type { Budget } from '../../../api/cel/cel.ts';
import { adapt, CelError, CostExceeded, Optional } from '../../../api/cel/values.ts';
import { FieldError, invalid, memberPath, OMITTED_VALUE } from '../../../api/meta/field-error.ts';
import { jsonEqual } from '../../../api/meta/json-equality.ts';
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';
import { atOnce, type Pausing } from '../../../api/machinery/pausing.ts';
import { KeyedItems } from './keyed-items.ts';
import type { CompiledRules, Rule, RuleNode } from './rule-compilation.ts';
import { celView } from './rule-values.ts';

/** The maximum cost of all rules of one write. */
const OBJECT_BUDGET = 10_000_000;
/** The maximum number of bytes of a message that an expression computes. */
const MAX_MESSAGE_BYTES = 5 * 1024;
/** The cost after which rules yield to the event loop. */
const PAUSE_COST = 100_000;

/** Ends the evaluation: no further rule is evaluated. */
class Stop extends Error {}

interface Visit {
  readonly errors: FieldError[];
  readonly budget: Budget;
  /** The remaining budget at the last pause. */
  pausedAt: number;
  readonly warn: ((text: string) => void) | undefined;
  readonly oldItems: KeyedItems;
}

/** How failures are reported. */
interface RuleOptions {
  /** The path of the value. */
  readonly path?: string;
  /** Called for each rule without `oldSelf` that fails on an unchanged value, which is no error. */
  readonly warn?: ((text: string) => void) | undefined;
}

/** A value to validate, its path, and its old value. */
interface Judged {
  readonly value: JsonValue;
  readonly old: JsonValue | undefined;
  readonly path: string;
  /** Whether the innermost enclosing value that can be matched in the old object is unchanged. */
  readonly unchanged: boolean;
}

/** Evaluates the rules without pauses, for callers that cannot wait. It may hold the event loop. */
export const validateRules = (...args: Parameters<typeof ruleErrors>): FieldError[] => atOnce(ruleErrors(...args));

/** Evaluates the rules on a value and returns the errors. Pauses between expensive rules. */
export function* ruleErrors(
  rules: CompiledRules,
  value: JsonValue,
  old: JsonValue | undefined,
  { path = '', warn }: RuleOptions = {},
): Pausing<FieldError[]> {
  const errors: FieldError[] = [];
  if (rules.root === undefined) return errors;
  try {
    const unchanged = old !== undefined && jsonEqual(value, old);
    const budget = { left: OBJECT_BUDGET };
    yield* visit(
      rules.root,
      { value, old, path, unchanged },
      { errors, budget, pausedAt: OBJECT_BUDGET, warn, oldItems: new KeyedItems() },
    );
  } catch (error) {
    if (!(error instanceof Stop)) throw error;
  }
  return errors;
}

function* visit(node: RuleNode, judged: Judged, state: Visit): Pausing<void> {
  const { value, old, path } = judged;
  if (value === null) return;
  for (const rule of node.rules) {
    if ('broken' in rule) {
      const { type = '' } = node.schema;
      state.errors.push(invalid(path === '' ? '<nil>' : path, type, `rule compile error: ${rule.broken}`));
      continue;
    }
    if (rule.isTransition && old === undefined && !rule.optionalOldSelf) continue;
    const error = check(rule, node, judged, state);
    if (state.pausedAt - state.budget.left > PAUSE_COST) {
      state.pausedAt = state.budget.left;
      yield;
    }
    if (error === undefined) continue;
    if (rule.isTransition || !judged.unchanged) state.errors.push(error);
    else state.warn?.(String(error));
  }
  if (Array.isArray(value)) {
    const { items } = node;
    if (items === undefined) return;
    for (const [index, item] of value.entries()) {
      const oldValue = oldItem(node, item, old, state.oldItems);
      const unchanged =
        hasKeys(node) && old !== undefined ? oldValue !== undefined && jsonEqual(item, oldValue) : judged.unchanged;
      yield* visit(items, { value: item, old: oldValue, path: `${path}[${index}]`, unchanged }, state);
    }
  } else if (isJsonObject(value)) {
    const before = isJsonObject(old) ? old : undefined;
    for (const [name, inner] of Object.entries(value)) {
      const property = node.properties.get(name);
      const child = property ?? node.members;
      if (child === undefined || inner === undefined) continue;
      const oldValue = before !== undefined && Object.hasOwn(before, name) ? before[name] : undefined;
      const at = property === undefined ? `${path}[${name}]` : memberPath(path, name);
      const unchanged = old === undefined ? judged.unchanged : oldValue !== undefined && jsonEqual(inner, oldValue);
      yield* visit(child, { value: inner, old: oldValue, path: at, unchanged }, state);
    }
  }
}

const hasKeys = ({ schema }: RuleNode): boolean => schema['x-kubernetes-list-map-keys'] !== undefined;

/** Returns the item of the old list with the same keys. Other items cannot be matched. */
function oldItem(
  { schema }: RuleNode,
  item: JsonValue,
  old: JsonValue | undefined,
  oldItems: KeyedItems,
): JsonValue | undefined {
  const keys = schema['x-kubernetes-list-map-keys'];
  if (keys === undefined || !Array.isArray(old) || !isJsonObject(item)) return undefined;
  return oldItems.find(old, keys, item);
}

/**
 * Evaluates one rule. Returns its error if it fails, and `undefined` if it holds. If the rule cannot be evaluated, the error is
 * added to `errors` instead. Throws `Stop` if the rule or all rules together cost too much.
 */
function check(rule: Rule, node: RuleNode, judged: Judged, { errors, budget }: Visit): FieldError | undefined {
  const { value, old, path } = judged;
  const self = celView(value, node.schema);
  const oldView = old === undefined ? undefined : celView(old, node.schema);
  const oldSelf = rule.optionalOldSelf ? new Optional(oldView === undefined ? undefined : adapt(oldView)) : oldView;
  const bindings = (name: string): unknown => (name === 'self' ? self : oldSelf);
  const at = path === '' ? '<nil>' : path;
  const { type = '' } = node.schema;
  const shown = rule.message === '' ? rule.source.trim() : rule.message.trim();
  const stop = (why: string): never => {
    errors.push(invalid(at, type, why));
    throw new Stop();
  };
  const outOfBudget = 'out of cost budget, no further validation rules will be run';
  if (budget.left <= 0) stop(`validation failed due to running ${outOfBudget}`);
  try {
    if (node.schema['x-kubernetes-int-or-string'] === true) checkIntOrString(value);
    if (rule.program.run(bindings, budget) === true) return undefined;
  } catch (error) {
    if (error instanceof CostExceeded) {
      if (budget.left <= 0) stop(`validation failed due to running ${outOfBudget}`);
      stop(
        `'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: ${shown}`,
      );
    }
    if (!(error instanceof CelError)) throw error;
    const why = error.message.startsWith('no such overload')
      ? `'${error.message}': call arguments did not match a supported operator, function or macro signature for rule: ${shown}`
      : `${error.message} evaluating rule: ${shown}`;
    // A rule that cannot be evaluated refuses the value, even if it is unchanged.
    errors.push(invalid(at, type, why));
    return undefined;
  }
  const message = messageOf(rule, bindings, budget);
  return failure(rule, type, judged, message);
}

function checkIntOrString(value: JsonValue): void {
  if (value === null || typeof value === 'string' || typeof value === 'bigint' || Number.isInteger(value)) return;
  throw new CelError('invalid data, expected XIntOrString value to be either a string or integer');
}

function messageOf(rule: Rule, bindings: (name: string) => unknown, budget: Budget): string {
  const plain = rule.message === '' ? `failed rule: ${rule.source.trim()}` : rule.message.trim();
  if (rule.messageProgram === undefined) return plain;
  try {
    const result = rule.messageProgram.run(bindings, budget);
    if (typeof result !== 'string') return plain;
    const text = result.trim();
    return text === '' || text.includes('\n') || Buffer.byteLength(text) > MAX_MESSAGE_BYTES ? plain : text;
  } catch (error) {
    if (error instanceof CelError || error instanceof CostExceeded) return plain;
    throw error;
  }
}

/** Creates the error of a failed rule, for the field that the rule names. Messages do not contain objects and lists. */
function failure({ fieldPath, reason }: Rule, type: string, { value, path }: Judged, message: string): FieldError {
  const field = fieldPath === '' ? path || '<nil>' : memberPath(path, fieldPath);
  if (reason === 'FieldValueForbidden' || reason === 'FieldValueRequired') {
    return new FieldError(reason, field, '', message);
  }
  const shown = type === 'object' || type === 'array' ? OMITTED_VALUE : value;
  return reason === 'FieldValueDuplicate'
    ? new FieldError(reason, field, shown, '')
    : new FieldError('FieldValueInvalid', field, shown, message);
}
