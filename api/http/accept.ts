/**
 * Parses the clauses of an `Accept` header into the order in which they are tried.
 *
 * The order is that of kube-apiserver: a quality of 0 is the last choice and excludes nothing, and a type without wildcards
 * moves before one with wildcards even if its quality is lower.
 */
import { trim } from '../component/trim.ts';

/** One clause, without its quality. */
export interface AcceptClause {
  /** The media type as it was sent. The type `*` is the same as `*` with any subtype. */
  readonly type: string;
  readonly params: ReadonlyMap<string, string>;
}

interface RatedClause extends AcceptClause {
  readonly quality: number;
}

/**
 * The number of clauses up to which they are sorted as in kube-apiserver. More clauses are sorted in less time, and their order
 * may be another one.
 */
const MAX_COMPARED = 12;

/** Returns the clauses, best first. An absent or empty header accepts everything. */
export function acceptClauses(accept: string | undefined): readonly AcceptClause[] {
  if (accept === undefined || accept === '') return [{ type: '*/*', params: new Map() }];
  const clauses = accept.split(',').flatMap((part) => clauseOf(trim(part, ' ')) ?? []);
  if (clauses.length > MAX_COMPARED)
    return clauses.sort((a, b) => b.quality - a.quality || vagueness(a) - vagueness(b));
  return insertionSorted(clauses);
}

/** Parses a clause. Returns `undefined` for a text that is no media type. */
function clauseOf(text: string): RatedClause | undefined {
  const [range = '', ...paramTexts] = text.split(';');
  const [main = '', subtype = '', ...more] = range.split('/').map((part) => trim(part, ' '));
  if (more.some((part) => part !== '') || (subtype === '' && main !== '*')) return undefined;
  const params = new Map<string, string>();
  let quality = 1;
  for (const param of paramTexts) {
    const [key = '', value = '', ...others] = param.split('=');
    if (value === '' || others.some((part) => part !== '')) continue;
    if (trim(key, ' ') === 'q') quality = qualityOf(value);
    else params.set(trim(key, ' '), trim(value, ' '));
  }
  return { type: `${main}/${subtype === '' ? '*' : subtype}`, params, quality };
}

/** Parses a quality. Returns 0 for a text that is no number. */
const qualityOf = (text: string): number =>
  /^[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?$/i.test(text) ? Math.fround(Number(text)) : 0;

/**
 * Sorts clauses by insertion. kube-apiserver's comparison is not an order: of two clauses, each may be before the other. So
 * the result depends on how it is sorted, and Go sorts short lists by insertion.
 */
function insertionSorted(clauses: RatedClause[]): RatedClause[] {
  const sorted: RatedClause[] = [];
  for (const clause of clauses) {
    let at = sorted.length;
    for (let before = sorted[at - 1]; before !== undefined && isBefore(clause, before); before = sorted[at - 1])
      at -= 1;
    sorted.splice(at, 0, clause);
  }
  return sorted;
}

const isBefore = (a: RatedClause, b: RatedClause): boolean =>
  a.quality > b.quality ||
  (!a.type.startsWith('*/') && b.type.startsWith('*/')) ||
  (!a.type.endsWith('/*') && b.type.endsWith('/*'));

const vagueness = ({ type }: AcceptClause): number => (type.startsWith('*/') ? 2 : type.endsWith('/*') ? 1 : 0);
