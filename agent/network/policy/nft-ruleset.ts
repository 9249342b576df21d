/**
 * Renders compiled policies as an nftables script that replaces the agent's table in one transaction.
 *
 * Rules match every packet of both directions by the addresses and the port of its connection as conntrack knows them: the
 * original source, and the destination after DNAT, which is the source of the replies. Changed rules therefore apply to
 * existing connections, and traffic to a service is matched by the pod behind it. Traffic of the node itself does not pass
 * the forward hook; of what it receives, only queries to its name server are matched.
 *
 * Names are hashes; nothing of the API's text gets into the script.
 */
import { createHash } from 'node:crypto';
import { inOneSlice, type TimeSlice } from '../../../api/machinery/time-slice.ts';
import { formatIp, parseIp } from '../../../api/meta/ip-addresses.ts';
import type { AddressFamily, PeerRange } from './address-ranges.ts';
import { type AllowedPorts, LAST_PORT, type PortRange, PROTOCOLS } from './allowed-ports.ts';
import type { CompiledPolicies, Direction, Profile } from './compile-policies.ts';

const FAMILIES: readonly AddressFamily[] = [4, 6];
/**
 * The priority of the chains, which is before that of other filters. A packet that these chains drop stays dropped: an accepted
 * packet continues with the next table.
 */
const PRIORITY = -5;

/** How nftables writes the type of addresses, and the source and the destinations of a connection. */
const SYNTAX = {
  4: {
    protocol: 'ip',
    type: 'ipv4_addr',
    source: 'ct original ip saddr',
    destination: 'ct reply ip saddr',
    originalDestination: 'ct original ip daddr',
  },
  6: {
    protocol: 'ip6',
    type: 'ipv6_addr',
    source: 'ct original ip6 saddr',
    destination: 'ct reply ip6 saddr',
    originalDestination: 'ct original ip6 daddr',
  },
} as const;

/** Neighbors and routers find each other without conntrack. */
const NEIGHBOR_DISCOVERY = [
  'nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert, nd-redirect',
  'mld-listener-query, mld-listener-report, mld-listener-done, mld2-listener-report',
].join(', ');

/** Returns the script that replaces the table, or removes it if nothing is isolated. */
export function policyScript(table: string, compiled: CompiledPolicies): string {
  return inOneSlice(scriptInSlices(table, compiled, { isSpent: false }));
}

type Slice = Pick<TimeSlice, 'isSpent'>;

/**
 * Builds the script as `policyScript` does. Yields when the slice is spent: a script may have hundreds of thousands of ranges.
 */
export function* scriptInSlices(
  table: string,
  compiled: CompiledPolicies,
  slice: Slice,
): Generator<void, string, undefined> {
  const { ingress, egress } = compiled;
  const removal = `add table inet ${table}\ndelete table inet ${table}\n`;
  if (ingress.size === 0 && egress.size === 0) return removal;
  const blocks = [
    ...(yield* portChains([...ingress.values(), ...egress.values()], slice)),
    ...(yield* profileChains('egress', egress, slice)),
    ...(yield* profileChains('ingress', ingress, slice)),
    ...FAMILIES.flatMap((family) => isolationSets(family, compiled)),
    untrackedChain(),
    forwardChain(),
    ...queryChain(compiled),
  ];
  return `${removal}table inet ${table} {\n${blocks.join('\n')}\n}\n`;
}

const idOf = (text: string): string => createHash('sha256').update(text).digest('hex').slice(0, 32);

function block(kind: 'chain' | 'map' | 'set', name: string, lines: readonly string[]): string {
  return `  ${kind} ${name} {\n${lines.map((line) => `    ${line}\n`).join('')}  }`;
}

const elements = (list: readonly string[]): string[] =>
  list.length === 0 ? [] : [`elements = { ${list.join(', ')} }`];

