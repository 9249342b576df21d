/**
 * Implements the CEL library of named formats: `format.dns1123Label().validate(text)` returns the errors, or no value if there
 * are none.
 */
import { checkRequestUri, GoUrlError } from '../../meta/go-url.ts';
import {
  dnsLabelErrors,
  dnsSubdomainErrors,
  labelValueErrors,
  qualifiedNameErrors,
  rfc1035LabelErrors,
} from '../../meta/names.ts';
import { isBase64, isDate, isDateTime, uuidPattern } from '../../meta/text-formats.ts';
import { both, fn, type FunctionRow } from '../functions.ts';
import { list, opaque, optional, string } from '../types.ts';
import { OpaqueValue, Optional } from '../values.ts';

class Format extends OpaqueValue {
  readonly typeName = 'kubernetes.NamedFormat';
  readonly name: string;
  readonly check: (text: string) => string[];
  constructor(name: string, check: (text: string) => string[]) {
    super();
    this.name = name;
    this.check = check;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Format && other.name === this.name;
  }
}

const namedFormat = opaque('kubernetes.NamedFormat');
const prefix = (check: (text: string) => string[]) => (text: string) => check(text.replace(/.-$/s, 'a'));
const unless = (ok: (text: string) => boolean, why: string) => (text: string) => (ok(text) ? [] : [why]);

const UUID = uuidPattern('[0-9a-f]');

function uriErrors(text: string): string[] {
  try {
    checkRequestUri(text);
    return [];
  } catch (error) {
    if (error instanceof GoUrlError) return [error.message];
    throw error;
  }
}

const FORMATS: ReadonlyMap<string, (text: string) => string[]> = new Map(
  Object.entries({
    dns1123Label: dnsLabelErrors,
    dns1123Subdomain: dnsSubdomainErrors,
    dns1035Label: rfc1035LabelErrors,
    qualifiedName: qualifiedNameErrors,
    dns1123LabelPrefix: prefix(dnsLabelErrors),
    dns1123SubdomainPrefix: prefix(dnsSubdomainErrors),
    dns1035LabelPrefix: prefix(rfc1035LabelErrors),
    labelValue: labelValueErrors,
    uri: uriErrors,
    uuid: unless((text) => UUID.test(text), 'does not match the UUID format'),
    byte: unless(isBase64, 'invalid base64'),
    date: unless(isDate, 'invalid date'),
    datetime: unless(isDateTime, 'invalid datetime'),
  }),
);

/** The overloads of the library `format`. */
export const formats: readonly FunctionRow[] = [
  ...[...FORMATS].map(([name, check]) => fn(`format.${name}`, [], namedFormat, () => new Format(name, check))),
  fn('format.named', [string], optional(namedFormat), (name: string) => {
    const check = FORMATS.get(name);
    return new Optional(check === undefined ? undefined : new Format(name, check));
  }),
  ...both('validate', [namedFormat, string], optional(list(string)), ({ check }: Format, text: string) => {
    const errors = check(text);
    return new Optional(errors.length === 0 ? undefined : errors);
  }),
];
