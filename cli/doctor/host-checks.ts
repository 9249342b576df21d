/**
 * Checks the requirements of orchlet that need neither changes of the host nor a server: user, name, time, cgroups, kernel,
 * swap, disk and tools. A finding that is not `ok` names a remedy.
 */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { trialScript } from '../../agent/network/podaddresses/address-rules.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { PROGRAM_SINCE_MS } from '../../api/pki/validity.ts';

/** `fail` makes `orchlet doctor` exit with 1. */
export type Verdict = 'ok' | 'warn' | 'fail';

/** A line of the output. */
export interface Finding {
  readonly name: string;
  readonly verdict: Verdict;
  readonly text: string;
  readonly remedy?: string;
}

/** The host as the checks see it. */
export interface Host {
  readonly isRoot: boolean;
  readonly name: string;
  readonly clock: Clock;
  exists(path: string): boolean;
  /** Returns the text of a file without surrounding white space. It is empty if the file cannot be read. */
  read(path: string): string;
  hasCommand(name: string): boolean;
  /**
   * Runs a program in a network namespace of its own, which is gone afterwards. Returns its error, empty if it succeeds;
   * `undefined` where no namespace can be made.
   */
  tryInNewNetwork(program: string, args: readonly string[], input: string): string | undefined;
  /** Returns the free space of the file system that contains the path. `freeInodes` is infinite if it does not limit them. */
  space(path: string): { readonly freeBytes: number; readonly freeInodes: number };
}

const TRIAL_MS = 10_000;

/** Returns the host of this process. */
export function localHost(clock: Clock): Host {
  return {
    isRoot: process.getuid?.() === 0,
    name: hostname(),
    clock,
    exists: existsSync,
    read(path) {
      try {
        return readFileSync(path, 'utf8').trim();
      } catch {
        return '';
      }
    },
    hasCommand: (name) => spawnSync('sh', ['-c', `command -v ${name}`]).status === 0,
    tryInNewNetwork(program, args, input) {
      if (spawnSync('unshare', ['--net', 'true'], { timeout: TRIAL_MS }).status !== 0) return undefined;
      const done = spawnSync('unshare', ['--net', program, ...args], { input, encoding: 'utf8', timeout: TRIAL_MS });
      if (done.status === 0) return '';
      return (done.stderr ?? '').trim().split('\n').slice(0, 3).join('; ') || `${program} did not succeed`;
    },
    space(path) {
      const { bavail, bsize, files, ffree } = statfsSync(path);
      return { freeBytes: bavail * bsize, freeInodes: files === 0 ? Infinity : ffree };
    },
  };
}

/** Returns a finding for each check. `directory` is the data directory, which need not exist. */
export function checkHost(host: Host, directory: string): readonly Finding[] {
  return [
    checkUser(host),
    checkHostName(host),
    checkTime(host),
    checkCgroups(host),
    checkModule(host, 'overlay', '/sys/module/overlay', 'containers take much more disk'),
    checkModule(
      host,
      'br_netfilter',
      '/proc/sys/net/bridge',
      'network policies and services may not see bridged packets',
    ),
    checkForwarding(host),
    checkSwap(host),
    checkDisk(host, directory),
    checkTools(host),
    checkIptables(host),
    checkNftables(host),
    checkConntrack(host),
  ];
}

function checkUser({ isRoot }: Host): Finding {
  return isRoot
    ? { name: 'user', verdict: 'ok', text: 'root' }
    : {
        name: 'user',
        verdict: 'warn',
        text: 'not root: volumes, cgroups and networks cannot be set up',
        remedy: 'run the agent as root (the control plane alone needs no rights)',
      };
}

