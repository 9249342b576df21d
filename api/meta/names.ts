/**
 * Validates names: DNS labels and subdomains, qualified names, label values, path segments, keys and ports.
 *
 * The functions named `…Errors` return texts or field errors with kube-apiserver's wording; an empty list means valid.
 */
import { quoteText } from './quote.ts';
import { invalid, required, type FieldError } from './field-error.ts';

const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const SUBDOMAIN = `${LABEL}(\\.${LABEL})*`;
const UNDERSCORE_LABEL = '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?';
const UNDERSCORE_SUBDOMAIN = `${UNDERSCORE_LABEL}(\\.${UNDERSCORE_LABEL})*`;
const RFC1035_LABEL = '[a-z]([-a-z0-9]*[a-z0-9])?';
const QUALIFIED = '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]';
const LABEL_VALUE = `(${QUALIFIED})?`;
const WILDCARD = `\\*\\.${SUBDOMAIN}`;
const C_IDENTIFIER = '[A-Za-z_][A-Za-z0-9_]*';
const HTTP_PATH = "[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+";
const HEADER = '[-A-Za-z0-9]+';
const CONFIG_KEY = '[-._a-zA-Z0-9]+';
const PERCENT = '[0-9]+%';

const whole = (source: string): RegExp => new RegExp(`^(?:${source})$`);
const LABEL_PATTERN = whole(LABEL);
const SUBDOMAIN_PATTERN = whole(SUBDOMAIN);
const UNDERSCORE_PATTERN = whole(UNDERSCORE_SUBDOMAIN);
const RFC1035_PATTERN = whole(RFC1035_LABEL);
const QUALIFIED_PATTERN = whole(QUALIFIED);
const LABEL_VALUE_PATTERN = whole(LABEL_VALUE);
const WILDCARD_PATTERN = whole(WILDCARD);
const C_IDENTIFIER_PATTERN = whole(C_IDENTIFIER);
const HTTP_PATH_PATTERN = whole(HTTP_PATH);
const HEADER_PATTERN = whole(HEADER);
const CONFIG_KEY_PATTERN = whole(CONFIG_KEY);
const PERCENT_PATTERN = whole(PERCENT);

/** The longest DNS label (RFC 1035). */
export const MAX_LABEL_LENGTH = 63;
/** The longest name of an object that is a DNS subdomain. */
export const MAX_SUBDOMAIN_LENGTH = 253;

const EMPTY = 'must be non-empty';

/**
 * Returns `message (e.g. 'a',  or 'b', regex used for validation is '…')`. kube-apiserver's messages have the same
 * spacing.
 */
export function patternError(message: string, pattern: string, ...examples: readonly string[]): string {
  if (examples.length === 0) return `${message} (regex used for validation is '${pattern}')`;
  const shown = examples.map((example) => `'${example}', `).join(' or ');
  return `${message} (e.g. ${shown}regex used for validation is '${pattern}')`;
}

const maxLengthError = (max: number): string => `must be no more than ${max} characters`;
const maxBytesError = (max: number): string => `must be no more than ${max} bytes`;
/** Returns the text for a number out of range. */
export const rangeError = (low: number, high: number): string => `must be between ${low} and ${high}, inclusive`;

/** Counts the bytes of the UTF-8 encoding. */
const sizeOf = (text: string): number => Buffer.byteLength(text);
const tooLongFor = (text: string, max: number): boolean =>
  text.length > max || (text.length * 3 > max && sizeOf(text) > max);

/** Validates a label of RFC 1123: lower case letters, digits and `-`. */
export function dnsLabelErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_LABEL_LENGTH)) errors.push(maxLengthError(MAX_LABEL_LENGTH));
  if (LABEL_PATTERN.test(value)) return errors;
  errors.push(
    SUBDOMAIN_PATTERN.test(value)
      ? 'must not contain dots'
      : patternError(
          "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
          LABEL,
          'my-name',
          '123-abc',
        ),
  );
  return errors;
}

