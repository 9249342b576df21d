/**
 * Links in pages that a proxied target sends: what names the target from its root is turned to go through the proxy, so that a
 * person can click on it. Pages pass through in pieces, byte by byte as they came but for those links; what is no HTML that we
 * know passes unchanged.
 */
import { posix } from 'node:path';

export interface ProxiedPlace {
  /** The path of the proxy, without a slash at its end. */
  readonly prefix: string;
  /** What the target is reached by, with its port. */
  readonly targetHost: string;
  /** What the client reached us by. */
  readonly requestHost: string;
}

const LINK = /^(?:[a-z][a-z0-9+.-]*:)?(?:\/\/([^/?#]*))?([^?#]*)(.*)$/is;

/** A link as it must stand behind the proxy: unchanged if it is relative, of another host, or through the proxy already. */
export function throughProxy(link: string, { prefix, targetHost, requestHost }: ProxiedPlace): string {
  const [, host = '', path = '', rest = ''] = LINK.exec(link) ?? [];
  if (!path.startsWith('/') || (host !== '' && host !== targetHost && host !== requestHost)) return link;
  const origin = host !== '' && host === requestHost ? link.slice(0, link.indexOf(host) + host.length) : '';
  return `${origin}${path.startsWith(prefix) ? path : posix.join(prefix, path)}${rest}`;
}

/** Attributes that hold links, by HTML 4 and 5. */
const LINKS: Readonly<Record<string, readonly string[]>> = {
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
};

/** What stands between these and their end tags is no markup. */
const RAW: ReadonlySet<string> = new Set(
  'iframe noembed noframes noscript plaintext script style textarea title xmp'.split(' '),
);

const TAG = /<([a-z][^\s/>]*)((?:[^>"']|"[^"]*"|'[^']*')*)>/iy;
const ATTRIBUTE = /([^\s"'>/=]+)(\s*=\s*)("[^"]*"|'[^']*'|[^\s>]+)/g;
/** A longer tag is passed on as it is, so that a page cannot have us keep it all. */
const LONGEST_TAG = 65_536;

/** The same page in pieces: `push` gives what can be told already, `end` the rest. */
export class HtmlLinks {
  readonly #turn: (link: string) => string;
  #kept = '';
  /** What ends the comment or the raw text that the page is in. */
  #until: RegExp | undefined;

  constructor(turn: (link: string) => string) {
    this.#turn = turn;
  }

  push(text: string): string {
    this.#kept += text;
    let out = '';
    for (let step = this.#next(); step !== undefined; step = this.#next()) out += step;
    return out;
  }

  end(): string {
    const rest = this.#kept;
    this.#kept = '';
    return rest;
  }

  /** Takes one piece from what is kept; `undefined` when more of the page must be seen. */
  #next(): string | undefined {
    if (this.#kept === '') return undefined;
    if (this.#until !== undefined) return this.#raw(this.#until);
    const start = this.#kept.indexOf('<');
    if (start !== 0) return this.#take(start < 0 ? this.#kept.length : start);
    if (this.#kept.startsWith('<!--')) {
      this.#until = /-->/;
      return this.#take(4);
    }
    if (this.#kept.length < 4 && '<!--'.startsWith(this.#kept)) return undefined;
    if (!/^<[a-z]/i.test(this.#kept)) return this.#take(1);
    TAG.lastIndex = 0;
    const tag = TAG.exec(this.#kept);
    if (tag === null) return this.#kept.length > LONGEST_TAG ? this.#take(1) : undefined;
    const [whole, name = '', attributes = ''] = tag;
    const element = name.toLowerCase();
    if (RAW.has(element)) this.#until = new RegExp(`</${element}`, 'i');
    this.#take(whole.length);
    const links = Object.hasOwn(LINKS, element) ? (LINKS[element] ?? []) : [];
    return links.length === 0 ? whole : `<${name}${this.#turned(attributes, links)}>`;
  }

  #take(length: number): string {
    const piece = this.#kept.slice(0, length);
    this.#kept = this.#kept.slice(length);
    return piece;
  }

  #raw(until: RegExp): string | undefined {
    const found = until.exec(this.#kept);
    if (found !== null) {
      this.#until = undefined;
      return this.#take(found.index + found[0].length);
    }
    // The end may have begun.
    const sure = this.#kept.length - until.source.length;
    return sure > 0 ? this.#take(sure) : undefined;
  }

  #turned(attributes: string, links: readonly string[]): string {
    return attributes.replace(ATTRIBUTE, (all, name: string, equals: string, value: string) => {
      if (!links.includes(name.toLowerCase())) return all;
      const quote = /^["']/.exec(value)?.[0] ?? '';
      const link = quote === '' ? value : value.slice(1, -1);
      return `${name}${equals}${quote}${this.#turn(link)}${quote}`;
    });
  }
}
