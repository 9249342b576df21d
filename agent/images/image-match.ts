/**
 * Whether a pattern of credentials speaks of an image: `*.example.com:5000/team`. Parts of the host match one by one with
 * `*`, `?` and `[…]`, the number of parts and the port must be the same, the path is a prefix. Pure.
 */

interface Address {
  readonly parts: readonly string[];
  readonly port: string;
  readonly path: string;
}

/** `target`: registry and path of an image, without tag and digest. A pattern that cannot be read matches nothing. */
export function matchesImage(pattern: string, target: string): boolean {
  const [wanted, found] = [addressOf(pattern), addressOf(target)];
  if (wanted === undefined || found === undefined) return false;
  if (wanted.port !== found.port || wanted.parts.length !== found.parts.length) return false;
  if (!found.path.startsWith(wanted.path)) return false;
  return wanted.parts.every((part, index) => globOf(part)?.test(found.parts[index] ?? '') === true);
}

/** Throws why the pattern cannot be read. */
export function checkImagePattern(pattern: string): void {
  const address = addressOf(pattern);
  if (address === undefined) throw new Error('it must be a host, with a port and a path where wanted');
  const wrong = address.parts.find((part) => globOf(part) === undefined);
  if (wrong !== undefined) throw new Error(`${JSON.stringify(wrong)} is no pattern`);
}

function addressOf(text: string): Address | undefined {
  const found = /^(?:https?:\/\/)?([^/:]+|\[[0-9a-fA-F:]+\])(?::(\d+))?(\/.*)?$/.exec(text);
  if (found === null) return undefined;
  const [, host = '', port = '', path = ''] = found;
  return { parts: host.startsWith('[') ? [host] : host.split('.'), port, path };
}

/** As Go's `filepath.Match` within one part of a name. */
function globOf(part: string): RegExp | undefined {
  if (part.startsWith('[') && part.includes(':')) return new RegExp(`^${part.replaceAll(/[[\]]/g, '\\$&')}$`);
  const source = part.replaceAll(/\[\^?[^\]]+\]|[*?]|[.+^${}()|[\]\\]/g, (piece) => {
    if (piece === '*') return '.*';
    if (piece === '?') return '.';
    return piece.length > 1 ? piece : `\\${piece}`;
  });
  try {
    return new RegExp(`^${source}$`);
  } catch {
    return undefined;
  }
}
