/**
 * Estimates the maximum cost of a call and the size of its result from the sizes of its arguments. These values decide which
 * rules a definition may have, so they must match kube-apiserver's.
 */
import {
  ANYTHING,
  exactly,
  NOTHING,
  ONE,
  product,
  type Range,
  scaled,
  sum,
  UNBOUNDED,
  union,
  upTo,
} from './cost-range.ts';
import type { CelType } from './types.ts';
import type { CelValue } from './values.ts';
import { CHECK_COST } from './authorizer.ts';

/** An argument or the receiver of a call. */
export interface CostNode {
  readonly type: CelType;
  readonly size: Range | undefined;
  /** The value, if the expression contains it as a literal. */
  readonly literal: CelValue | undefined;
  /** The size of an item of a list, or of a key of a map. */
  readonly itemSize: Range | undefined;
}

/** The estimate of one call, without its arguments. */
export interface CallEstimate {
  readonly cost: Range;
  /** The size of the result, if it is a string, bytes, a list or a map. */
  readonly size?: Range;
}

/** Returns `undefined` for a call without a special cost, which costs 1. */
type CallCost = (target: CostNode | undefined, args: readonly CostNode[]) => CallEstimate | undefined;

/** The cost factor per character of reading a string. `PATTERN` is the factor per character of a regular expression. */
const TEXT = 0.1;
const PATTERN = 0.25;
/** Factors and limits of the estimates of Kubernetes' CEL libraries (k8s.io/apiserver/pkg/cel/library). */
const LIST = 10;
const MAX_FORMAT = 64;
const MAX_FORMAT_PATTERN = 128;
/** The number of bytes of an IP address. */
const ADDRESS: Range = { min: 4, max: 16 };

/** Returns the size of a node; anything if it is not known. */
export const sizeOf = (node: CostNode | undefined): Range => node?.size ?? ANYTHING;
const isText = ({ kind }: CelType): boolean => kind === 'string' || kind === 'bytes';
const cheap: CallCost = () => ({ cost: ONE });

/** Charges for the first argument as a string. */
const reads =
  (factor: number): CallCost =>
  (_target, [text]) =>
    text === undefined ? undefined : { cost: scaled(sizeOf(text), factor) };

const rewrites: CallCost = (target) =>
  target === undefined ? undefined : { cost: scaled(sizeOf(target), TEXT), size: sizeOf(target) };

const visitsItems: CallCost = (target) => {
  if (target === undefined) return undefined;
  const size = sizeOf(target);
  const { type } = target;
  if (type.kind !== 'list' && type.kind !== 'map') return { cost: scaled(size, TEXT) };
  const inner = type.kind === 'list' ? type.item : type.key;
  const each = isText(inner) ? sum(ONE, scaled(target.itemSize ?? ANYTHING, TEXT)) : ONE;
  return { cost: product(size, each) };
};

const matches: CallCost = (target, [pattern]) => {
  if (target === undefined || pattern === undefined) return undefined;
  const text = scaled(sum(sizeOf(target), ONE), TEXT);
  return { cost: product(text, scaled(sizeOf(pattern), PATTERN)) };
};

const finds: CallCost = (target, args) => {
  const matched = matches(target, args);
  return matched === undefined ? undefined : { ...matched, size: upTo(sizeOf(target).max) };
};

const replaces: CallCost = (target, [from, to]) => {
  if (target === undefined || from === undefined || to === undefined) return undefined;
  const [text, old, next] = [sizeOf(target), sizeOf(from), sizeOf(to)];
  /** Counts the replacements in the longest or the shortest result, and the characters that it keeps of the text. */
  const extreme = (length: number, replaced: number, replacesAll: boolean): { count: number; kept: number } => {
    // The empty text occurs around every character.
    if (replaced === 0) return { count: length < UNBOUNDED ? length + 1 : length, kept: length };
    return replacesAll ? { count: Math.ceil(length / replaced), kept: 0 } : { count: 0, kept: length };
  };
  // The longest result replaces everything if a replacement can lengthen the text, the shortest if one can shorten it.
  const longest = extreme(text.max, old.min, next.max > old.min);
  const shortest = extreme(text.min, old.max, old.max > next.min);
  const size = sum(product({ min: shortest.count, max: longest.count }, next), {
    min: shortest.kept,
    max: longest.kept,
  });
  return { cost: scaled(text, 2 * TEXT), size };
};

const splits: CallCost = (target, [, limit]) => {
  if (target === undefined) return undefined;
  const text = sizeOf(target);
  const most = typeof limit?.literal === 'bigint' ? Number(BigInt.asUintN(64, limit.literal)) : text.max;
  return { cost: scaled(text, 2 * TEXT), size: upTo(most) };
};

