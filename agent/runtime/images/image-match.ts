/**
 * Matches images with patterns of credentials such as `*.example.com:5000/team`. Each part of the host is matched with `*`, `?`
 * and `[…]`. The number of parts and the port must be equal, and the path is a prefix. Pure.
 */
import { quoteText } from '../../../api/meta/quote.ts';

interface Address {
  readonly parts: readonly string[];
  readonly port: string;
  readonly path: string;
}

/**
 * Whether an image matches a pattern. `target` is its registry and path, without tag and digest. An invalid pattern matches
 * nothing.
 */
export function matchesImage(pattern: string, target: string): boolean {
  const [wanted, found] = [addressOf(pattern), addressOf(target)];
  if (wanted === undefined || found === undefined) return false;
  if (wanted.port !== found.port || wanted.parts.length !== found.parts.length) return false;
  if (!found.path.startsWith(wanted.path)) return false;
  return wanted.parts.every((part, index) => {
    const glob = globOf(part);
    return glob !== undefined && matchesGlob(glob, found.parts[index] ?? '');
  });
}

/** Throws an error with the reason if the pattern is invalid. */
export function checkImagePattern(pattern: string): void {
  const address = addressOf(pattern);
  if (address === undefined) throw new Error('it must be a host, optionally with a port and a path');
  const wrong = address.parts.find((part) => globOf(part) === undefined);
  if (wrong !== undefined) throw new Error(`${quoteText(wrong)} is not a valid pattern`);
}

function addressOf(text: string): Address | undefined {
  const found = /^(?:https?:\/\/)?([^/:]+|\[[0-9a-fA-F:]+\])(?::(\d+))?(\/.*)?$/.exec(text);
  if (found === null) return undefined;
  const [, host = '', port = '', path = ''] = found;
  return { parts: host.startsWith('[') ? [host] : host.split('.'), port, path };
}

/** The elements of a pattern: `*` matches any characters, and a function decides on one character. */
type Glob = readonly ('*' | ((char: string) => boolean))[];

/**
 * Converts a pattern with the wildcards of Go's `filepath.Match`, within one part of a name. Returns `undefined` if the pattern
 * is invalid.
 */
function globOf(part: string): Glob | undefined {
  const literal = (char: string) => (other: string) => other === char;
  // An IPv6 address in brackets is no class.
  if (part.startsWith('[') && part.includes(':')) return [...part].map(literal);
  const glob: Glob[number][] = [];
  const chars = [...part];
  for (let at = 0; at < chars.length; at += 1) {
    const char = chars[at] ?? '';
    if (char === '*') glob.push('*');
    else if (char === '?') glob.push(() => true);
    else if (char !== '[') glob.push(literal(char));
    else {
      const end = chars.indexOf(']', at + 2);
      const matches = end === -1 ? undefined : classOf(chars.slice(at + 1, end));
      if (matches === undefined) return undefined;
      glob.push(matches);
      at = end;
    }
  }
  return glob;
}

/** Parses the content of brackets: `abc`, `a-z`, `^a-z`. Returns `undefined` if it is empty or has an invalid range. */
function classOf(chars: readonly string[]): ((char: string) => boolean) | undefined {
  const negated = chars[0] === '^';
  const members = negated ? chars.slice(1) : chars;
  const ranges: (readonly [string, string])[] = [];
  for (let at = 0; at < members.length; at += 1) {
    const low = members[at] ?? '';
    const high = members[at + 1] === '-' ? members[at + 2] : low;
    if (high === undefined || high < low) return undefined;
    ranges.push([low, high]);
    if (high !== low || members[at + 1] === '-') at += 2;
  }
  if (ranges.length === 0) return undefined;
  return (char) => ranges.some(([low, high]) => char >= low && char <= high) !== negated;
}

/** Whether the whole text matches. It goes back to the last `*` only, so that time is at most the product of both lengths. */
function matchesGlob(glob: Glob, text: string): boolean {
  const chars = [...text];
  let [at, pattern] = [0, 0];
  let star: { readonly pattern: number; at: number } | undefined;
  while (at < chars.length) {
    const step = glob[pattern];
    if (step === '*') {
      star = { pattern, at };
      pattern += 1;
    } else if (step?.(chars[at] ?? '') === true) {
      at += 1;
      pattern += 1;
    } else if (star !== undefined) {
      star.at += 1;
      at = star.at;
      pattern = star.pattern + 1;
    } else return false;
  }
  while (glob[pattern] === '*') pattern += 1;
  return pattern === glob.length;
}
