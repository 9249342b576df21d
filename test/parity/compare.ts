/**
 * Compares a response with a recorded one. Parts of messages in which kube-apiserver prints its Go types, or describes errors
 * in expressions and in JSON of a wrong type, are not part of the API and are not compared.
 */
import { isObject } from './json-path.ts';
import type { Outcome, Step } from './scenario.ts';

export interface Difference {
  /** A JSON pointer into the outcome. */
  readonly at: string;
  readonly want: unknown;
  readonly got: unknown;
}

/** Returns the differences, except those at the pointers that the step ignores. */
export function compare(step: Step, want: Outcome, got: Outcome | undefined): Difference[] {
  const differences: Difference[] = [];
  const ignored = (step.ignore ?? []).map(pointerPattern);
  walk(shown(want), shown(got), '', ignored, differences);
  return differences;
}

function shown(outcome: Outcome | undefined): Record<string, unknown> {
  return { status: outcome?.status, headers: outcome?.headers, body: outcome?.body, decoded: outcome?.decoded };
}

/** Returns a pattern for an ignored pointer and everything below it. `*` matches one segment. */
function pointerPattern(pointer: string): RegExp {
  const source = pointer
    .split('*')
    .map((piece) => piece.replaceAll(/[\\^$.+?()[\]{}|]/g, '\\$&'))
    .join('[^/]+');
  return new RegExp(`^${source}(/|$)`);
}

function walk(want: unknown, got: unknown, at: string, ignored: readonly RegExp[], differences: Difference[]): void {
  if (ignored.some((pattern) => pattern.test(at)) || want === got) return;
  if (typeof want === 'string' && typeof got === 'string' && at.endsWith('/message') && loose(want) === loose(got))
    return;
  const comparable = (Array.isArray(want) && Array.isArray(got)) || (isObject(want) && isObject(got));
  if (!comparable) {
    differences.push({ at, want, got });
    return;
  }
  const [a, b] = [inOrder(want, at), inOrder(got, at)];
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    walk(a[key], b[key], `${at}/${key}`, ignored, differences);
  }
}

/**
 * Sorts managed fields by their owners. Servers sort them by times in whole seconds, so the order depends on whether a second
 * ends between two requests.
 */
function inOrder(value: unknown, at: string): Record<string, unknown> {
  if (!at.endsWith('/managedFields') || !Array.isArray(value)) return value as Record<string, unknown>;
  const owner = (entry: unknown): string => {
    const { operation, manager, apiVersion, subresource } = isObject(entry) ? entry : {};
    return JSON.stringify([operation, manager, apiVersion, subresource]);
  };
  const sorted = value.toSorted((one, other) => (owner(one) < owner(other) ? -1 : 1));
  return sorted as unknown as Record<string, unknown>;
}

/** Returns a message without the parts that are not compared. */
export function loose(message: string): string {
  let text = message
    // An empty list is stored like an absent one, so the diff of a spec does not distinguish them.
    .replace(/\n@@ [\s\S]*$/, (difference) => difference.replaceAll('": []', '": null'))
    .replace(/compilation failed: [\s\S]*$/, 'compilation failed')
    .replace(/(cannot be handled as an? \w+: )(?!strict decoding error|quantities must)[\s\S]*$/, '$1')
    .replace(/[\]\s]+$/, '');
  for (let match = STRUCT_DUMP.exec(text); match !== null; match = STRUCT_DUMP.exec(text)) {
    const end = endOfValue(text, match.index + 2);
    text = `${text.slice(0, match.index)}: <value>${text.slice(end + 1)}`;
  }
  return text;
}

const STRUCT_DUMP = /: \[?\{"/;

/** Returns the end of the JSON value that begins at `start`. */
function endOfValue(text: string, start: number): number {
  let depth = 0;
  let quoted = false;
  let at = start;
  for (; at < text.length; at += 1) {
    const char = text[at];
    if (quoted) {
      if (char === '\\') at += 1;
      else if (char === '"') quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === '{' || char === '[') depth += 1;
    else if (char === '}' || char === ']') {
      depth -= 1;
      if (depth === 0) break;
    }
  }
  return at;
}
