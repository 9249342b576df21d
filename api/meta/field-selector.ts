/**
 * Parses and matches field selectors: `metadata.name=x,status.phase!=Running`. The registry decides which fields a kind
 * supports.
 */
import { MAX_REQUIREMENTS } from './selector.ts';
import { newBadRequest } from './status-error.ts';

interface FieldRequirement {
  readonly field: string;
  readonly operator: '=' | '!=';
  readonly value: string;
}

/** Returns the text of a field. It is empty if the object does not have the field. */
type FieldGetter = (field: string) => string;

/** All requirements must match. */
export interface FieldSelector {
  readonly requirements: readonly FieldRequirement[];
  readonly isEmpty: boolean;
  matches(get: FieldGetter): boolean;
  /** Returns the value that `field` must have, or `undefined` if no requirement demands one. */
  exactValue(field: string): string | undefined;
  toString(): string;
}

class RequirementList implements FieldSelector {
  readonly requirements: readonly FieldRequirement[];

  constructor(requirements: readonly FieldRequirement[]) {
    this.requirements = requirements;
  }

  get isEmpty(): boolean {
    return this.requirements.length === 0;
  }

  matches(get: FieldGetter): boolean {
    for (const requirement of this.requirements) {
      if ((get(requirement.field) === requirement.value) !== (requirement.operator === '=')) return false;
    }
    return true;
  }

  exactValue(field: string): string | undefined {
    return this.requirements.find((one) => one.field === field && one.operator === '=')?.value;
  }

  toString(): string {
    return this.requirements.map((one) => `${one.field}${one.operator}${escapeFieldValue(one.value)}`).join(',');
  }
}

/** The selector without requirements. */
export const everyField: FieldSelector = new RequirementList([]);

/** Builds a selector from parsed requirements. */
export function newFieldSelector(requirements: readonly FieldRequirement[]): FieldSelector {
  return requirements.length === 0 ? everyField : new RequirementList(requirements);
}

/** Parses a field selector. Throws a 400 with kube-apiserver's messages. */
export function parseFieldSelector(text: string): FieldSelector {
  const requirements: FieldRequirement[] = [];
  const terms = splitTerms(text);
  if (terms.length > MAX_REQUIREMENTS) {
    throw newBadRequest(`the field selector has more than ${MAX_REQUIREMENTS} requirements`);
  }
  for (const term of terms.sort()) {
    if (term === '') continue;
    const operator = /!=|==|=/.exec(term);
    if (operator === null) throw newBadRequest(`invalid selector: '${text}'; can't understand '${term}'`);
    const field = term.slice(0, operator.index);
    const value = unescapeValue(term.slice(operator.index + operator[0].length));
    // As in kube-apiserver, a term without a field and a value selects everything.
    if (field !== '' || value !== '') requirements.push({ field, operator: operator[0] === '!=' ? '!=' : '=', value });
  }
  return newFieldSelector(requirements);
}

/** Splits at commas that are not escaped with a backslash. */
function splitTerms(text: string): string[] {
  const terms: string[] = [];
  let start = 0;
  for (let i = 0; i < text.length; i++) {
    if (text[i] === '\\') i++;
    else if (text[i] === ',') {
      terms.push(text.slice(start, i));
      start = i + 1;
    }
  }
  terms.push(text.slice(start));
  return terms;
}

function escapeFieldValue(value: string): string {
  return value.replace(/[\\,=]/g, '\\$&');
}

function unescapeValue(text: string): string {
  if (!/[\\,=]/.test(text)) return text;
  let value = '';
  let escaped = false;
  for (const char of text) {
    if (escaped) {
      if (!'\\,='.includes(char)) throw newBadRequest(`invalid field selector: invalid escape sequence: \\${char}`);
      value += char;
      escaped = false;
    } else if (char === '\\') escaped = true;
    else if (char === ',' || char === '=') {
      throw newBadRequest(`invalid field selector: unescaped character in value: ${char.charCodeAt(0)}`);
    } else value += char;
  }
  if (escaped) throw newBadRequest('invalid field selector: invalid escape sequence: \\');
  return value;
}