function checkCgroups({ exists, read }: Host): Finding {
  if (exists('/sys/fs/cgroup/cgroup.controllers')) {
    const controllers = read('/sys/fs/cgroup/cgroup.controllers').split(' ');
    const missing = ['cpu', 'memory', 'pids'].filter((name) => !controllers.includes(name));
    if (missing.length === 0) return { name: 'cgroups', verdict: 'ok', text: 'v2 with cpu, memory and pids' };
    return {
      name: 'cgroups',
      verdict: 'fail',
      text: `v2 without ${missing.join(', ')}`,
      remedy: `boot with cgroup_enable=${missing[0] ?? ''} or a kernel that has it`,
    };
  }
  const missing = ['cpu', 'memory', 'pids'].filter((name) => !exists(`/sys/fs/cgroup/${name}`));
  if (missing.length === 0) return { name: 'cgroups', verdict: 'ok', text: 'v1 with cpu, memory and pids' };
  return {
    name: 'cgroups',
    verdict: 'fail',
    text: `no ${missing.join(', ')}`,
    remedy: 'mount the cgroup file systems (systemd does), or boot with cgroup_enable=memory',
  };
}

function checkModule({ exists }: Host, name: string, path: string, why: string): Finding {
  if (exists(path)) return { name, verdict: 'ok', text: 'available' };
  return { name, verdict: 'warn', text: `missing: ${why}`, remedy: `modprobe ${name}` };
}

function checkForwarding({ read }: Host): Finding {
  if (read('/proc/sys/net/ipv4/ip_forward') === '1') return { name: 'ip_forward', verdict: 'ok', text: 'on' };
  return {
    name: 'ip_forward',
    verdict: 'warn',
    text: 'off: pods cannot reach other hosts',
    remedy: 'sysctl -w net.ipv4.ip_forward=1',
  };
}

function checkSwap({ read }: Host): Finding {
  const used = read('/proc/swaps').split('\n').length > 1;
  return used
    ? {
        name: 'swap',
        verdict: 'warn',
        text: "in use: memory limits are less exact, and 'orchlet agent' does not start ('orchlet up' accepts swap)",
        remedy: 'swapoff -a, or give the agent --fail-swap-on=false',
      }
    : { name: 'swap', verdict: 'ok', text: 'off' };
}

/** The free space from which on the disk is no concern: images of containers have some gigabytes and thousands of files. */
const AMPLE_GIB = 5;
const AMPLE_INODES = 50_000;

function checkDisk({ exists, space }: Host, directory: string): Finding {
  let place = directory;
  while (!exists(place) && place !== '/') place = dirname(place);
  const { freeBytes, freeInodes } = space(place);
  const freeGib = freeBytes / 2 ** 30;
  if (freeGib >= AMPLE_GIB && freeInodes > AMPLE_INODES)
    return { name: 'disk', verdict: 'ok', text: `${freeGib.toFixed(0)} GiB free at ${place}` };
  return {
    name: 'disk',
    verdict: freeGib < 1 || freeInodes === 0 ? 'fail' : 'warn',
    text: `${freeGib.toFixed(1)} GiB${freeInodes === Infinity ? '' : ` and ${freeInodes} inodes`} free at ${place}`,
    remedy: 'make room on this disk, or choose another --data-dir',
  };
}

function checkTime({ clock }: Host): Finding {
  if (clock.now() < PROGRAM_SINCE_MS)
    return {
      name: 'clock',
      verdict: 'fail',
      text: `the clock of the host shows ${new Date(clock.now()).toISOString()}`,
      remedy: 'set the time (timedatectl set-ntp true): certificates are not valid yet',
    };
  return { name: 'clock', verdict: 'ok', text: new Date(clock.now()).toISOString() };
}

function checkHostName(host: Host): Finding {
  const name = host.name.toLowerCase();
  if (/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(name) && name !== 'localhost')
    return { name: 'host name', verdict: 'ok', text: name };
  return {
    name: 'host name',
    verdict: 'fail',
    text: `${quoteText(name)} cannot be the name of a node`,
    remedy: 'hostnamectl set-hostname NAME, or --hostname-override',
  };
}

/** The rules of a trial. Adding a rule shows what listing does not: a kernel without the table. */
const IPTABLES_TRIAL = '*nat\n:ORC-TRIAL - [0:0]\n-A ORC-TRIAL -j MASQUERADE\nCOMMIT\n';
const NFT_TRIAL = `table inet orchlet_trial {
  set addresses { type ipv4_addr; flags interval; }
  chain forward { type filter hook forward priority 0; ct state established ip saddr @addresses accept; }
}
`;

