/** Runs a connection through the text of an nftables script, as far as the enforcer of network policies uses the language. */
import assert from 'node:assert/strict';
import { parseIp } from '../../../../../api/meta/ip-addresses.ts';

export interface Connection {
  readonly family: 4 | 6;
  readonly source: string;
  readonly destination: string;
  readonly protocol: string;
  readonly port: number;
}

interface Block {
  readonly kind: string;
  readonly lines: readonly string[];
}

/** Returns whether the forward chain of the script lets the connection pass. */
export function simulator(script: string): (connection: Connection) => boolean {
  const blocks = new Map<string, Block>();
  for (const [, kind = '', name = '', body = ''] of script.matchAll(
    /^ {2}(chain|map|set) (\S+) \{\n([^]*?)\n {2}\}$/gm,
  ))
    blocks.set(name, { kind, lines: body.split('\n').map((line) => line.trim()) });
  if (!blocks.has('forward')) return () => true;
  const elementsOf = new Map<string, readonly (readonly [key: string, verdict: string])[]>();
  for (const [name, { kind, lines }] of blocks) {
    if (kind === 'chain') continue;
    const text = lines.find((line) => line.startsWith('elements'))?.replace(/^elements = \{ (.*) \}$/, '$1') ?? '';
    elementsOf.set(
      name,
      text === ''
        ? []
        : text.split(', ').map((one) => {
            const [key = '', verdict = ''] = one.split(' : ');
            return [key, verdict] as const;
          }),
    );
  }
  return (connection) => {
    const facts: Readonly<Record<string, string>> = {
      'ct original ip saddr': connection.source,
      'ct reply ip saddr': connection.destination,
      'ct original ip6 saddr': connection.source,
      'ct reply ip6 saddr': connection.destination,
      'ct reply proto-src': String(connection.port),
    };
    const lookUp = (set: string, expression: string): string | undefined => {
      const elements = elementsOf.get(set);
      assert.ok(elements, `no set ${set}`);
      const value = expression
        .split(' . ')
        .map((part) => facts[part] ?? assert.fail(part))
        .join(' . ');
      return elements.find(([key]) => holds(key, value))?.[1];
    };
    const run = (chain: string): 'accept' | 'drop' | 'return' => {
      const found = blocks.get(chain);
      assert.ok(found, `no chain ${chain}`);
      for (const line of found.lines) {
        const verdict = judge(line, connection, lookUp);
        if (verdict === undefined) continue;
        const [how = '', target = ''] = verdict.split(' ');
        if (how === 'goto') return run(target);
        if (how !== 'jump') return how as 'accept';
        const inner = run(target);
        if (inner !== 'return') return inner;
      }
      return 'return';
    };
    return run('forward') !== 'drop';
  };
}

function holds(key: string, value: string): boolean {
  if (key === value) return true;
  const [first = '', last] = key.split('-');
  if (last === undefined) return false;
  const number = (text: string): bigint => (/^\d+$/.test(text) ? BigInt(text) : (parseIp(text)?.value ?? -1n));
  return number(value) >= number(first) && number(value) <= number(last);
}

/** Returns the verdict of a rule, or `undefined` if it does not match. */
function judge(
  line: string,
  connection: Connection,
  lookUp: (set: string, expression: string) => string | undefined,
): string | undefined {
  if (line === 'drop') return 'drop';
  // The connection is new and tracked.
  if (line.startsWith('type filter hook') || line.startsWith('ct state')) return undefined;
  // Both addresses are those of pods.
  if (/^ip6 [sd]addr .* drop$/.test(line) || line.includes('fib daddr type')) return undefined;
  const [, family, rest = ''] = /^meta protocol (ip6?) (.*)$/.exec(line) ?? [];
  if (family !== undefined) {
    if ((family === 'ip6') !== (connection.family === 6)) return undefined;
    const [, expression = '', map, set, verdict] = /^(.*) (?:vmap @(\S+)|@(\S+) (\S+))$/.exec(rest) ?? [];
    if (map !== undefined) return lookUp(map, expression);
    return lookUp(set ?? '', expression) === undefined ? undefined : verdict;
  }
  const [, protocol, port, verdict] = /^meta l4proto (\S+)(?: ct reply proto-src @(\S+))? (\S+)$/.exec(line) ?? [];
  assert.ok(protocol !== undefined, `an unknown rule: ${line}`);
  if (protocol.toUpperCase() !== connection.protocol) return undefined;
  return port === undefined || lookUp(port, 'ct reply proto-src') !== undefined ? verdict : undefined;
}
