/**
 * Parses the text form of label selectors: `app=web,tier in (a,b),!legacy,weight>5`.
 *
 * A syntax error is a 400 with kube-apiserver's message.
 */
import {
  type LabelOperator,
  type LabelRequirement,
  type Selector,
  everything,
  labelKeyError,
  MAX_REQUIREMENTS,
  newRequirement,
  newSelector,
  RequirementError,
} from './selector.ts';
import { newBadRequest } from './status-error.ts';

interface Token {
  readonly type: 'symbol' | 'keyword' | 'identifier' | 'end';
  readonly text: string;
}

const END: Token = { type: 'end', text: '' };
/**
 * The maximum number of words and symbols of a selector. It allows `MAX_REQUIREMENTS` requirements with long lists of values.
 */
const MAX_TOKENS = 20_000;
const SYMBOLS = '=!(),><';
const LONG_SYMBOLS: ReadonlySet<string> = new Set(['==', '!=']);

class SyntaxFault extends Error {}

/** Parses a label selector such as `a=b,c in (d,e)`. Throws a 400. */
export function parseSelector(text: string): Selector {
  if (text === '') return everything;
  try {
    return newSelector(new Parser(scan(text)).parse());
  } catch (error) {
    throw error instanceof SyntaxFault ? newBadRequest(error.message) : error;
  }
}

function scan(text: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  while (at < text.length) {
    if (tokens.length > MAX_TOKENS) throw new SyntaxFault(`the selector has more than ${MAX_TOKENS} words and symbols`);
    const char = text.charAt(at);
    if (char === '\0') break;
    if (' \t\r\n'.includes(char)) {
      at++;
    } else if (SYMBOLS.includes(char)) {
      const two = text.slice(at, at + 2);
      const symbol = LONG_SYMBOLS.has(two) ? two : char;
      tokens.push({ type: 'symbol', text: symbol });
      at += symbol.length;
    } else {
      const start = at;
      while (at < text.length && !isBreak(text.charAt(at))) at++;
      const word = text.slice(start, at);
      tokens.push({ type: word === 'in' || word === 'notin' ? 'keyword' : 'identifier', text: word });
    }
  }
  return tokens;
}

function isBreak(char: string): boolean {
  return SYMBOLS.includes(char) || ' \t\r\n\0'.includes(char);
}

const isWord = (token: Token): boolean => token.type === 'identifier' || token.type === 'keyword';
const isSymbol = (token: Token, text: string): boolean => token.type === 'symbol' && token.text === text;

const OPERATORS: ReadonlyMap<string, LabelOperator> = new Map(
  Object.entries({
    in: 'in',
    notin: 'notin',
    '=': '=',
    '==': '==',
    '!=': '!=',
    '>': 'gt',
    '<': 'lt',
  }),
);

class Parser {
  readonly #tokens: readonly Token[];
  #position = 0;

  constructor(tokens: readonly Token[]) {
    this.#tokens = tokens;
  }

  #peek(): Token {
    return this.#tokens[this.#position] ?? END;
  }

  #next(): Token {
    return this.#tokens[this.#position++] ?? END;
  }

  parse(): LabelRequirement[] {
    const requirements: LabelRequirement[] = [];
    for (;;) {
      const token = this.#peek();
      if (token.type === 'end') return requirements;
      if (!isWord(token) && !isSymbol(token, '!')) {
        throw new SyntaxFault(`found '${token.text}', expected: !, identifier, or 'end of string'`);
      }
      requirements.push(this.#requirement());
      if (requirements.length > MAX_REQUIREMENTS) {
        throw new SyntaxFault(`the selector has more than ${MAX_REQUIREMENTS} requirements`);
      }
      const after = this.#next();
      if (after.type === 'end') return requirements;
      if (!isSymbol(after, ',')) throw new SyntaxFault(`found '${after.text}', expected: ',' or 'end of string'`);
      const follows = this.#peek();
      if (!isWord(follows) && !isSymbol(follows, '!')) {
        throw new SyntaxFault(`found '${follows.text}', expected: identifier after ','`);
      }
    }
  }

  #requirement(): LabelRequirement {
    try {
      const negated = isSymbol(this.#peek(), '!');
      if (negated) this.#next();
      const key = this.#key();
      if (negated) return newRequirement(key, '!', []);
      const follows = this.#peek();
      if (follows.type === 'end' || isSymbol(follows, ',')) return newRequirement(key, 'exists', []);
      const operator = this.#operator();
      const values = operator === 'in' || operator === 'notin' ? this.#valueList() : [this.#value()];
      return newRequirement(key, operator, values);
    } catch (error) {
      if (error instanceof SyntaxFault || error instanceof RequirementError) {
        throw new SyntaxFault(`unable to parse requirement: ${error.message}`, { cause: error });
      }
      throw error;
    }
  }

  #key(): string {
    const token = this.#next();
    if (!isWord(token)) throw new SyntaxFault(`found '${token.text}', expected: identifier`);
    const error = labelKeyError(token.text, '<nil>');
    if (error !== undefined) throw new SyntaxFault(String(error));
    return token.text;
  }

  #operator(): LabelOperator {
    const token = this.#next();
    const operator = token.type === 'identifier' ? undefined : OPERATORS.get(token.text);
    if (operator === undefined) {
      throw new SyntaxFault(`found '${token.text}', expected: in, notin, =, ==, !=, gt, lt`);
    }
    return operator;
  }

  /** Parses a value, which is empty if absent: `app=` selects an empty label. */
  #value(): string {
    const follows = this.#peek();
    if (follows.type === 'end' || isSymbol(follows, ',')) return '';
    const token = this.#next();
    if (!isWord(token)) throw new SyntaxFault(`found '${token.text}', expected: identifier`);
    return token.text;
  }

  #valueList(): string[] {
    const open = this.#next();
    if (!isSymbol(open, '(')) throw new SyntaxFault(`found '${open.text}' expected: '('`);
    const first = this.#peek();
    if (isSymbol(first, ')')) {
      this.#next();
      return [''];
    }
    if (!isWord(first) && !isSymbol(first, ',')) {
      throw new SyntaxFault(`found '${first.text}', expected: ',', ')' or identifier`);
    }
    const values = this.#identifiers();
    if (!isSymbol(this.#next(), ')')) throw new SyntaxFault(`found '${first.text}', expected: ')'`);
    return values;
  }

  /** Parses values up to the closing parenthesis, exclusive. Nothing between two commas is an empty value. */
  #identifiers(): string[] {
    const values: string[] = [];
    for (;;) {
      const token = this.#next();
      if (isWord(token)) {
        values.push(token.text);
        const follows = this.#peek();
        if (isSymbol(follows, ')')) return values;
        if (!isSymbol(follows, ',')) throw new SyntaxFault(`found '${follows.text}', expected: ',' or ')'`);
      } else if (isSymbol(token, ',')) {
        if (values.length === 0) values.push('');
        const follows = this.#peek();
        if (isSymbol(follows, ')')) return [...values, ''];
        if (isSymbol(follows, ',')) {
          this.#next();
          values.push('');
        }
      } else {
        throw new SyntaxFault(`found '${token.text}', expected: ',', or identifier`);
      }
    }
  }
}
