/** The CEL library of URLs: `url('https://example.com:80/a').getHost()`. */
import { quoteText } from '../../meta/quote.ts';
import { fn, type FunctionRow, method } from '../functions.ts';
import { bool, list, map, opaque, string } from '../types.ts';
import { CelError, type CelMap, OpaqueValue } from '../values.ts';

class Url extends OpaqueValue {
  readonly typeName = 'kubernetes.URL';
  readonly value: URL;
  readonly text: string;
  constructor(value: URL, text: string) {
    super();
    this.value = value;
    this.text = text;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Url && other.text === this.text;
  }
}

const url = opaque('kubernetes.URL');

/** Accepts an absolute URL, or an absolute path. */
export function urlValue(text: string): Url | undefined {
  if (text.startsWith('/') && !text.startsWith('//')) return new Url(new URL(`path:${text}`), text);
  return /^[a-zA-Z][a-zA-Z0-9+.-]*:/.test(text) && URL.canParse(text) ? new Url(new URL(text), text) : undefined;
}

/** Keeps a scheme's default port if the URL contains it, unlike JavaScript's URL. */
function hostOf({ value, text }: Url): string {
  if (value.protocol === 'path:') return '';
  const authority = /^[a-zA-Z][a-zA-Z0-9+.-]*:\/\/([^/?#]*)/.exec(text)?.[1] ?? '';
  return authority.slice(authority.lastIndexOf('@') + 1);
}

export const urls: readonly FunctionRow[] = [
  fn('url', [string], url, (text: string) => {
    const value = urlValue(text);
    if (value === undefined)
      throw new CelError(
        `URL parse error during conversion from string: parse ${quoteText(text)}: invalid URI for request`,
      );
    return value;
  }),
  fn('isURL', [string], bool, (text: string) => urlValue(text) !== undefined),
  method('getScheme', [url], string, ({ value }: Url) =>
    value.protocol === 'path:' ? '' : value.protocol.slice(0, -1),
  ),
  method('getHost', [url], string, hostOf),
  method('getHostname', [url], string, (value: Url) =>
    hostOf(value)
      .replace(/:\d*$/, '')
      .replace(/^\[|\]$/g, ''),
  ),
  method('getPort', [url], string, (value: Url) => /:(\d+)$/.exec(hostOf(value))?.[1] ?? ''),
  method('getEscapedPath', [url], string, ({ text }: Url) =>
    text.replace(/^[a-zA-Z][a-zA-Z0-9+.-]*:(?:\/\/[^/?#]*)?/, '').replace(/[?#].*$/s, ''),
  ),
  method('getQuery', [url], map(string, list(string)), ({ value }: Url) => {
    const query: CelMap = new Map();
    for (const [name, text] of value.searchParams) {
      const known = query.get(name);
      query.set(name, Array.isArray(known) ? [...(known as string[]), text] : [text]);
    }
    return query;
  }),
];