/** Renders a chain for each distinct set of ports. It returns if the port of the connection is allowed. */
function* portChains(profiles: readonly Profile[], slice: Slice): Generator<void, string[], undefined> {
  const sets = new Map<string, AllowedPorts>();
  for (const { peers } of new Set(profiles)) {
    for (const { ports } of peers) if (!ports.isAll) sets.set(ports.key, ports);
    if (slice.isSpent) yield;
  }
  return [...sets.entries()]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .flatMap(([key, { ranges }]) => {
      const id = idOf(key);
      const sections = PROTOCOLS.map((protocol) => ({
        protocol,
        ofProtocol: ranges.filter((range) => range.protocol === protocol),
      })).filter(({ ofProtocol }) => ofProtocol.length > 0);
      return [
        ...sections
          .filter(({ ofProtocol }) => !ofProtocol.some(isWhole))
          .map(({ protocol, ofProtocol }) =>
            block('set', `numbers_${protocol.toLowerCase()}_${id}`, [
              'type inet_service',
              'flags interval',
              ...elements(ofProtocol.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`))),
            ]),
          ),
        block('chain', `ports_${id}`, [
          ...sections.map(({ protocol, ofProtocol }) => {
            const name = protocol.toLowerCase();
            const port = ofProtocol.some(isWhole) ? '' : ` ct reply proto-src @numbers_${name}_${id}`;
            return `meta l4proto ${name}${port} return`;
          }),
          'drop',
        ]),
      ];
    });
}

const isWhole = ({ first, last }: PortRange): boolean => first === 0 && last === LAST_PORT;

/** Renders a map of peers and a chain for each profile. The chain returns if the peer and the port are allowed. */
function* profileChains(
  direction: Direction,
  profiles: ReadonlyMap<string, Profile>,
  slice: Slice,
): Generator<void, string[], undefined> {
  const distinct = new Map([...profiles.values()].map((profile) => [profile.id, profile]));
  const blocks: string[] = [];
  for (const { id, peers } of [...distinct.values()].sort((a, b) => (a.id < b.id ? -1 : 1))) {
    const texts: Record<AddressFamily, string[]> = { 4: [], 6: [] };
    for (const range of peers) {
      texts[range.family].push(peerElement(range));
      if (slice.isSpent) yield;
    }
    const presentFamilies = FAMILIES.filter((family) => texts[family].length > 0);
    const name = `${direction}_${id}`;
    for (const family of presentFamilies)
      blocks.push(
        block('map', `${name}_${family}`, [
          `type ${SYNTAX[family].type} : verdict`,
          'flags interval',
          ...elements(texts[family]),
        ]),
      );
    blocks.push(
      block('chain', name, [
        ...presentFamilies.map((family) => {
          const { protocol, source, destination } = SYNTAX[family];
          return `meta protocol ${protocol} ${direction === 'ingress' ? source : destination} vmap @${name}_${family}`;
        }),
        'drop',
      ]),
    );
  }
  return blocks;
}

function peerElement({ family, first, last, ports }: PeerRange): string {
  const from = formatIp({ family, value: first });
  const verdict = ports.isAll ? 'return' : `goto ports_${idOf(ports.key)}`;
  return `${first === last ? from : `${from}-${formatIp({ family, value: last })}`} : ${verdict}`;
}

function isolationSets(family: AddressFamily, { ingress, egress }: CompiledPolicies): string[] {
  const { type } = SYNTAX[family];
  const ofFamily = (profiles: ReadonlyMap<string, Profile>): [string, Profile][] =>
    [...profiles].filter(([ip]) => parseIp(ip)?.family === family).sort(([a], [b]) => (a < b ? -1 : 1));
  const isolated = [...new Set([...ofFamily(ingress), ...ofFamily(egress)].map(([ip]) => ip))].sort();
  return [
    ...(['egress', 'ingress'] as const).map((direction) =>
      block('map', `${direction}${family}`, [
        `type ${type} : verdict`,
        ...elements(
          ofFamily(direction === 'egress' ? egress : ingress).map(([ip, { id }]) => `${ip} : jump ${direction}_${id}`),
        ),
      ]),
    ),
    block('set', `isolated${family}`, [`type ${type}`, ...elements(isolated)]),
    // A pod always reaches itself, also through a service.
    block('set', `self${family}`, [`type ${type} . ${type}`, ...elements(isolated.map((ip) => `${ip} . ${ip}`))]),
  ];
}

/**
 * Returns the chain for packets that belong to no connection. They match no rule of peers, so isolated pods neither send nor
 * receive them, apart from neighbor discovery.
 */
function untrackedChain(): string {
  return block('chain', 'untracked', [
    `icmpv6 type { ${NEIGHBOR_DISCOVERY} } accept`,
    ...FAMILIES.flatMap((family) =>
      ['saddr', 'daddr'].map((side) => `${SYNTAX[family].protocol} ${side} @isolated${family} drop`),
    ),
  ]);
}

/**
 * Returns the sets and the chain that drop queries to the name server of the node; none if no queries are refused. The rules
 * match the address and the port that the pod has chosen: the service proxy has translated them to a port of the node, and
 * drops all other packets of pods to that port.
 */
function queryChain({ refusedQueries }: CompiledPolicies): readonly string[] {
  if (refusedQueries.length === 0) return [];
  const name = (family: AddressFamily): string => `refused_queries${family}`;
  return [
    ...FAMILIES.map((family) => {
      const ofFamily = refusedQueries.filter((one) => one.family === family);
      const texts = ofFamily
        .map(({ pod, server, protocol }) => `${pod} . ${server} . ${protocol.toLowerCase()}`)
        .sort();
      const { type } = SYNTAX[family];
      return block('set', name(family), [`type ${type} . ${type} . inet_proto`, ...elements(texts)]);
    }),
    block('chain', 'input', [
      `type filter hook input priority ${PRIORITY}; policy accept;`,
      ...FAMILIES.map((family) => {
        const { protocol, source, originalDestination } = SYNTAX[family];
        return `meta protocol ${protocol} meta l4proto { tcp, udp } ct original proto-dst 53 ${source} . ${originalDestination} . meta l4proto @${name(family)} drop`;
      }),
    ]),
  ];
}

/**
 * Packets that no router forwards, and that pods of one bridge could send each other all the same. Neither of their
 * addresses need be one of a pod, so that no policy would match them.
 */
const ON_LINK = [
  'ip6 saddr fe80::/10 drop',
  'ip6 daddr { fe80::/10, ff00::/8 } drop',
  'meta protocol ip fib daddr type { broadcast, multicast } drop',
];

function forwardChain(): string {
  return block('chain', 'forward', [
    `type filter hook forward priority ${PRIORITY}; policy accept;`,
    'ct state invalid,untracked goto untracked',
    // An ICMP error about a connection that exists. Its own protocol is not that of the connection.
    'ct state related meta l4proto { icmp, icmpv6 } accept',
    ...ON_LINK,
    ...FAMILIES.map(
      (family) =>
        `meta protocol ${SYNTAX[family].protocol} ${SYNTAX[family].source} . ${SYNTAX[family].destination} @self${family} accept`,
    ),
    ...FAMILIES.flatMap((family) => {
      const { protocol, source, destination } = SYNTAX[family];
      return [
        `meta protocol ${protocol} ${source} vmap @egress${family}`,
        `meta protocol ${protocol} ${destination} vmap @ingress${family}`,
      ];
    }),
  ]);
}