const SUBDOMAIN_ERROR = patternError(
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
  SUBDOMAIN,
  'example.com',
);

/** Returns the errors of a DNS subdomain: labels of RFC 1123, separated by dots. */
export function dnsSubdomainErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_SUBDOMAIN_LENGTH)) errors.push(maxLengthError(MAX_SUBDOMAIN_LENGTH));
  if (!SUBDOMAIN_PATTERN.test(value)) errors.push(SUBDOMAIN_ERROR);
  return errors;
}

/** Returns the errors of a DNS subdomain whose labels may contain `_`. */
export function dnsSubdomainWithUnderscoreErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_SUBDOMAIN_LENGTH)) errors.push(maxLengthError(MAX_SUBDOMAIN_LENGTH));
  if (!UNDERSCORE_PATTERN.test(value)) {
    errors.push(
      patternError(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
        UNDERSCORE_SUBDOMAIN,
        'example.com',
      ),
    );
  }
  return errors;
}

/** Validates a label of RFC 1035, which begins with a letter. */
export function rfc1035LabelErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_LABEL_LENGTH)) errors.push(maxLengthError(MAX_LABEL_LENGTH));
  if (!RFC1035_PATTERN.test(value)) {
    errors.push(
      patternError(
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
        RFC1035_LABEL,
        'my-name',
        'abc-123',
      ),
    );
  }
  return errors;
}

/** Validates a subdomain after `*.`. */
export function wildcardSubdomainErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_SUBDOMAIN_LENGTH)) errors.push(maxLengthError(MAX_SUBDOMAIN_LENGTH));
  if (!WILDCARD_PATTERN.test(value)) {
    errors.push(
      patternError(
        "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
        WILDCARD,
        '*.example.com',
      ),
    );
  }
  return errors;
}

const QUALIFIED_TEXT =
  "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const QUALIFIED_ERROR = patternError(QUALIFIED_TEXT, QUALIFIED, 'MyName', 'my.name', '123-abc');

/** A cache of valid qualified names. */
const validQualifiedNames = new Set<string>();
const MAX_CACHED_NAMES = 4096;

/** Validates `name` or `prefix/name`. */
export function qualifiedNameErrors(value: string): string[] {
  if (validQualifiedNames.has(value)) return [];
  const errors = findQualifiedNameErrors(value);
  if (errors.length === 0 && validQualifiedNames.size < MAX_CACHED_NAMES) validQualifiedNames.add(value);
  return errors;
}

function findQualifiedNameErrors(value: string): string[] {
  const parts = value.split('/');
  if (parts.length > 2) {
    return [
      `a valid label key ${QUALIFIED_ERROR} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')`,
    ];
  }
  const errors: string[] = [];
  const name = parts.at(-1) ?? '';
  const prefix = parts.length === 2 ? (parts[0] ?? '') : undefined;
  if (prefix === '') errors.push(`prefix part ${EMPTY}`);
  else if (prefix !== undefined) {
    if (tooLongFor(prefix, MAX_SUBDOMAIN_LENGTH)) errors.push(`prefix part ${maxBytesError(MAX_SUBDOMAIN_LENGTH)}`);
    if (!SUBDOMAIN_PATTERN.test(prefix)) errors.push(`prefix part ${SUBDOMAIN_ERROR}`);
  }
  if (name === '') errors.push(`name part ${EMPTY}`);
  else if (tooLongFor(name, MAX_LABEL_LENGTH)) errors.push(`name part ${maxBytesError(MAX_LABEL_LENGTH)}`);
  if (!QUALIFIED_PATTERN.test(name)) errors.push(`name part ${QUALIFIED_ERROR}`);
  return errors;
}

/** Validates the value of a label; it may be empty. */
export function labelValueErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_LABEL_LENGTH)) errors.push(maxBytesError(MAX_LABEL_LENGTH));
  if (!LABEL_VALUE_PATTERN.test(value)) {
    errors.push(
      patternError(
        "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
        LABEL_VALUE,
        'MyValue',
        'my_value',
        '12345',
      ),
    );
  }
  return errors;
}

