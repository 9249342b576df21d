/** Parses the tokens of a CEL expression into a tree. Macros are calls in it; the compiler distinguishes them. */
import { CelSyntaxError, type Token, tokenize } from './lexer.ts';
import { KEYWORDS, RESERVED_WORDS } from './reserved-words.ts';
import { type CelValue, Double, Uint } from './values.ts';
import { INT64_MAX, UINT64_MAX } from '../meta/integers.ts';

/** A node of the tree. `at` is its offset in the source. */
export type Expr = { readonly at: number } & (
  | { readonly kind: 'literal'; readonly value: CelValue }
  | { readonly kind: 'ident'; readonly name: string }
  | { readonly kind: 'select'; readonly operand: Expr; readonly field: string; readonly optional: boolean }
  | { readonly kind: 'call'; readonly target: Expr | undefined; readonly name: string; readonly args: readonly Expr[] }
  | { readonly kind: 'list'; readonly items: readonly { readonly value: Expr; readonly optional: boolean }[] }
  | { readonly kind: 'map'; readonly entries: readonly MapEntry[] }
  | { readonly kind: 'message'; readonly name: string; readonly fields: readonly MessageField[] }
);

interface MapEntry {
  readonly key: Expr;
  readonly value: Expr;
  readonly optional: boolean;
}

interface MessageField {
  readonly name: string;
  readonly value: Expr;
  readonly optional: boolean;
  readonly at: number;
}

const MAX_DEPTH = 250;
const VALUES = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const beginsExpression = ({ kind, text }: Token): boolean =>
  kind === 'op' ? '.([{-!'.includes(text) : kind !== 'end' && text !== 'in';

/** What the grammar expects at a place. The text lists its tokens in the order of the grammar of cel-go. */
interface Expected {
  readonly text: string;
  readonly fits: (token: Token) => boolean;
}

const expression = (more: { readonly close?: string; readonly optional?: string } = {}): Expected => ({
  text: `{'[', '{', '(', ${more.close ?? ''}'.', '-', '!', ${more.optional ?? ''}${VALUES}`,
  fits: beginsExpression,
});
const EXPRESSION = expression();
/** What may follow the opening parenthesis of a call: an expression, or the closing parenthesis of a call without arguments. */
const ARGUMENT = expression({ close: "')', " });
/** What may follow the opening bracket of an index, which may be optional. */
const INDEX = expression({ optional: "'?', " });
const IDENTIFIER: Expected = { text: 'IDENTIFIER', fits: ({ kind }) => kind === 'ident' };
const END: Expected = { text: '<EOF>', fits: ({ kind }) => kind === 'end' };
const symbols = (...texts: readonly string[]): Expected => ({
  text: texts.length === 1 ? `'${texts[0]}'` : `{${texts.map((text) => `'${text}'`).join(', ')}}`,
  fits: ({ kind, text }) => kind === 'op' && texts.includes(text),
});
const RELATIONS: ReadonlySet<string> = new Set(['==', '!=', '<', '<=', '>', '>=', 'in']);

/** Parses an expression. Throws `CelSyntaxError`. */
export function parse(source: string): Expr {
  const { tokens, faults } = tokenize(source);
  try {
    const expr = new Parser(source, tokens).whole();
    if (faults.length === 0) return expr;
  } catch (error) {
    if (!(error instanceof CelSyntaxError)) throw error;
    faults.push(...error.faults);
  }
  throw new CelSyntaxError(...faults);
}

const syntaxError = (message: string, at: number): CelSyntaxError => new CelSyntaxError({ at, message });

class Parser {
  readonly #source: string;
  readonly #tokens: readonly Token[];
  #next = 0;
  #depth = 0;
  /** The symbols that may follow the expressions being parsed, the innermost expression last. */
  readonly #followers: Expected[] = [END];

  constructor(source: string, tokens: readonly Token[]) {
    this.#source = source;
    this.#tokens = tokens;
  }

