/** Splits the source of a CEL expression into tokens. */

/** A token. `at` and `end` are its offsets in the source in UTF-16 code units; `end` is that after it. */
export interface Token {
  readonly kind: 'ident' | 'int' | 'uint' | 'double' | 'string' | 'bytes' | 'op' | 'end';
  /** The source text. For strings, their value; for bytes, the text between the quotes. */
  readonly text: string;
  readonly bytes?: Uint8Array;
  readonly at: number;
  readonly end: number;
}

interface SyntaxFault {
  readonly at: number;
  readonly message: string;
}

/** Faults of the lexer or the parser, with their offsets. */
export class CelSyntaxError extends Error {
  readonly faults: readonly SyntaxFault[];
  constructor(...faults: readonly SyntaxFault[]) {
    super(faults[0]?.message);
    this.faults = faults;
  }
}

/** A text that begins no token. */
class LexicalError extends Error {
  readonly at: number;
  readonly length: number;
  constructor(source: string, at: number, length: number) {
    super(`Syntax error: token recognition error at: '${source.slice(at, at + length)}'`);
    this.at = at;
    this.length = length;
  }
}

const SPACE = /(?:\s|\/\/[^\n]*)*/y;
const NUMBER = /0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)|\d+[uU]?/y;
const IDENT = /[A-Za-z_][A-Za-z0-9_]*/y;
const STRING_START = /(?:[rR][bB]?|[bB][rR]?)?("""|'''|"|')/y;
const OPERATOR = /&&|\|\||==|!=|<=|>=|\[\?|\.\?|[-+*/%!<>?:.,()[\]{}]/y;

/** The first characters of operators that have two. cel-go skips the character after one of them together with it. */
const HALVES: ReadonlySet<string> = new Set(['=', '&', '|']);
/** The number of faults after which the rest of a text is not read. */
const MAX_FAULTS = 100;

/**
 * Splits a source into tokens, of which the last one marks the end. What begins no token is skipped and returned as faults, and
 * after `MAX_FAULTS` of them the rest is not read. Throws `CelSyntaxError` for an identifier in backquotes.
 */
export function tokenize(source: string): { readonly tokens: readonly Token[]; readonly faults: SyntaxFault[] } {
  const tokens: Token[] = [];
  const faults: SyntaxFault[] = [];
  let at = 0;
  while (at < source.length && faults.length < MAX_FAULTS) {
    try {
      at = tokenizeFrom(source, at, tokens);
    } catch (error) {
      if (!(error instanceof LexicalError)) throw error;
      faults.push({ at: error.at, message: error.message });
      at = error.at + error.length;
    }
  }
  tokens.push({ kind: 'end', text: '<EOF>', at: source.length, end: source.length });
  return { tokens, faults };
}

/** Adds the tokens after `from`, and returns the end of the source. Throws `LexicalError` or `CelSyntaxError`. */
function tokenizeFrom(source: string, from: number, tokens: Token[]): number {
  let at = from;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    return pattern.exec(source);
  };
  for (;;) {
    at += match(SPACE)?.[0].length ?? 0;
    if (at >= source.length) break;
    const start = match(STRING_START);
    const quoted = start === null ? null : stringAt(source, at, start);
    const number = quoted === null ? match(NUMBER) : null;
    const ident = quoted === null && number === null ? match(IDENT) : null;
    let length: number;
    if (quoted !== null) {
      tokens.push(quoted.token);
      length = quoted.length;
    } else if (number !== null) {
      const text = number[0];
      const hex = /^0[xX]/.test(text);
      const kind = /[uU]$/.test(text) ? 'uint' : !hex && /[.eE]/.test(text) ? 'double' : 'int';
      tokens.push({ kind, text, at, end: at + text.length });
      length = text.length;
    } else if (ident !== null) {
      length = ident[0].length;
      tokens.push({ kind: 'ident', text: ident[0], at, end: at + length });
    } else {
      const operator = match(OPERATOR);
      if (operator === null) {
        // kube-apiserver does not enable identifiers in backquotes.
        if (source[at] === '`') throw new CelSyntaxError({ at, message: "unsupported syntax: '`'" });
        const [char = ''] = source.slice(at, at + 2);
        throw new LexicalError(source, at, HALVES.has(char) ? 2 : char.length);
      }
      length = operator[0].length;
      tokens.push({ kind: 'op', text: operator[0], at, end: at + length });
    }
    at += length;
  }
  return source.length;
}

const PLAIN_ESCAPES: ReadonlyMap<string, string> = new Map(
  Object.entries({
    a: '\u0007',
    b: '\b',
    f: '\f',
    n: '\n',
    r: '\r',
    t: '\t',
    v: '\v',
    '\\': '\\',
    '?': '?',
    '"': '"',
    "'": "'",
    '`': '`',
  }),
);
const ESCAPE = /\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]))/g;
const LINE_END = /\r\n?/g;

/** Returns the literal at `at`, and its length in the source. `start` matches its prefix and opening quotes. */
function stringAt(source: string, at: number, start: RegExpExecArray): { token: Token; length: number } {
  const [opening, quotes = '"'] = start;
  const prefix = opening.slice(0, -quotes.length).toLowerCase();
  const raw = prefix.includes('r');
  const from = at + opening.length;
  const to = closingQuotes(source, from, quotes, raw);
  const length = to === undefined ? 0 : to + quotes.length - at;
  if (to === undefined) throw new LexicalError(source, at, source.slice(at).split('\n', 1)[0]?.length ?? 1);
  const refuse = (): LexicalError => new LexicalError(source, at, length);
  const end = at + length;
  const body = source.slice(from, to).replace(LINE_END, '\n');
  if (prefix.includes('b')) {
    const bytes = raw ? Buffer.from(body) : bytesOf(body, refuse);
    return { token: { kind: 'bytes', text: body, bytes, at, end }, length };
  }
  const text = raw ? body : textOf(body, refuse);
  return { token: { kind: 'string', text, at, end }, length };
}

/**
 * Returns the offset of the closing quotes, or `undefined` if there are none. In a raw literal a backslash has no special
 * meaning.
 */
function closingQuotes(source: string, from: number, quotes: string, raw: boolean): number | undefined {
  for (let at = from; at < source.length; at += 1) {
    if (source.startsWith(quotes, at)) return at;
    const char = source[at];
    if (char === '\\' && !raw) at += 1;
    else if (quotes.length === 1 && (char === '\n' || char === '\r')) return undefined;
  }
  return undefined;
}

function textOf(body: string, refuse: () => LexicalError): string {
  return body.replace(ESCAPE, (_all, x: string, u: string, bigU: string, octal: string, plain: string) => {
    const hex = x ?? u ?? bigU;
    if (hex !== undefined) return characterOf(Number.parseInt(hex, 16), refuse);
    if (octal !== undefined) return characterOf(Number.parseInt(octal, 8), refuse);
    const escaped = PLAIN_ESCAPES.get(plain);
    if (escaped === undefined) throw refuse();
    return escaped;
  });
}

/** Returns the character of a code. Throws for surrogates, which are not characters, and for codes beyond Unicode. */
function characterOf(code: number, refuse: () => LexicalError): string {
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) throw refuse();
  return String.fromCodePoint(code);
}

/** Decodes a bytes literal, in which a numeric escape is one byte and Unicode escapes are invalid. */
function bytesOf(body: string, refuse: () => LexicalError): Uint8Array {
  const parts: Buffer[] = [];
  let last = 0;
  for (const found of body.matchAll(ESCAPE)) {
    parts.push(Buffer.from(body.slice(last, found.index)));
    last = found.index + found[0].length;
    const [, x, , , octal, plain = ''] = found;
    const escaped = PLAIN_ESCAPES.get(plain);
    if (x !== undefined) parts.push(Buffer.from([Number.parseInt(x, 16)]));
    else if (octal !== undefined) parts.push(Buffer.from([Number.parseInt(octal, 8)]));
    else if (escaped !== undefined) parts.push(Buffer.from(escaped));
    else throw refuse();
  }
  parts.push(Buffer.from(body.slice(last)));
  return Buffer.concat(parts);
}