/** Validates a name that is one segment of a URL path. */
export function pathSegmentErrors(name: string): string[] {
  if (name === '.' || name === '..') return [`may not be '${name}'`];
  return ['/', '%'].filter((part) => name.includes(part)).map((part) => `may not contain '${part}'`);
}

/** Returns why no request for an object can have the name, in the words of client-go, or `undefined` if it can. */
export function requestNameFault(name: string): string | undefined {
  if (name === '') return 'resource name may not be empty';
  const errors = pathSegmentErrors(name);
  return errors.length === 0 ? undefined : `invalid resource name ${quoteText(name)}: [${errors.join(' ')}]`;
}

/** Validates a C identifier: letters, digits and `_`, without a digit at the beginning. */
export function cIdentifierErrors(value: string): string[] {
  if (C_IDENTIFIER_PATTERN.test(value)) return [];
  return [
    patternError(
      "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
      C_IDENTIFIER,
      'my_name',
      'MY_NAME',
      'MyName',
    ),
  ];
}

/** Validates a whole number from 1 to 65535. */
export const portNumberErrors = (port: number): string[] =>
  Number.isInteger(port) && port >= 1 && port <= 65535 ? [] : [rangeError(1, 65535)];

const MAX_PORT_NAME_LENGTH = 15;

/** Validates the name of a port (IANA_SVC_NAME of RFC 6335). */
export function portNameErrors(port: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(port, MAX_PORT_NAME_LENGTH)) errors.push(maxLengthError(MAX_PORT_NAME_LENGTH));
  if (!/^[-a-z0-9]+$/.test(port)) {
    errors.push('must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)');
  }
  if (!/[a-z]/.test(port)) errors.push('must contain at least one letter (a-z)');
  if (port.includes('--')) errors.push('must not contain consecutive hyphens');
  if (port.startsWith('-') || port.endsWith('-')) errors.push('must not begin or end with a hyphen');
  return errors;
}

/** Validates a number with `%`. */
export function percentErrors(value: string): string[] {
  if (PERCENT_PATTERN.test(value)) return [];
  return [
    patternError("a valid percent string must be a numeric string followed by an ending '%'", PERCENT, '1%', '93%'),
  ];
}

/** Validates the name of an HTTP header. */
export function httpHeaderNameErrors(value: string): string[] {
  if (HEADER_PATTERN.test(value)) return [];
  return [patternError("a valid HTTP header must consist of alphanumeric characters or '-'", HEADER, 'X-Header-Name')];
}

function parentDirectoryErrors(value: string): string[] {
  if (value === '.') return ["must not be '.'"];
  if (value === '..') return ["must not be '..'"];
  return value.startsWith('..') ? ["must not start with '..'"] : [];
}

/** Validates an environment variable name by the relaxed rule that containers use: printable ASCII except `=`. */
export function relaxedEnvironmentNameErrors(value: string): string[] {
  const errors: string[] = [];
  if (value === '') errors.push(`environment variable name ${EMPTY}`);
  if (!/^[\x20-\x3c\x3e-\x7e]*$/.test(value)) {
    errors.push("a valid environment variable name must consist only of printable ASCII characters other than '='");
  }
  return errors;
}

/** Validates a key of a ConfigMap or Secret. */
export function configKeyErrors(value: string): string[] {
  const errors: string[] = [];
  if (tooLongFor(value, MAX_SUBDOMAIN_LENGTH)) errors.push(maxLengthError(MAX_SUBDOMAIN_LENGTH));
  if (!CONFIG_KEY_PATTERN.test(value)) {
    errors.push(
      patternError(
        "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
        CONFIG_KEY,
        'key.name',
        'KEY_NAME',
        'key-name',
      ),
    );
  }
  return [...errors, ...parentDirectoryErrors(value)];
}

