/**
 * Limits the cost of a definition's rules. The cost of a rule is its estimated cost for one value times the maximum number of
 * such values in an object.
 */
import { UNBOUNDED } from '../../../api/cel/cost-range.ts';
import { type FieldError, forbidden } from '../../../api/meta/field-error.ts';
import type { JsonSchema } from './json-schema.ts';

/** The limits of kube-apiserver: `StaticEstimatedCostLimit` and `StaticEstimatedCRDCostLimit`. */
const RULE_LIMIT = 10_000_000;
const TOTAL_LIMIT = 100_000_000;
/** The number of the most expensive rules that errors name. */
const MAX_SHOWN_RULES = 4;
/** The cost from which on the error may name a rule. */
const MIN_SHOWN_COST = TOTAL_LIMIT / 100;

/** The maximum number of values of one schema in an object, or `undefined` if it is unbounded. */
export type Count = number | undefined;

/** Returns the count of the items or members of a value that occurs `count` times. */
export function countInside(count: Count, schema: JsonSchema): Count {
  if (count === undefined) return undefined;
  const isMap = schema.type === 'object' && schema.additionalProperties !== undefined;
  if (schema.type !== 'array' && !isMap) return count;
  const max = isMap ? schema.maxProperties : schema.maxItems;
  return max === undefined ? undefined : Math.min(UNBOUNDED, count * Math.max(0, max));
}

/** Adds up the estimated costs of the rules of one schema. */
export class RuleCosts {
  #total = 0;
  #largest: { readonly path: string; readonly cost: number }[] = [];

  /**
   * Adds the cost of a rule, and returns its error if it exceeds the limit of a rule. `name` is the name of the cost in
   * messages, such as `estimated rule cost`. Rules that are already stored are counted, but have no limit of their own.
   */
  observe(path: string, name: string, cost: number, isKnown: boolean): FieldError[] {
    this.#total = Math.min(UNBOUNDED, this.#total + cost);
    if (cost >= MIN_SHOWN_COST) {
      this.#largest.push({ path, cost });
      this.#largest = this.#largest.sort((a, b) => b.cost - a.cost).slice(0, MAX_SHOWN_RULES);
    }
    return isKnown || cost <= RULE_LIMIT ? [] : [forbidden(path, excess(name, cost, RULE_LIMIT))];
  }

  /** Returns the errors for the total cost of the observed rules. `path` is the path of the schema. */
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