const joins: CallCost = (target, [separator]) => {
  if (target === undefined) return undefined;
  const count = sizeOf(target);
  let size = product(count, target.itemSize ?? ANYTHING);
  if (separator !== undefined) {
    const between = { min: Math.max(0, count.min - 1), max: Math.max(0, count.max - 1) };
    size = sum(size, product(sizeOf(separator), between));
  }
  return { cost: scaled(size, TEXT), size };
};

/** Estimates a function that creates a list of this size. */
function listed(factor: number, size: Range): CallEstimate {
  return { cost: sum(scaled(size, factor), ONE, exactly(LIST)), size };
}

const overList =
  (factor: number): CallCost =>
  (target) =>
    target === undefined ? undefined : listed(factor, sizeOf(target));

/** Charges for comparing each item with each. Kubernetes charges for reading texts in a sort, but not in `distinct`. */
const comparesAll =
  ({ readsTexts }: { readonly readsTexts: boolean }): CallCost =>
  (target) => {
    if (target === undefined) return undefined;
    const texts = readsTexts && target.type.kind === 'list' && isText(target.type.item);
    const size = sizeOf(target);
    return listed(texts ? 2 + TEXT : 2, product(size, size));
  };

const numberOf = (node: CostNode | undefined, otherwise: number): number => {
  if (typeof node?.literal !== 'bigint') return otherwise;
  return node.literal < 0n ? 0 : Number(node.literal);
};

const slices: CallCost = (target, [from, to]) => {
  if (target === undefined || from === undefined || to === undefined) return undefined;
  const [start, end] = [numberOf(from, 0), numberOf(to, UNBOUNDED)];
  const { min, max } = sizeOf(target);
  if (end < UNBOUNDED && end > start) return listed(1, exactly(end - start));
  return listed(1, { min: Math.min(min, Math.max(0, end - start)), max });
};

const comparesSets =
  (factor: number): CallCost =>
  (_target, [a, b]) =>
    a === undefined || b === undefined ? undefined : { cost: sum(scaled(product(sizeOf(a), sizeOf(b)), factor), ONE) };

const containsAddress =
  ({ masked }: { readonly masked: boolean }): CallCost =>
  (_target, [other]) => {
    if (other === undefined) return undefined;
    const compared = scaled(sum(ADDRESS, ADDRESS), TEXT);
    const mask = masked ? sum(scaled(ADDRESS, TEXT), ONE) : NOTHING;
    const parsed = other.type.kind === 'string' ? scaled(sizeOf(other), TEXT) : NOTHING;
    return { cost: sum(compared, mask, parsed) };
  };

const concatenates: CallCost = (_target, [a, b]) => {
  if (a === undefined || b === undefined) return undefined;
  const size = sum(sizeOf(a), sizeOf(b));
  if (a.type.kind === 'list' || b.type.kind === 'list') return { cost: ONE, size };
  if (isText(a.type) || isText(b.type)) return { cost: scaled(size, TEXT), size };
  // Operands of unknown type may be strings.
  return a.type.kind === 'dyn' && b.type.kind === 'dyn' ? { cost: union(ONE, scaled(size, TEXT)), size } : undefined;
};

/** A comparison costs as much as the shorter operand. */
const compares: CallCost = (_target, [a, b]) => {
  const max = Math.min(sizeOf(a).max, sizeOf(b).max);
  return { cost: scaled({ min: max > 0 ? 1 : 0, max }, TEXT) };
};

const ordersTexts: CallCost = (target, args) => {
  const typed = args.find(({ type }) => type.kind !== 'dyn');
  if (typed !== undefined && !isText(typed.type)) return undefined;
  const texts = compares(target, args)?.cost ?? ONE;
  return { cost: typed === undefined ? union(ONE, texts) : texts };
};

const equals: CallCost = (target, args) => {
  const [a, b] = args;
  if (a?.type.kind !== 'opaque' || b?.type.kind !== 'opaque' || a.type.name !== b.type.name)
    return compares(target, args);
  const { name } = a.type;
  if (name === 'kubernetes.NamedFormat') return { cost: scaled({ min: 1, max: MAX_FORMAT }, TEXT) };
  if (name !== 'kubernetes.URL') return { cost: ONE };
  return { cost: scaled({ min: 1, max: b.size?.max ?? 1 }, TEXT) };
};

const isIn: CallCost = (_target, [, within]) => {
  if (within === undefined || within.type.kind === 'map') return undefined;
  const cost = sizeOf(within);
  return { cost: within.type.kind === 'list' ? cost : union(ONE, cost) };
};