/** Validates a domain with at least three labels, such as the name of a webhook. */
export function fullyQualifiedNameErrors(field: string, name: string): FieldError[] {
  if (name === '') return [required(field)];
  const errors = dnsSubdomainErrors(name);
  if (errors.length > 0) return [invalid(field, name, errors.join(','))];
  if (name.split('.').length < 3) {
    return [invalid(field, name, 'should be a domain with at least three segments separated by dots')];
  }
  return [];
}

/** Validates a domain with at least two labels, which may end with a dot. */
export function fullyQualifiedDomainErrors(field: string, name: string): FieldError[] {
  if (name === '') return [required(field)];
  const domain = name.endsWith('.') ? name.slice(0, -1) : name;
  const errors = dnsSubdomainErrors(domain);
  if (errors.length > 0) return [invalid(field, domain, errors.join(','))];
  const labels = domain.split('.');
  if (labels.length < 2) {
    return [invalid(field, domain, 'should be a domain with at least two segments separated by dots')];
  }
  return labels
    .map((label) => ({ label, errors: dnsLabelErrors(label) }))
    .filter((found) => found.errors.length > 0)
    .map((found) => invalid(field, found.label, found.errors.join(',')));
}

/** Validates a path with a domain prefix, such as `acme.io/foo`. */
export function domainPrefixedPathErrors(field: string, text: string): FieldError[] {
  if (text === '') return [required(field)];
  const slash = text.indexOf('/');
  const host = text.slice(0, Math.max(slash, 0));
  const path = text.slice(slash + 1);
  if (slash === -1 || host === '' || path === '') {
    return [invalid(field, text, 'must be a domain-prefixed path (such as "acme.io/foo")')];
  }
  const errors = dnsSubdomainErrors(host).map((error) => invalid(field, host, error));
  if (!HTTP_PATH_PATTERN.test(path)) errors.push(invalid(field, path, patternError('Invalid path', HTTP_PATH)));
  return errors;
}

/** The form of a validated name. With `asPrefix`, a generated suffix will follow, so the text may end with a dash. */
interface NameForm {
  readonly asPrefix: boolean;
}

/** The rule that validates the names of a kind's objects. */
export type NameRule = (name: string, form: NameForm) => string[];

/** Replaces a dash at the end and the character before it by a letter, because a generated suffix follows the dash. */
function maskTrailingDash(name: string): string {
  return name.length > 1 && name.endsWith('-') ? `${name.slice(0, -2)}a` : name;
}

const masked =
  (check: (name: string) => string[]): NameRule =>
  (name, form) =>
    check(form.asPrefix ? maskTrailingDash(name) : name);

/** Validates the names of most kinds. */
export const nameIsSubdomain: NameRule = masked(dnsSubdomainErrors);
/** Validates names that become part of a DNS name, such as those of namespaces. */
export const nameIsLabel: NameRule = masked(dnsLabelErrors);
/** Validates names that only have to fit into a path, such as those of RBAC. */
export const nameIsPathSegment: NameRule = (name, form) =>
  form.asPrefix
    ? ['/', '%'].filter((part) => name.includes(part)).map((part) => `may not contain '${part}'`)
    : pathSegmentErrors(name);

/**
 * The characters of generated suffixes. There are no vowels and no digits that look like letters, so that generated names
 * contain no words.
 */
const SUFFIX_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';
const SUFFIX_LENGTH = 5;

/** Appends five random characters to a `generateName`. Shortens a base that would make the name too long. */
export function generateName(base: string, random: () => number = Math.random): string {
  const prefix = base.slice(0, MAX_LABEL_LENGTH - SUFFIX_LENGTH);
  return prefix + randomSuffix(SUFFIX_LENGTH, random);
}

/** Returns random characters that form no words, for generated names. */
export function randomSuffix(length: number, random: () => number = Math.random): string {
  let suffix = '';
  for (let i = 0; i < length; i++) suffix += SUFFIX_ALPHABET.charAt(Math.floor(random() * SUFFIX_ALPHABET.length));
  return suffix;
}
