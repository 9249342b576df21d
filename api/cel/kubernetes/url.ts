/** Implements the CEL library of URLs: `url('https://example.com:80/a').getHost()`. */
import { checkRequestUri, type GoUrl, GoUrlError, isRequestUri, parseGoUrl, queryOf } from '../../meta/go-url.ts';
import { fn, type FunctionRow, method } from '../functions.ts';
import { bool, list, map, opaque, string } from '../types.ts';
import { CelError, type CelMap, OpaqueValue } from '../values.ts';

class Url extends OpaqueValue {
  readonly typeName = 'kubernetes.URL';
  readonly value: GoUrl;
  readonly text: string;
  constructor(value: GoUrl, text: string) {
    super();
    this.value = value;
    this.text = text;
  }
  equals(other: OpaqueValue): boolean {
    return other instanceof Url && other.text === this.text;
  }
}

const url = opaque('kubernetes.URL');

/** The overloads of the library `url`. */
export const urls: readonly FunctionRow[] = [
  fn('url', [string], url, (text: string) => {
    try {
      checkRequestUri(text);
      return new Url(parseGoUrl(text), text);
    } catch (error) {
      if (error instanceof GoUrlError)
        throw new CelError(`URL parse error during conversion from string: ${error.message}`, { cause: error });
      throw error;
    }
  }),
  fn('isURL', [string], bool, isRequestUri),
  method('getScheme', [url], string, ({ value }: Url) => value.scheme),
  method('getHost', [url], string, ({ value }: Url) => value.host),
  method('getHostname', [url], string, ({ value }: Url) => value.host.replace(/:\d*$/, '').replace(/^\[|\]$/g, '')),
  method('getPort', [url], string, ({ value }: Url) => /:(\d+)$/.exec(value.host)?.[1] ?? ''),
  method('getEscapedPath', [url], string, ({ value }: Url) => value.escapedPath),
  method('getQuery', [url], map(string, list(string)), ({ value }: Url): CelMap => queryOf(value)),
];