  whole(): Expr {
    const expr = this.#expr();
    const token = this.#peek();
    if (token.kind !== 'end') throw this.#unexpected(token, END);
    return expr;
  }

  #peek(ahead = 0): Token {
    return this.#tokens[this.#next + ahead] ?? { kind: 'end', text: '<EOF>', at: 0, end: 0 };
  }

  #take(): Token {
    const token = this.#peek();
    this.#next += 1;
    return token;
  }

  #is(text: string): boolean {
    const token = this.#peek();
    return token.text === text && (token.kind === 'op' || (token.kind === 'ident' && text === 'in'));
  }

  #accept(text: string): Token | undefined {
    return this.#is(text) ? this.#take() : undefined;
  }

  /** Takes the symbol `text`. `others` are the symbols that the grammar allows there too; only the error lists them. */
  #expect(text: string, ...others: readonly string[]): Token {
    const token = this.#peek();
    if (token.text === text && token.kind === 'op') return this.#take();
    const expected = symbols(text, ...others);
    // Like cel-go's parser, which goes on as if the token were there if the rest fits.
    const restFits = text === ':' ? beginsExpression(token) : this.#followers.at(-1)?.fits(token) === true;
    if (others.length === 0 && restFits && !expected.fits(this.#peek(1))) {
      throw syntaxError(`Syntax error: missing ${expected.text} at '${this.#shown(token)}'`, token.at);
    }
    throw this.#unexpected(token, expected);
  }

  /** Parses an expression that one of the symbols must follow. */
  #exprBefore(...symbolsAfter: readonly string[]): Expr {
    this.#followers.push(symbols(...symbolsAfter));
    const expr = this.#expr();
    this.#followers.pop();
    return expr;
  }

  #shown({ kind, at, end }: Token): string {
    return kind === 'end' ? '<EOF>' : this.#source.slice(at, end);
  }

  /** Returns the error of the token that comes next. As in cel-go, it calls the token extraneous if the one after it fits. */
  #unexpected(token: Token, { text, fits }: Expected): CelSyntaxError {
    const what = fits(this.#peek(1)) ? 'extraneous' : 'mismatched';
    return syntaxError(`Syntax error: ${what} input '${this.#shown(token)}' expecting ${text}`, token.at);
  }

  #expr(): Expr {
    this.#depth += 1;
    if (this.#depth > MAX_DEPTH) {
      throw syntaxError(`expression recursion limit exceeded: ${MAX_DEPTH}`, this.#peek().at);
    }
    const condition = this.#or();
    const question = this.#accept('?');
    let expr = condition;
    if (question !== undefined) {
      this.#followers.push(symbols(':'));
      const yes = this.#or();
      this.#followers.pop();
      this.#expect(':');
      expr = call('_?_:_', [condition, yes, this.#expr()], question.at);
    }
    this.#depth -= 1;
    return expr;
  }

  #or(): Expr {
    let left = this.#and();
    for (let token = this.#accept('||'); token !== undefined; token = this.#accept('||')) {
      left = call('_||_', [left, this.#and()], token.at);
    }
    return left;
  }

  #and(): Expr {
    let left = this.#relation();
    for (let token = this.#accept('&&'); token !== undefined; token = this.#accept('&&')) {
      left = call('_&&_', [left, this.#relation()], token.at);
    }
    return left;
  }

  #relation(): Expr {
    let left = this.#sum();
    while (RELATIONS.has(this.#peek().text) && this.#is(this.#peek().text)) {
      const { text, at } = this.#take();
      left = call(text === 'in' ? '@in' : `_${text}_`, [left, this.#sum()], at);
    }
    return left;
  }

  #sum(): Expr {
    let left = this.#product();
    while (this.#is('+') || this.#is('-')) {
      const { text, at } = this.#take();
      left = call(`_${text}_`, [left, this.#product()], at);
    }
    return left;
  }

  #product(): Expr {
    let left = this.#unary();
    while (this.#is('*') || this.#is('/') || this.#is('%')) {
      const { text, at } = this.#take();
      left = call(`_${text}_`, [left, this.#unary()], at);
    }
    return left;
  }

  #unary(): Expr {
    const not = this.#accept('!');
    if (not !== undefined) {
      let isNegated = true;
      // As in cel-go, a second `!` cancels the first.
      while (this.#accept('!') !== undefined) isNegated = !isNegated;
      const operand = this.#unary();
      return isNegated ? call('!_', [operand], not.at) : operand;
    }
    const first = this.#accept('-');
    if (first === undefined) return this.#member();
    let last = first;
    let isNegative = true;
    for (let token = this.#accept('-'); token !== undefined; token = this.#accept('-')) {
      isNegative = !isNegative;
      last = token;
    }
    const next = this.#peek();
    if (isNegative && last === first && (next.kind === 'int' || next.kind === 'double')) {
      this.#take();
      return this.#postfix(number(next, { negative: true, at: first.at }));
    }
    const operand = this.#member();
    return isNegative ? call('-_', [operand], first.at) : operand;
  }

  #member(): Expr {
    return this.#postfix(this.#primary());
  }

  #postfix(start: Expr): Expr {
    let expr = start;
    for (;;) {
      const dot = this.#accept('.') ?? this.#accept('.?');
      if (dot !== undefined) {
        const token = this.#peek();
        if (token.kind !== 'ident' || KEYWORDS.has(token.text)) {
          if (KEYWORDS.has(token.text) && token.text !== 'in') throw this.#unexpected(token, IDENTIFIER);
          const input = this.#source.slice(dot.at, token.end);
          throw syntaxError(`Syntax error: no viable alternative at input '${input}'`, token.at);
        }
        this.#take();
        const open = dot.text === '.' ? this.#accept('(') : undefined;
        if (open !== undefined) {
          expr = { kind: 'call', target: expr, name: token.text, args: this.#arguments(), at: open.at };
        } else expr = { kind: 'select', operand: expr, field: token.text, optional: dot.text === '.?', at: dot.at };
        continue;
      }
      const bracket = this.#accept('[') ?? this.#accept('[?');
      if (bracket !== undefined) {
        if (bracket.text === '[' && !beginsExpression(this.#peek())) throw this.#unexpected(this.#peek(), INDEX);
        const index = this.#exprBefore(']');
        this.#expect(']');
        expr = call(bracket.text === '[' ? '_[_]' : '_[?_]', [expr, index], bracket.at);
        continue;
      }
      if (this.#is('{')) {
        const name = dottedName(expr);
        if (name === undefined) return expr;
        expr = this.#message(name);
        continue;
      }
      return expr;
    }
  }

  #arguments(): Expr[] {
    if (this.#accept(')') !== undefined) return [];
    if (!beginsExpression(this.#peek()) && this.#peek().text !== '[?') throw this.#unexpected(this.#peek(), ARGUMENT);
    const args: Expr[] = [];
    do args.push(this.#exprBefore(')', ','));
    while (this.#accept(',') !== undefined);
    this.#expect(')');
    return args;
  }

  #message(name: string): Expr {
    const { at } = this.#expect('{');
    const fields: MessageField[] = [];
    while (!this.#is('}')) {
      const optional = this.#accept('?') !== undefined;
      const token = this.#peek();
      if (token.kind !== 'ident' || KEYWORDS.has(token.text)) throw this.#unexpected(token, IDENTIFIER);
      this.#take();
      const colon = this.#expect(':');
      fields.push({ name: token.text, value: this.#exprBefore('}', ','), optional, at: colon.at });
      if (this.#accept(',') === undefined) break;
    }
    this.#expect('}', ',');
    return { kind: 'message', name, fields, at };
  }

  #primary(): Expr {
    const token = this.#peek();
    if (!beginsExpression(token) && token.text !== '[?') throw this.#unexpected(token, EXPRESSION);
    this.#take();
    const { at } = token;
    switch (token.kind) {
      case 'int':
      case 'uint':
      case 'double':
        return number(token, { negative: false, at });
      case 'string':
        return { kind: 'literal', value: token.text, at };
      case 'bytes':
        return { kind: 'literal', value: token.bytes ?? new Uint8Array(), at };
      case 'ident':
        return this.#identifier(token);
      case 'op':
        if (token.text === '(') {
          const inner = this.#exprBefore(')');
          this.#expect(')');
          return inner;
        }
        if (token.text === '[' || token.text === '[?') return this.#list(at, token.text === '[?');
        if (token.text === '{') return this.#map(at);
        return this.#identifier(this.#take());
      case 'end':
        throw this.#unexpected(token, EXPRESSION);
    }
  }

  #identifier(token: Token): Expr {
    const { text, at } = token;
    if (token.kind !== 'ident') throw syntaxError("Syntax error: no viable alternative at input '.'", at);
    if (text === 'true' || text === 'false') return { kind: 'literal', value: text === 'true', at };
    if (text === 'null') return { kind: 'literal', value: null, at };
    if (RESERVED_WORDS.has(text)) throw syntaxError(`reserved identifier: ${text}`, at);
    const open = this.#accept('(');
    if (open !== undefined) {
      return { kind: 'call', target: undefined, name: text, args: this.#arguments(), at: open.at };
    }
    return { kind: 'ident', name: text, at };
  }

  /**
   * Parses a list literal. `begun` means that the marker of an optional first item was read together with the bracket.
   */
  #list(at: number, begun: boolean): Expr {
    const items: { value: Expr; optional: boolean }[] = [];
    while ((begun && items.length === 0) || !this.#is(']')) {
      const optional = (begun && items.length === 0) || this.#accept('?') !== undefined;
      items.push({ value: this.#exprBefore(']', ','), optional });
      if (this.#accept(',') === undefined) break;
    }
    this.#expect(']', ',');
    return { kind: 'list', items, at };
  }

  #map(at: number): Expr {
    const entries: MapEntry[] = [];
    while (!this.#is('}')) {
      const optional = this.#accept('?') !== undefined;
      const key = this.#exprBefore(':');
      this.#expect(':');
      entries.push({ key, value: this.#exprBefore('}', ','), optional });
      if (this.#accept(',') === undefined) break;
    }
    this.#expect('}', ',');
    return { kind: 'map', entries, at };
  }
}

function call(name: string, args: readonly Expr[], at: number): Expr {
  return { kind: 'call', target: undefined, name, args, at };
}

function number({ text, kind }: Token, { negative, at }: { readonly negative: boolean; readonly at: number }): Expr {
  if (kind === 'double') {
    const value = Number(text);
    if (!Number.isFinite(value)) throw syntaxError('invalid double literal', at);
    return { kind: 'literal', value: new Double(negative ? -value : value), at };
  }
  const magnitude = BigInt(text.replace(/[uU]$/, ''));
  if (kind === 'uint' && magnitude > UINT64_MAX) throw syntaxError('invalid uint literal', at);
  if (kind === 'uint') return { kind: 'literal', value: new Uint(magnitude), at };
  if (magnitude > INT64_MAX + (negative ? 1n : 0n)) throw syntaxError('invalid int literal', at);
  return { kind: 'literal', value: negative ? -magnitude : magnitude, at };
}

/** Returns the dotted name that an expression such as `Object.spec` is, if it has at most `parts` identifiers. */
export function dottedName(expr: Expr, parts = Infinity): string | undefined {
  if (expr.kind === 'ident') return expr.name;
  if (expr.kind !== 'select' || expr.optional || parts <= 1) return undefined;
  const outer = dottedName(expr.operand, parts - 1);
  return outer === undefined ? undefined : `${outer}.${expr.field}`;
}
