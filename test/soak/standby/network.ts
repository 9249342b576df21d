/**
 * Creates two hosts as network namespaces: a link between them, which is cut and healed, and a link from each of them to the
 * clients on this host. Needs root.
 */
import { spawnSync } from 'node:child_process';

const NAME = `orsb${process.pid}`;
/** The network of the hosts, which no other run on this host has at the same time. */
const NET = `10.194.${process.pid % 250}`;
const PAIR_DEVICE = 'pair';

function ip(...args: readonly string[]): void {
  const { status, stderr, error } = spawnSync('ip', args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ip ${args.join(' ')}: ${error?.message ?? stderr}`);
}

/** Returns the reason why this machine cannot have such hosts, or `false`. */
export function whyNoHosts(): string | false {
  const probe = spawnSync('ip', ['netns', 'add', `${NAME}p`], { encoding: 'utf8' });
  if (probe.status !== 0) return `this host makes no network namespaces: ${probe.stderr}`;
  spawnSync('ip', ['netns', 'delete', `${NAME}p`]);
  return false;
}

/** Returns the network namespace of a host, which is 0 or 1. */
export const namespaceOf = (host: number): string => `${NAME}h${host}`;
/** Returns the address at which the clients reach a host. */
export const clientAddressOf = (host: number): string => `${NET}.${4 * host + 2}`;
/** Returns the address at which the other host reaches it. */
export const pairAddressOf = (host: number): string => `${NET}.${128 + host}`;

/** The links of the two hosts. */
export class PairNetwork {
  constructor() {
    for (const host of [0, 1]) {
      const inside = ['-n', namespaceOf(host)];
      const link = `${NAME}c${host}`;
      ip('netns', 'add', namespaceOf(host));
      ip(...inside, 'link', 'set', 'lo', 'up');
      ip('link', 'add', link, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', namespaceOf(host));
      ip('address', 'add', `${NET}.${4 * host + 1}/30`, 'dev', link);
      ip('link', 'set', link, 'up');
      ip(...inside, 'address', 'add', `${clientAddressOf(host)}/30`, 'dev', 'eth0');
      ip(...inside, 'link', 'set', 'eth0', 'up');
    }
    const peer = ['peer', 'name', PAIR_DEVICE, 'netns', namespaceOf(1)];
    ip('-n', namespaceOf(0), 'link', 'add', PAIR_DEVICE, 'type', 'veth', ...peer);
    for (const host of [0, 1]) {
      ip('-n', namespaceOf(host), 'address', 'add', `${pairAddressOf(host)}/25`, 'dev', PAIR_DEVICE);
      ip('-n', namespaceOf(host), 'link', 'set', PAIR_DEVICE, 'up');
    }
  }

  /** Cuts the link between the hosts at the side of one: its requests fail at once, and those of the other get no answer. */
  cut(host: number): void {
    ip('-n', namespaceOf(host), 'link', 'set', PAIR_DEVICE, 'down');
  }

  /** Connects the hosts again. */
  heal(): void {
    for (const host of [0, 1]) ip('-n', namespaceOf(host), 'link', 'set', PAIR_DEVICE, 'up');
  }

  remove(): void {
    for (const host of [0, 1]) spawnSync('ip', ['netns', 'delete', namespaceOf(host)]);
  }
}