/** A conversion from the given type charges for its input. From any other type it costs 1. */
const converts =
  (from: 'string' | 'bytes', size: (of: Range) => Range): CallCost =>
  (target, [value]) =>
    target !== undefined || value?.type.kind !== from
      ? undefined
      : { cost: scaled(sizeOf(value), TEXT), size: size(sizeOf(value)) };

/** A selector is a list of requirements, each of which is a struct of 40 and takes two characters at least. */
const selectorCost = (length: Range): Range =>
  sum(exactly(LIST), sum(scaled(length, TEXT), product(scaled(length, 0.5), exactly(LIST + 40))));

function named(names: string, cost: CallCost): [string, CallCost][] {
  return names.split(' ').map((name) => [name, cost]);
}

const CALLS: ReadonlyMap<string, CallCost> = new Map([
  ...named('check', () => ({ cost: exactly(CHECK_COST) })),
  ...named('serviceAccount path group resource subresource namespace name allowed reason error errored', cheap),
  ...named('fieldSelector labelSelector', (_target, args) =>
    args.length === 1 ? { cost: selectorCost(sizeOf(args[0])) } : undefined,
  ),
  ...named('isSorted sum max min indexOf lastIndexOf', visitsItems),
  ...named('url jsonpatch.escapeKey', (_target, [text]) =>
    text === undefined ? undefined : { cost: scaled(sizeOf(text), TEXT), size: sizeOf(text) },
  ),
  ...named('lowerAscii upperAscii substring trim', rewrites),
  ...named('replace', replaces),
  ...named('split', splits),
  ...named('join', joins),
  ...named('find findAll', finds),
  ...named('matches', (target, args) => (args.length === 1 ? matches(target, args) : undefined)),
  ...named('contains', (target, [part]) =>
    target === undefined || part === undefined
      ? undefined
      : { cost: product(scaled(sizeOf(target), TEXT), scaled(sizeOf(part), TEXT)) },
  ),
  ...named('startsWith endsWith', (_target, [part]) => ({ cost: scaled(sizeOf(part), TEXT) })),
  ...named('format', (target) => (target === undefined ? undefined : { cost: scaled(sizeOf(target), TEXT) })),
  ...named('cidr isIP isCIDR quantity isQuantity semver isSemver', reads(TEXT)),
  ...named('ip', reads(TEXT)),
  ...named('ip.isCanonical', reads(2 * TEXT)),
  ...named('masked prefixLength family isUnspecified isLoopback', cheap),
  ...named('isLinkLocalMulticast isLinkLocalUnicast isGlobalUnicast', cheap),
  ...named('containsIP', containsAddress({ masked: false })),
  ...named('containsCIDR', containsAddress({ masked: true })),
  ...named('validate', (_target, [text]) =>
    text === undefined ? undefined : { cost: scaled(scaled(sizeOf(text), TEXT), MAX_FORMAT_PATTERN * PATTERN) },
  ),
  ...named('format.named sign asInteger isInteger asApproximateFloat isGreaterThan isLessThan compareTo', cheap),
  ...named('add sub major minor patch getScheme getHostname getHost getPort getEscapedPath getQuery', cheap),
  ...named('sets.contains sets.intersects', comparesSets(1)),
  ...named('sets.equivalent', comparesSets(2)),
  ...named('reverse', (target, args) => (target?.type.kind === 'list' ? overList(1)(target, args) : undefined)),
  ...named('flatten', (target, args) => overList(args.length === 0 ? 1 : numberOf(args[0], UNBOUNDED))(target, args)),
  ...named('distinct', comparesAll({ readsTexts: false })),
  ...named('sort', comparesAll({ readsTexts: true })),
  ...named('slice', slices),
  ...named('lists.range', (_target, [count]) => listed(1, upTo(numberOf(count, UNBOUNDED)))),
  ...named('strings.quote', (_target, [text]) => {
    const { min, max } = sizeOf(text);
    return { cost: scaled(sizeOf(text), TEXT), size: sum(exactly(2), { min, max: max * 2 }) };
  }),
  ...named(
    'bytes',
    converts('string', ({ min, max }) => sum(NOTHING, { min, max: max * 4 })),
  ),
  ...named(
    'string',
    converts('bytes', ({ min, max }) => ({ min: Math.floor(min / 4), max })),
  ),
  ...named('_+_', concatenates),
  ...named('_==_', equals),
  ...named('_!=_', compares),
  ...named('_<_ _<=_ _>_ _>=_', ordersTexts),
  ...named('@in', isIn),
]);

/** Returns the cost of the call alone, without the cost of its arguments. */
export function callCost(name: string, target: CostNode | undefined, args: readonly CostNode[]): CallEstimate {
  return CALLS.get(name)?.(target, args) ?? { cost: ONE };
}
