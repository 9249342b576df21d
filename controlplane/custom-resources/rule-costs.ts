/**
 * Bounds the cost of a definition's rules, by the estimated cost of each and the number of values in an object that it is
 * evaluated for. Each rule and all rules together have a limit; a definition that may exceed it is refused.
 */
import { UNBOUNDED } from '../../api/cel/cost-range.ts';
import { type FieldError, forbidden } from '../../api/meta/field-error.ts';
import type { JsonSchema } from './json-schema.ts';

const RULE_LIMIT = 10_000_000;
const TOTAL_LIMIT = 100_000_000;
const SHOWN = 4;

/** How often the value may be in an object; `undefined` if that is unbounded. */
export type Count = number | undefined;

/** Of what is inside of a value that stands `count` times. */
export function countInside(count: Count, schema: JsonSchema): Count {
  if (count === undefined) return undefined;
  const isMap = schema.type === 'object' && schema.additionalProperties !== undefined;
  if (schema.type !== 'array' && !isMap) return count;
  const most = isMap ? schema.maxProperties : schema.maxItems;
  return most === undefined ? undefined : Math.min(UNBOUNDED, count * Math.max(0, most));
}

export class RuleCosts {
  #total = 0;
  #largest: { readonly path: string; readonly cost: number }[] = [];

  /** `name` says what costs: `estimated rule cost`. Rules that were taken before are counted only. */
  observe(path: string, name: string, cost: number, isKnown: boolean): FieldError[] {
    this.#total = Math.min(UNBOUNDED, this.#total + cost);
    if (cost >= TOTAL_LIMIT / 100) {
      this.#largest.push({ path, cost });
      this.#largest = this.#largest.sort((a, b) => b.cost - a.cost).slice(0, SHOWN);
    }
    return isKnown || cost <= RULE_LIMIT ? [] : [forbidden(path, excess(name, cost, RULE_LIMIT))];
  }

  /** Of all rules that were observed; `path` is that of the schema. */
  errors(path: string): FieldError[] {
    if (this.#total <= TOTAL_LIMIT) return [];
    const why = 'contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema';
    const name = 'x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema';
    return [
      ...this.#largest.map((one) => forbidden(one.path, why)),
      forbidden(path, excess(name, this.#total, TOTAL_LIMIT)),
    ];
  }
}

function excess(name: string, cost: number, limit: number): string {
  const factor = cost / limit;
  const shown = factor > 100 ? 'more than 100x' : factor < 1.5 ? `${factor.toFixed(6)}x` : `${factor.toFixed(1)}x`;
  return `${name} exceeds budget by factor of ${shown} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)`;
}
