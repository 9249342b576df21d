/** From the text of an expression to its tokens. */

export interface Token {
  readonly kind: 'ident' | 'int' | 'uint' | 'double' | 'string' | 'bytes' | 'op' | 'end';
  /** The text; of strings and bytes what they stand for. */
  readonly text: string;
  readonly bytes?: Uint8Array;
  readonly at: number;
}

export class CelSyntaxError extends Error {
  readonly at: number;
  constructor(message: string, at: number) {
    super(message);
    this.at = at;
  }
}

const SPACE = /(?:\s|\/\/[^\n]*)*/y;
const NUMBER = /0[xX][0-9a-fA-F]+[uU]?|(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)|\d+[uU]?/y;
const IDENT = /[A-Za-z_][A-Za-z0-9_]*/y;
const QUOTED_IDENT = /`([A-Za-z0-9_./ -]+)`/y;
const STRING =
  /(?:[rR]?[bB]?|[bB][rR])(?:"""[\s\S]*?(?<!\\)"""|'''[\s\S]*?(?<!\\)'''|"(?:\\[\s\S]|[^"\\\n])*"|'(?:\\[\s\S]|[^'\\\n])*')/y;
const RAW = /[rR][bB]?(?:"[^"\n]*"|'[^'\n]*')/y;
const OPERATOR = /&&|\|\||==|!=|<=|>=|\[\?|\.\?|[-+*/%!<>?:.,()[\]{}]/y;

export function tokenize(source: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at;
    return pattern.exec(source);
  };
  for (;;) {
    at += match(SPACE)?.[0].length ?? 0;
    if (at >= source.length) break;
    const quoted = match(RAW) ?? match(STRING);
    const number = quoted === null ? match(NUMBER) : null;
    const ident = quoted === null && number === null ? match(IDENT) : null;
    const escaped = ident === null ? match(QUOTED_IDENT) : null;
    let length: number;
    if (quoted !== null) {
      tokens.push(stringToken(quoted[0], at));
      length = quoted[0].length;
    } else if (number !== null) {
      const text = number[0];
      const hex = /^0[xX]/.test(text);
      const kind = /[uU]$/.test(text) ? 'uint' : !hex && /[.eE]/.test(text) ? 'double' : 'int';
      tokens.push({ kind, text, at });
      length = text.length;
    } else if (ident !== null) {
      tokens.push({ kind: 'ident', text: ident[0], at });
      length = ident[0].length;
    } else if (escaped !== null) {
      tokens.push({ kind: 'ident', text: escaped[1] ?? '', at });
      length = escaped[0].length;
    } else {
      const operator = match(OPERATOR);
      if (operator === null) {
        throw new CelSyntaxError(`Syntax error: token recognition error at: '${source[at] ?? ''}'`, at);
      }
      tokens.push({ kind: 'op', text: operator[0], at });
      length = operator[0].length;
    }
    at += length;
  }
  tokens.push({ kind: 'end', text: '<EOF>', at: source.length });
  return tokens;
}

const PLAIN_ESCAPES: Readonly<Record<string, string>> = {
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
};
const ESCAPE =
  /\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|([\s\S]))/g;

function stringToken(text: string, at: number): Token {
  const prefix = /^[rRbB]*/.exec(text)?.[0].toLowerCase() ?? '';
  const quotes = /^("""|'''|"|')/.exec(text.slice(prefix.length))?.[0].length ?? 1;
  const body = text.slice(prefix.length + quotes, -quotes);
  const raw = prefix.includes('r');
  if (prefix.includes('b')) return { kind: 'bytes', text: body, bytes: bytesOf(body, raw), at };
  const value = raw
    ? body
    : body.replace(ESCAPE, (_all, x: string, bigX: string, u: string, bigU: string, octal: string, plain: string) => {
        const hex = x ?? bigX ?? u ?? bigU;
        if (hex !== undefined) return String.fromCodePoint(Number.parseInt(hex, 16));
        if (octal !== undefined) return String.fromCodePoint(Number.parseInt(octal, 8));
        const known = PLAIN_ESCAPES[plain];
        if (known === undefined) throw new CelSyntaxError(`Syntax error: token recognition error at: '${text}'`, at);
        return known;
      });
  return { kind: 'string', text: value, at };
}

/** In bytes an escape by number is one byte. */
function bytesOf(body: string, raw: boolean): Uint8Array {
  if (raw) return Buffer.from(body);
  const parts: Buffer[] = [];
  let last = 0;
  for (const found of body.matchAll(ESCAPE)) {
    parts.push(Buffer.from(body.slice(last, found.index)));
    last = found.index + found[0].length;
    const [, x, bigX, u, bigU, octal, plain] = found;
    if (x !== undefined || bigX !== undefined) parts.push(Buffer.from([Number.parseInt(x ?? bigX ?? '', 16)]));
    else if (octal !== undefined) parts.push(Buffer.from([Number.parseInt(octal, 8)]));
    else if (plain !== undefined) parts.push(Buffer.from(PLAIN_ESCAPES[plain] ?? plain));
    else parts.push(Buffer.from(String.fromCodePoint(Number.parseInt(u ?? bigU ?? '', 16))));
  }
  parts.push(Buffer.from(body.slice(last)));
  return Buffer.concat(parts);
}
