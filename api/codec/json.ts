/**
 * Decodes and encodes JSON as kube-apiserver does.
 *
 * It reports what `JSON.parse` hides: duplicate keys (with their paths), 64-bit integers that are not safe as a double
 * (`bigint`), and syntax errors with kube-apiserver's messages. Invalid UTF-8 becomes U+FFFD. The depth is limited, so that
 * later recursions cannot exhaust the stack, and so is the number of values.
 */
import type { JsonValue } from '../meta/object.ts';
import { quote } from '../meta/field-error.ts';
import { setMember } from '../meta/own-member.ts';
import { MAX_VALUES, tooManyValues } from './limits.ts';
import { jsonPath } from '../meta/json-path.ts';
import { INT64_MAX, INT64_MIN } from '../meta/integers.ts';

interface ParsedJson {
  readonly value: JsonValue;
  /**
   * At most 1000 literals of whole numbers with a fraction or an exponent (`1.0`, `6E2`) by path, if there are any.
   * kube-apiserver accepts them only for fields of type double.
   */
  readonly decimals?: ReadonlyMap<string, string>;
  /** The paths of duplicate keys in order (`metadata.labels.a`), at most 100. The last value of a key counts. */
  readonly duplicates: readonly string[];
}

/**
 * The error for text that is not JSON. It has kube-apiserver's message (`invalid character 'n' looking for beginning of
 * value`).
 */
export class JsonSyntaxError extends Error {
  override readonly name = 'JsonSyntaxError';
}

/** The error for a number that no double holds. The text around it may be valid. */
export class JsonNumberError extends JsonSyntaxError {}

/** The maximum nesting, and the maximum numbers of duplicate keys and of integers with a decimal point that are reported. */
const MAX_DEPTH = 2000;
const MAX_DUPLICATES = 100;
const MAX_DECIMALS = 1000;

/** The limits of a text that contains other documents. */
export interface JsonLimits {
  readonly maxValues?: number;
  /** The levels of nesting around documents that have the usual depth. */
  readonly outerDepth?: number;
}

/**
 * Parses a text. Throws `JsonSyntaxError` for a text that is not JSON, that is nested too deeply, or that has more than
 * `maxValues` values, and `JsonNumberError` for a number that no double holds.
 */
export function parseJson(
  text: string | Uint8Array,
  { maxValues = MAX_VALUES, outerDepth = 0 }: JsonLimits = {},
): ParsedJson {
  const source =
    typeof text === 'string' ? text : Buffer.from(text.buffer, text.byteOffset, text.byteLength).toString();
  const plain = parsePlain(source, maxValues);
  if (plain !== undefined) return { value: plain, duplicates: [] };
  const parser = new Parser(source, { maxValues, maxDepth: MAX_DEPTH + outerDepth });
  const value = parser.document();
  const { duplicates, decimals } = parser;
  return decimals === undefined ? { value, duplicates } : { value, duplicates, decimals };
}

