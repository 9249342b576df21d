/**
 * Rewrites the links in pages from a proxied target. A link from the root of the target leads through the proxy, so that a
 * browser can follow it.
 */
import { posix } from 'node:path';

/** Where the target stands, for both sides of the proxy. */
export interface ProxiedPlace {
  /** The path of the proxy without a trailing slash. */
  readonly prefix: string;
  /** The host and port of the target. */
  readonly targetHost: string;
  /** The host by which the client reached this server. */
  readonly requestHost: string;
}

const LINK = /^(?:[a-z][a-z0-9+.-]*:)?(?:\/\/([^/?#]*))?([^?#]*)(.*)$/is;

/**
 * Returns the link that leads through the proxy. A link that is relative or of another host stays unchanged, and so does a path
 * that begins with the prefix already.
 */
export function throughProxy(link: string, { prefix, targetHost, requestHost }: ProxiedPlace): string {
  const [, host = '', path = '', suffix = ''] = LINK.exec(link) ?? [];
  if (!path.startsWith('/') || (host !== '' && host !== targetHost && host !== requestHost)) return link;
  const origin = host !== '' && host === requestHost ? link.slice(0, link.indexOf(host) + host.length) : '';
  return `${origin}${path.startsWith(prefix) ? path : posix.join(prefix, path)}${suffix}`;
}

/** The attributes that contain links, by HTML 4 and 5. */
const LINKS: ReadonlyMap<string, readonly string[]> = new Map(
  Object.entries({
    a: ['href'],
    applet: ['codebase'],
    area: ['href'],
    audio: ['src'],
    base: ['href'],
    blockquote: ['cite'],
    body: ['background'],
    button: ['formaction'],
    command: ['icon'],
    del: ['cite'],
    embed: ['src'],
    form: ['action'],
    frame: ['longdesc', 'src'],
    head: ['profile'],
    html: ['manifest'],
    iframe: ['longdesc', 'src'],
    img: ['longdesc', 'src', 'usemap'],
    input: ['src', 'usemap', 'formaction'],
    ins: ['cite'],
    link: ['href'],
    object: ['classid', 'codebase', 'data', 'usemap'],
    q: ['cite'],
    script: ['src'],
    source: ['src'],
    video: ['poster', 'src'],
  }),
);

/** The content of these elements is not markup. */
const RAW: ReadonlySet<string> = new Set(
  'iframe noembed noframes noscript plaintext script style textarea title xmp'.split(' '),
);

/** A longer tag passes unchanged, so that a page cannot make the proxy buffer more of it. */
const LONGEST_TAG = 16_384;

const COMMENT = '<!--';
const QUOTES: ReadonlySet<string> = new Set(['"', "'"]);
const isLetter = (char: string): boolean => (char >= 'a' && char <= 'z') || (char >= 'A' && char <= 'Z');
const isSpace = (char: string): boolean =>
  char === ' ' || char === '\n' || char === '\t' || char === '\r' || char === '\f';

/** The state of the scanner. Each state keeps what it needs to continue in the middle of a piece. */
type State =
  | { readonly at: 'text' }
  /** The scanner is after `<`, or within `<!--`. */
  | { readonly at: 'opening'; text: string }
  | { readonly at: 'tag'; text: string; quote: string; afterEquals: boolean }
  /** The scanner searches for `needle` and has matched its first `matched` characters. */
  | { readonly at: 'raw'; readonly needle: string; readonly restarts: readonly number[]; matched: number };

const TEXT: State = { at: 'text' };

/** Rewrites a page in pieces. `push` returns all text but an incomplete tag, which `end` returns. */
export class HtmlLinks {
  readonly #rewrite: (link: string) => string;
  #state: State = TEXT;

  constructor(rewrite: (link: string) => string) {
    this.#rewrite = rewrite;
  }

  /** Takes the next text of the page. Returns the text that is complete, with rewritten links. */
  push(text: string): string {
    let out = '';
    for (let at = 0; at < text.length;) {
      const state = this.#state;
      const start = at;
      switch (state.at) {
        case 'text': {
          const open = text.indexOf('<', at);
          at = open < 0 ? text.length : open + 1;
          out += text.slice(start, open < 0 ? at : open);
          if (open >= 0) this.#state = { at: 'opening', text: '<' };
          break;
        }
        case 'opening': {
          const [taken, passed] = this.#open(state, text.charAt(at));
          at += taken;
          out += passed;
          break;
        }
        case 'tag':
          at = scanTag(state, text, at, Math.min(text.length, at + LONGEST_TAG - state.text.length));
          state.text += text.slice(start, at);
          if (text[at - 1] === '>' && state.quote === '') out += this.#close(state.text);
          else if (state.text.length >= LONGEST_TAG) {
            out += state.text;
            this.#state = TEXT;
          }
          break;
        case 'raw':
          at = scanRaw(state, text, at);
          out += text.slice(start, at);
          if (state.matched === state.needle.length) this.#state = TEXT;
          break;
      }
    }
    return out;
  }

  /** Returns the rest of a page that ends within a tag. */
  end(): string {
    const state = this.#state;
    this.#state = TEXT;
    return state.at === 'opening' || state.at === 'tag' ? state.text : '';
  }

  /** Decides what begins after `<`. Returns how many characters it consumed (0 or 1) and the text that passes. */
  #open(state: Extract<State, { at: 'opening' }>, char: string): readonly [0 | 1, string] {
    if (state.text === '<' && isLetter(char)) {
      this.#state = { at: 'tag', text: `<${char}`, quote: '', afterEquals: false };
      return [1, ''];
    }
    if (COMMENT[state.text.length] !== char) {
      this.#state = TEXT;
      return [0, state.text];
    }
    state.text += char;
    if (state.text !== COMMENT) return [1, ''];
    this.#state = rawUntil('-->');
    return [1, COMMENT];
  }

  /** Returns the whole tag with its links rewritten. */
  #close(tag: string): string {
    let end = 1;
    while (end < tag.length && !isSpace(tag.charAt(end)) && tag[end] !== '/' && tag[end] !== '>') end += 1;
    const element = tag.slice(1, end).toLowerCase();
    this.#state = RAW.has(element) ? rawUntil(`</${element}`) : TEXT;
    const links = LINKS.get(element) ?? [];
    return links.length === 0 ? tag : tag.slice(0, end) + this.#rewriteAttributes(tag.slice(end), links);
  }

  #rewriteAttributes(text: string, links: readonly string[]): string {
    let out = '';
    for (let at = 0; at < text.length;) {
      const nameStart = skip(text, at, isBetweenAttributes);
      const nameEnd = skip(text, nameStart, isInName);
      const equals = skip(text, nameEnd, isSpace);
      if (text[equals] !== '=' || nameEnd === nameStart) {
        const next = Math.max(nameEnd, at + 1);
        out += text.slice(at, next);
        at = next;
        continue;
      }
      const valueStart = skip(text, equals + 1, isSpace);
      const quote = QUOTES.has(text.charAt(valueStart)) ? text.charAt(valueStart) : '';
      const from = valueStart + quote.length;
      const to = skip(text, from, quote === '' ? isInBareValue : (char) => char !== quote);
      const link = text.slice(from, to);
      const isLink = links.includes(text.slice(nameStart, nameEnd).toLowerCase());
      out += text.slice(at, from) + (isLink && link !== '' ? this.#rewrite(link) : link);
      at = to;
      if (quote !== '' && at < text.length) {
        out += quote;
        at += 1;
      }
    }
    return out;
  }
}

const isBetweenAttributes = (char: string): boolean => isSpace(char) || char === '/' || QUOTES.has(char);
const isInName = (char: string): boolean =>
  !isSpace(char) && char !== '=' && char !== '>' && char !== '/' && !QUOTES.has(char);
const isInBareValue = (char: string): boolean => !isSpace(char) && char !== '>';

function skip(text: string, from: number, wanted: (char: string) => boolean): number {
  let at = from;
  while (at < text.length && wanted(text.charAt(at))) at += 1;
  return at;
}

/** Advances to the character after the tag's `>`, or to `end`. Quotes count only at the start of a value. */
function scanTag(state: Extract<State, { at: 'tag' }>, text: string, from: number, end: number): number {
  for (let at = from; at < end; at += 1) {
    const char = text.charAt(at);
    if (state.quote !== '') {
      if (char === state.quote) state.quote = '';
    } else if (char === '>') return at + 1;
    else if (char === '=') state.afterEquals = true;
    else if (state.afterEquals && !isSpace(char)) {
      if (QUOTES.has(char)) state.quote = char;
      state.afterEquals = false;
    }
  }
  return end;
}

/** Starts a search that continues at the next piece of the page (the Knuth-Morris-Pratt algorithm). */
function rawUntil(needle: string): State {
  const restarts = [0];
  for (let at = 1, matched = 0; at < needle.length; at += 1) {
    while (matched > 0 && needle[at] !== needle[matched]) matched = restarts[matched - 1] ?? 0;
    if (needle[at] === needle[matched]) matched += 1;
    restarts.push(matched);
  }
  return { at: 'raw', needle, restarts, matched: 0 };
}

/** Advances to the character after the needle, or to the end of the text. */
function scanRaw(state: Extract<State, { at: 'raw' }>, text: string, from: number): number {
  const { needle, restarts } = state;
  for (let at = from; at < text.length; at += 1) {
    const char = text.charAt(at).toLowerCase();
    while (state.matched > 0 && needle[state.matched] !== char) state.matched = restarts[state.matched - 1] ?? 0;
    if (needle[state.matched] === char) state.matched += 1;
    if (state.matched === needle.length) return at + 1;
  }
  return text.length;
}
