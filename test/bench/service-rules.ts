/**
 * Measures the processor time of the agent for the rules of services: for the first transaction of all services, and for the
 * change of one of them. Runs the tools in a network namespace of its own if it may make one.
 *
 *     bin/node test/bench/service-rules.ts [services] [changes] [mode]
 */
import { spawnSync } from 'node:child_process';
import { hostNftables } from '../../agent/network/nftables.ts';
import { hostPacketFilter } from '../../agent/network/serviceproxy/iptables.ts';
import { IptablesWriter } from '../../agent/network/serviceproxy/iptables-writer.ts';
import { NftablesWriter } from '../../agent/network/serviceproxy/nftables-writer.ts';
import type { RuleSettings } from '../../agent/network/serviceproxy/rule-writer.ts';
import { ServiceTable } from '../../agent/network/serviceproxy/service-table.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import type { EndpointSlice, Service } from '../../api/kinds/kinds.ts';
import { inSlices, TimeSlice } from '../../api/machinery/time-slice.ts';

const [services = 5000, changes = 20] = process.argv.slice(2, 4).map(Number);
const [, , , , only = ''] = process.argv;
const NAMESPACE = `orcb${process.pid}`;
const IN_NAMESPACE = ['ip', 'netns', 'exec', NAMESPACE];
const settings: RuleSettings = {
  family: 'IPv4',
  masqueradeBit: 14,
  podCidrs: ['10.0.0.0/24'],
  nodePortRanges: [],
  localhostNodePorts: true,
};

const serviceOf = (number: number): Service =>
  ({
    metadata: {
      namespace: `team-${number % 50}`,
      name: `service-${number}`,
      creationTimestamp: '2026-01-01T00:00:00Z',
    },
    spec: {
      clusterIPs: [`10.96.${number >> 8}.${number & 255}`],
      ports: [{ name: 'http', port: 80, protocol: 'TCP', ...(number % 10 === 0 ? { nodePort: 20_000 + number } : {}) }],
    },
  }) as unknown as Service;

function sliceOf(number: number, endpoints: number): EndpointSlice {
  const addresses = Array.from({ length: endpoints }, (_, at) => `10.${at + 1}.${number >> 8}.${number & 255}`);
  return {
    metadata: { namespace: `team-${number % 50}`, name: `s-${number}` },
    addressType: 'IPv4',
    ports: [{ name: 'http', port: 8080, protocol: 'TCP' }],
    endpoints: addresses.map((address) => ({ addresses: [address], conditions: { ready: true } })),
  } as unknown as EndpointSlice;
}

interface Cost {
  readonly cpu: number;
  readonly wall: number;
  readonly turn: number;
}

const processorMs = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
};

/** Returns the processor time of this process and of its longest turn of the event loop, and the time on the clock. */
async function measured(work: () => Promise<void>): Promise<Cost> {
  const [before, startMs] = [processorMs(), performance.now()];
  let [last, turn] = [before, 0];
  const endTurn = (): void => {
    const now = processorMs();
    turn = Math.max(turn, now - last);
    last = now;
  };
  const ticker = setInterval(endTurn, 1);
  await work();
  endTurn();
  clearInterval(ticker);
  return { cpu: processorMs() - before, wall: performance.now() - startMs, turn };
}

const shown = (ms: number): string => `${ms.toFixed(1)} ms`;

async function run(writer: NftablesWriter | IptablesWriter): Promise<void> {
  const endpoints = new Map<number, number>();
  const numberOf = (name: string): number => Number(name.slice(name.lastIndexOf('-') + 1));
  const byKey = new Map(
    Array.from({ length: services }, (_, number) => serviceOf(number)).map((each) => [
      `${each.metadata.namespace}/${each.metadata.name}`,
      each,
    ]),
  );
  const table = new ServiceTable({
    family: 'IPv4',
    service: (key) => byKey.get(key),
    slicesOf: (_, name) => [sliceOf(numberOf(name), endpoints.get(numberOf(name)) ?? 3)],
    place: () => ({ nodeName: 'here', zone: '' }),
  });
  const sync = async (keys: Iterable<string>): Promise<void> =>
    writer.write(settings, await inSlices(table.update(keys), new TimeSlice(systemClock)));
  const first = await measured(() => sync(byKey.keys()));
  console.log(
    `${writer.mode}: ${services} services at once: agent ${shown(first.cpu)}, longest turn ${shown(first.turn)}, in effect after ${shown(first.wall)}`,
  );
  const costs: Cost[] = [];
  for (let at = 0; at < changes; at++) {
    const number = (at * 97) % services;
    endpoints.set(number, 2 + (at % 2) * 2);
    costs.push(await measured(() => sync([`team-${number % 50}/service-${number}`])));
  }
  const median = (pick: (cost: Cost) => number): number =>
    costs.map(pick).toSorted((a, b) => a - b)[costs.length >> 1] ?? 0;
  console.log(
    `${writer.mode}: one change, median of ${changes}: agent ${shown(median(({ cpu }) => cpu))}, longest turn ${shown(median(({ turn }) => turn))}, in effect after ${shown(median(({ wall }) => wall))}`,
  );
}

if (spawnSync('ip', ['netns', 'add', NAMESPACE]).status !== 0) {
  console.log('This host makes no network namespaces.');
  process.exit(1);
}
try {
  const filter = hostPacketFilter(IN_NAMESPACE);
  const nftables = new NftablesWriter({ nft: hostNftables(IN_NAMESPACE), filter, table: 'bench', clock: systemClock });
  for (const writer of [nftables, new IptablesWriter(filter, systemClock)])
    if (only === '' || only === writer.mode) await run(writer);
} finally {
  spawnSync('ip', ['netns', 'delete', NAMESPACE]);
}
