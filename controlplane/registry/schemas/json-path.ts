/**
 * Implements the subset of kubectl's JSONPath that printer columns and subresources use: members (`.a`, `['a.b']`, `.a\.b`),
 * items (`[0]`, `[-1]`, `[1:3]`, `[*]`), descent (`..a`) and filters (`[?(@.type=="Ready")]`). An invalid path matches nothing.
 */
import { isJsonObject } from '../../../api/meta/json-object.ts';
import type { JsonValue } from '../../../api/meta/object.ts';

type Step =
  | { readonly kind: 'member'; readonly name: string; readonly deep: boolean }
  | {
      readonly kind: 'slice';
      readonly from: number | undefined;
      readonly to: number | undefined;
      readonly single: boolean;
    }
  | { readonly kind: 'every' }
  | { readonly kind: 'filter'; readonly path: readonly Step[]; readonly operator: string; readonly value: JsonValue };

/** A parsed path; the steps apply one after another. */
export type JsonPath = readonly Step[];

const MEMBER = /^(\.\.?)((?:\\.|[^.[\]\\])+)/;
const QUOTED = /^\.?\[(?:'((?:\\.|[^'\\])*)'|"((?:\\.|[^"\\])*)")\]/;
const SLICE = /^\.?\[(-?\d+)?(?:(:)(-?\d+)?)?\]/;
const FILTER = /^\.?\[\?\(\s*@/;
const FILTER_END = ')]';
const OPERATOR = /==|!=|<=|>=|<|>/;

/** Parses a path. Returns `undefined` if the text is not a path. */
export function parseJsonPath(text: string): JsonPath | undefined {
  const steps: Step[] = [];
  let remaining = text;
  while (remaining !== '') {
    const [step, length] = parseStep(remaining) ?? [];
    if (step === undefined || length === undefined) return undefined;
    steps.push(step);
    remaining = remaining.slice(length);
  }
  return steps;
}

function parseStep(text: string): readonly [Step, number] | undefined {
  const every = /^\.?\[\*\]|^\.\*/.exec(text);
  if (every !== null) return [{ kind: 'every' }, every[0].length];
  const quoted = QUOTED.exec(text);
  if (quoted !== null) {
    return [{ kind: 'member', name: unescape(quoted[1] ?? quoted[2] ?? ''), deep: false }, quoted[0].length];
  }
  const slice = SLICE.exec(text);
  if (slice !== null) {
    const [whole, from, colon, to] = slice;
    const number = (part: string | undefined): number | undefined => (part === undefined ? undefined : Number(part));
    return [{ kind: 'slice', from: number(from), to: number(to), single: colon === undefined }, whole.length];
  }
  const filter = FILTER.exec(text);
  if (filter !== null) return parseFilter(text, filter[0].length);
  const member = MEMBER.exec(text);
  if (member === null) return undefined;
  return [{ kind: 'member', name: unescape(member[2] ?? ''), deep: member[1] === '..' }, member[0].length];
}

function parseFilter(text: string, start: number): readonly [Step, number] | undefined {
  const end = text.indexOf(FILTER_END, start);
  if (end === -1) return undefined;
  const condition = text.slice(start, end);
  const [operator = ''] = OPERATOR.exec(condition) ?? [];
  const at = operator === '' ? condition.length : condition.indexOf(operator);
  const path = parseJsonPath(condition.slice(0, at).trimEnd());
  if (path === undefined) return undefined;
  const value = literal(condition.slice(at + operator.length).trim());
  return [{ kind: 'filter', path, operator, value }, end + FILTER_END.length];
}

const unescape = (text: string): string => text.replace(/\\(.)/g, '$1');

function literal(text: string): JsonValue {
  if (/^'.*'$/.test(text) || /^".*"$/.test(text)) return text.slice(1, -1);
  if (text === 'true' || text === 'false') return text === 'true';
  return text !== '' && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** The maximum number of values that descents (`..a`) visit: each descent multiplies the results of those before it. */
const MAX_VISITS = 200_000;

interface Budget {
  visits: number;
}

/** Returns all matches in order, or none if the descents visit too many values. */
export function findAll(value: JsonValue | undefined, path: JsonPath): JsonValue[] {
  return find(value, path, { visits: MAX_VISITS });
}

/** Returns the values at a path. Paths in filters share the budget of the whole path. */
function find(value: JsonValue | undefined, path: JsonPath, budget: Budget): JsonValue[] {
  let found: JsonValue[] = value === undefined ? [] : [value];
  for (const step of path) found = found.flatMap((one) => take(one, step, budget));
  return budget.visits < 0 ? [] : found;
}

function take(value: JsonValue, step: Step, budget: Budget): JsonValue[] {
  switch (step.kind) {
    case 'member':
      return step.deep ? descend(value, step.name, budget) : memberOf(value, step.name);
    case 'every':
      return Array.isArray(value) ? value : isJsonObject(value) ? membersOf(value) : [];
    case 'slice': {
      if (!Array.isArray(value)) return [];
      if (!step.single) return value.slice(step.from, step.to);
      const item = value.at(step.from ?? 0);
      return item === undefined ? [] : [item];
    }
    case 'filter':
      return (Array.isArray(value) ? value : []).filter((item) => passes(find(item, step.path, budget)[0], step));
  }
}

function memberOf(value: JsonValue, name: string): JsonValue[] {
  if (!isJsonObject(value) || !Object.hasOwn(value, name)) return [];
  const member = value[name];
  return member === undefined ? [] : [member];
}

function membersOf(value: Readonly<Record<string, JsonValue | undefined>>): JsonValue[] {
  return Object.values(value).filter((member) => member !== undefined);
}

function descend(value: JsonValue, name: string, budget: Budget): JsonValue[] {
  budget.visits -= 1;
  if (budget.visits < 0) return [];
  const inner = Array.isArray(value) ? value : isJsonObject(value) ? membersOf(value) : [];
  return [...memberOf(value, name), ...inner.flatMap((one) => descend(one, name, budget))];
}

function passes(found: JsonValue | undefined, step: Extract<Step, { kind: 'filter' }>): boolean {
  const { operator, value } = step;
  if (found === undefined) return false;
  if (operator === '') return true;
  if (operator === '==') return found === value;
  if (operator === '!=') return found !== value;
  if (found === null || value === null || typeof found !== typeof value) return false;
  if (operator === '<') return found < value;
  if (operator === '<=') return found <= value;
  return operator === '>' ? found > value : found >= value;
}