function checkIptables({ hasCommand, tryInNewNetwork }: Host): Finding {
  const name = 'iptables';
  if (!hasCommand('iptables'))
    return {
      name,
      verdict: 'warn',
      text: 'missing: addresses of services answer only where nftables works',
      remedy: 'apt-get install iptables, or set --service-proxy=none where another program provides services',
    };
  const problem = tryInNewNetwork('iptables-restore', ['--noflush'], IPTABLES_TRIAL);
  if (problem === undefined)
    return {
      name,
      verdict: 'ok',
      text: 'there; whether it works was not tried: this needs root and unshare',
    };
  if (problem === '') return { name, verdict: 'ok', text: 'writes rules of nat' };
  return {
    name,
    verdict: 'warn',
    text: `cannot write rules of nat, so that addresses of services answer only where nftables works: ${problem}`,
    remedy: 'modprobe iptable_nat, or update-alternatives --set iptables /usr/sbin/iptables-legacy',
  };
}

function checkNftables({ hasCommand, tryInNewNetwork }: Host): Finding {
  const name = 'nftables';
  if (!hasCommand('nft'))
    return {
      name,
      verdict: 'warn',
      text: 'missing: network policies are not enforced, and the rules of services need iptables',
      remedy: 'apt-get install nftables, or set --network-policy=none where a network plugin enforces them',
    };
  const problem = tryInNewNetwork('nft', ['-f', '-'], NFT_TRIAL);
  if (problem === undefined)
    return {
      name,
      verdict: 'ok',
      text: 'there; whether it works was not tried: this needs root and unshare',
    };
  if (problem === '')
    return checkBridgeRules(name, tryInNewNetwork('nft', ['-f', '-'], trialScript('orchlet_trial')) ?? '');
  return {
    name,
    verdict: 'warn',
    text: `cannot write rules, so that network policies are not enforced: ${problem}`,
    remedy: 'modprobe nf_tables nf_conntrack, or boot a kernel that has them',
  };
}

/** Checks the rules of bridges, which the kernel may lack even if it has the other rules. */
function checkBridgeRules(name: string, problem: string): Finding {
  if (problem === '') return { name, verdict: 'ok', text: 'writes rules' };
  return {
    name,
    verdict: 'warn',
    text: `cannot write rules of bridges, so that a pod with NET_RAW can pass for another one of its node: ${problem}`,
    remedy: 'boot a kernel with CONFIG_NF_TABLES_BRIDGE, or take NET_RAW and NET_ADMIN from pods that you do not trust',
  };
}

/** Files that exist, once connection tracking is in use, if the kernel tracks connections of the protocol. */
const TRACKED = {
  udp: '/proc/sys/net/netfilter/nf_conntrack_udp_timeout',
  sctp: '/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established',
} as const;

function checkConntrack({ hasCommand, exists }: Host): Finding {
  const name = 'conntrack';
  if (!hasCommand('conntrack'))
    return {
      name,
      verdict: 'warn',
      text: 'missing: clients of services keep sending UDP to endpoints that are gone',
      remedy: 'apt-get install conntrack',
    };
  if (exists(TRACKED.udp) && !exists(TRACKED.sctp))
    return {
      name,
      verdict: 'warn',
      text: 'the kernel tracks no connections of SCTP, so that services with ports of SCTP do not work',
      remedy: 'boot a kernel with CONFIG_NF_CT_PROTO_SCTP, if services need it',
    };
  return { name, verdict: 'ok', text: 'available' };
}

function checkTools({ hasCommand }: Host): Finding {
  const missing = ['mount', 'umount', 'nsenter'].filter((tool) => !hasCommand(tool));
  if (missing.length === 0) return { name: 'tools', verdict: 'ok', text: 'mount and nsenter are there' };
  return {
    name: 'tools',
    verdict: 'warn',
    text: `missing: ${missing.join(', ')}`,
    remedy: 'apt-get install mount util-linux',
  };
}