/** The length up to which no text is nested too deeply, because each level takes two characters. */
const MAX_PLAIN_LENGTH = 2 * MAX_DEPTH;
/** Matches what encodes to the same text although `Parser` reads something else: single surrogates and large numbers. */
const AMBIGUOUS = /\\u|e\+|[:[,\s]-?\d{16,}/;

/**
 * Parses a short object with `JSON.parse`, if its encoding is the text itself, so that `JSON.parse` hides nothing. Otherwise
 * returns `undefined`.
 */
function parsePlain(text: string, maxValues: number): JsonValue | undefined {
  if (text.length > MAX_PLAIN_LENGTH || text.length > 2 * maxValues) return undefined;
  if (!text.startsWith('{') || AMBIGUOUS.test(text)) return undefined;
  try {
    const value = JSON.parse(text) as JsonValue;
    // Clients end their documents with a line break.
    return JSON.stringify(value) === (text.endsWith('\n') ? text.slice(0, -1) : text) ? value : undefined;
  } catch (error) {
    if (error instanceof SyntaxError) return undefined;
    throw error;
  }
}

/** Encodes a value. Keys keep their order, a `bigint` becomes a number, and `undefined` members are omitted. */
export function encodeJson(value: unknown): Buffer {
  return Buffer.from(stringifyJson(value));
}

/** Encodes a value as text. `indent` is the number of spaces for each level. 0 produces one line. */
export function stringifyJson(value: unknown, indent = 0): string {
  try {
    // V8 takes twice as long if it gets an indentation, even none.
    return indent === 0 ? JSON.stringify(value) : JSON.stringify(value, undefined, indent);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return JSON.stringify(value, bigintAsNumber, indent);
  }
}

/** Matches a number with more digits than a double may represent. */
const LONG_NUMBER = /[:[,\s]-?\d{16,}/;

/**
 * Decodes an object or a list with `JSON.parse`, without the limits and checks of `parseJson`. Integers that are not safe
 * become `bigint`.
 */
export function parseExactJson(text: string): JsonValue {
  if (!LONG_NUMBER.test(text)) return JSON.parse(text) as JsonValue;
  const exact = (_key: string, value: unknown, context?: { source?: string }): unknown => {
    const source = context?.source;
    if (typeof value !== 'number' || source === undefined || Number.isSafeInteger(value) || !/^-?\d+$/.test(source))
      return value;
    return BigInt(source);
  };
  return JSON.parse(text, exact as (key: string, value: unknown) => unknown) as JsonValue;
}

// V8 has this function since Node.js 22, but TypeScript's library does not declare it yet.
const { rawJSON } = JSON as unknown as { rawJSON(text: string): unknown };

function bigintAsNumber(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? rawJSON(String(value)) : value;
}

const MARKUP = /[<>&\u2028\u2029]/;
const ALL_MARKUP = new RegExp(MARKUP, 'g');

/** Escapes the characters that have a meaning in HTML or JavaScript, as kube-apiserver's encoder does. */
export function escapeMarkup(json: string): string {
  if (!MARKUP.test(json)) return json;
  return json.replace(ALL_MARKUP, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

const NUMBER = /-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?/y;
// oxlint-disable-next-line no-control-regex -- JSON forbids control characters in strings
const PLAIN_STRING = /[^"\\\u0000-\u001f]*/y;
const ESCAPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    '"': '"',
    '\\': '\\',
    '/': '/',
    b: '\b',
    f: '\f',
    n: '\n',
    r: '\r',
    t: '\t',
  }),
);

class Parser {
  readonly duplicates: string[] = [];
  decimals: Map<string, string> | undefined;
  readonly #text: string;
  readonly #maxValues: number;
  readonly #maxDepth: number;
  #at = 0;
  #depth = 0;
  #values = 0;
  /** The keys and indexes of the current value. */
  readonly #path: (string | number)[] = [];

  constructor(text: string, { maxValues, maxDepth }: { readonly maxValues: number; readonly maxDepth: number }) {
    this.#text = text;
    this.#maxValues = maxValues;
    this.#maxDepth = maxDepth;
  }

  document(): JsonValue {
    const value = this.#value();
    if (this.#skip() !== '') this.#unexpected('after top-level value');
    return value;
  }

  /** Skips white space. Returns the next character, or `''` at the end. */
  #skip(): string {
    for (;;) {
      const code = this.#text.charCodeAt(this.#at);
      if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) return this.#text.charAt(this.#at);
      this.#at += 1;
    }
  }

  #value(): JsonValue {
    this.#values += 1;
    if (this.#values > this.#maxValues) throw new JsonSyntaxError(tooManyValues(this.#maxValues));
    const char = this.#skip();
    switch (char) {
      case '{':
        return this.#object();
      case '[':
        return this.#array();
      case '"':
        return this.#string();
      case 't':
        return this.#literal('true', true);
      case 'f':
        return this.#literal('false', false);
      case 'n':
        return this.#literal('null', null);
      default:
        if (char === '-' || (char >= '0' && char <= '9')) return this.#number();
        return this.#unexpected('looking for beginning of value');
    }
  }

  #enter(): void {
    this.#at += 1;
    this.#depth += 1;
    if (this.#depth > this.#maxDepth) throw new JsonSyntaxError('exceeded max depth');
  }

  #object(): JsonValue {
    this.#enter();
    const object: { [key: string]: JsonValue } = {};
    const depth = this.#path.length;
    let char = this.#skip();
    if (char === '}') {
      this.#at += 1;
      this.#depth -= 1;
      return object;
    }
    for (;;) {
      if (char !== '"') this.#unexpected('looking for beginning of object key string');
      const key = this.#string();
      if (this.#skip() !== ':') this.#unexpected('after object key');
      this.#at += 1;
      this.#path[depth] = key;
      if (Object.hasOwn(object, key)) {
        this.#duplicate();
        // The key moves to its last position, so that errors are reported in the order of the last occurrences.
        delete object[key];
      }
      setMember(object, key, this.#value());
      char = this.#skip();
      this.#at += 1;
      if (char === '}') break;
      if (char !== ',') {
        this.#at -= 1;
        this.#unexpected('after object key:value pair');
      }
      char = this.#skip();
    }
    this.#path.length = depth;
    this.#depth -= 1;
    return object;
  }

  #array(): JsonValue {
    this.#enter();
    const array: JsonValue[] = [];
    const depth = this.#path.length;
    if (this.#skip() === ']') {
      this.#at += 1;
      this.#depth -= 1;
      return array;
    }
    for (;;) {
      this.#path[depth] = array.length;
      array.push(this.#value());
      const char = this.#skip();
      this.#at += 1;
      if (char === ']') break;
      if (char !== ',') {
        this.#at -= 1;
        this.#unexpected('after array element');
      }
    }
    this.#path.length = depth;
    this.#depth -= 1;
    return array;
  }

  #duplicate(): void {
    if (this.duplicates.length >= MAX_DUPLICATES) return;
    const path = jsonPath(this.#path);
    if (!this.duplicates.includes(path)) this.duplicates.push(path);
  }

  #string(): string {
    const text = this.#text;
    let start = this.#at + 1;
    PLAIN_STRING.lastIndex = start;
    PLAIN_STRING.test(text);
    let end = PLAIN_STRING.lastIndex;
    if (text.charCodeAt(end) === 0x22) {
      this.#at = end + 1;
      return text.slice(start, end);
    }
    let out = '';
    for (;;) {
      out += text.slice(start, end);
      this.#at = end;
      const char = text.charAt(end);
      if (char === '"') {
        this.#at = end + 1;
        return out;
      }
      if (char !== '\\') this.#unexpected('in string literal');
      out += this.#escape();
      start = this.#at;
      PLAIN_STRING.lastIndex = start;
      PLAIN_STRING.test(text);
      end = PLAIN_STRING.lastIndex;
    }
  }

  #escape(): string {
    this.#at += 1;
    const char = this.#text.charAt(this.#at);
    const plain = ESCAPES.get(char);
    if (plain !== undefined) {
      this.#at += 1;
      return plain;
    }
    if (char !== 'u') this.#unexpected('in string escape code');
    let code = 0;
    for (let digits = 0; digits < 4; digits += 1) {
      this.#at += 1;
      const digit = Number.parseInt(this.#text.charAt(this.#at), 16);
      if (Number.isNaN(digit)) this.#unexpected('in \\u hexadecimal character escape');
      code = code * 16 + digit;
    }
    this.#at += 1;
    return this.#joinSurrogates(code);
  }

  /** Returns the character of an escape. Unpaired surrogates have no UTF-8 encoding and become U+FFFD. */
  #joinSurrogates(code: number): string {
    if (code < 0xd800 || code > 0xdfff) return String.fromCharCode(code);
    const next = /^\\u([dD][c-fC-F][0-9a-fA-F]{2})/.exec(this.#text.slice(this.#at, this.#at + 6));
    if (code > 0xdbff || next === null) return '\ufffd';
    this.#at += 6;
    return String.fromCharCode(code, Number.parseInt(next[1] ?? '', 16));
  }

  #literal<T>(word: string, value: T): T {
    if (this.#text.startsWith(word, this.#at)) {
      this.#at += word.length;
      return value;
    }
    let same = 1;
    while (this.#text.charAt(this.#at + same) === word.charAt(same)) same += 1;
    this.#at += same;
    return this.#unexpected(`in literal ${word} (expecting '${word.charAt(same)}')`);
  }

  #number(): number | bigint {
    NUMBER.lastIndex = this.#at;
    const match = NUMBER.exec(this.#text);
    if (match === null) {
      this.#at += 1;
      return this.#unexpected('in numeric literal');
    }
    const [literal, fraction, exponent] = match;
    this.#at += literal.length;
    const next = this.#text.charAt(this.#at);
    if (exponent === undefined && (next === 'e' || next === 'E')) {
      this.#at += /[+-]/.test(this.#text.charAt(this.#at + 1)) ? 2 : 1;
      this.#unexpected('in exponent of numeric literal');
    }
    if (fraction === undefined && exponent === undefined && next === '.') {
      this.#at += 1;
      this.#unexpected('after decimal point in numeric literal');
    }
    const number = Number(literal);
    if (!Number.isFinite(number))
      throw new JsonNumberError(`json: cannot unmarshal number ${literal} into Go value of type float64`);
    const isDecimal = fraction !== undefined || exponent !== undefined;
    if (isDecimal && Number.isInteger(number) && (this.decimals?.size ?? 0) < MAX_DECIMALS)
      (this.decimals ??= new Map()).set(jsonPath(this.#path), literal);
    if (isDecimal || Number.isSafeInteger(number)) {
      return Object.is(number, -0) ? 0 : number;
    }
    const exact = BigInt(literal);
    return exact <= INT64_MAX && exact >= INT64_MIN ? exact : number;
  }

  #unexpected(where: string): never {
    if (this.#at >= this.#text.length) throw new JsonSyntaxError('unexpected end of JSON input');
    // Go's messages contain the first byte of a character.
    const byte = Buffer.from(String.fromCodePoint(this.#text.codePointAt(this.#at) ?? 0))[0] ?? 0;
    const char = String.fromCharCode(byte);
    const shown = char === "'" ? "'\\''" : char === '"' ? `'"'` : `'${quote(char).slice(1, -1)}'`;
    throw new JsonSyntaxError(`invalid character ${shown} ${where}`);
  }
}
