/** `orchlet doctor`: checks the host, one line for each check, with a remedy where something is missing. */
import { stringifyJson } from '../../api/codec/json.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { createServer, connect } from 'node:net';
import { hostname } from 'node:os';
import { dirname, resolve } from 'node:path';
import { request } from '../../api/machinery/node-http.ts';
import { flag, type FlagTable, type ParsedFlags, UsageError } from '../../api/component/flags.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import type { Command } from '../command.ts';
import { dataDirectoryFlag } from '../data-directory.ts';
import { examineData, type ExaminedData } from '../examine-data.ts';
import type { CommandIo } from '../io.ts';

type Verdict = 'ok' | 'warn' | 'fail';

interface Finding {
  readonly name: string;
  readonly verdict: Verdict;
  readonly text: string;
  readonly remedy?: string;
}

function portFault(text: string): string | undefined {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  return port >= 1 && port <= 65_535 ? undefined : `${quoteText(text)} is not a port from 1 to 65535`;
}

const flags = {
  dataDir: dataDirectoryFlag('Host', 'Data directory whose disk is checked.'),
  ports: flag({
    name: 'ports',
    type: 'list',
    default: ['6443', '10250', '10248'],
    group: 'Host',
    help: 'Ports that must be free.',
    check: (ports) => ports.map(portFault).find((fault) => fault !== undefined),
  }),
  data: flag({
    name: 'data',
    type: 'boolean',
    default: false,
    group: 'Data',
    help: 'Examine the database of the data directory instead of the host. The control plane must be stopped; nothing is written there.',
  }),
  export: flag({
    name: 'export',
    type: 'string',
    default: '',
    group: 'Data',
    placeholder: 'FILE',
    help: "With --data: write what can be read to this new file, for 'orchlet restore'.",
  }),
  output: flag({
    name: 'output',
    short: 'o',
    type: 'string',
    default: 'text',
    choices: ['text', 'json'],
    group: 'Output',
    help: 'Form of the report.',
  }),
} as const;

const read = (path: string): string => {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch {
    return '';
  }
};

const has = (command: string): boolean => spawnSync('sh', ['-c', `command -v ${command}`]).status === 0;

function checkUser(): Finding {
  const isRoot = process.getuid?.() === 0;
  return isRoot
    ? { name: 'user', verdict: 'ok', text: 'root' }
    : {
        name: 'user',
        verdict: 'warn',
        text: 'not root: volumes, cgroups and networks cannot be set up',
        remedy: 'run the agent as root (the control plane alone needs no rights)',
      };
}

function checkCgroups(): Finding {
  if (existsSync('/sys/fs/cgroup/cgroup.controllers')) {
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
  const missing = ['cpu', 'memory', 'pids'].filter((name) => !existsSync(`/sys/fs/cgroup/${name}`));
  if (missing.length === 0) return { name: 'cgroups', verdict: 'ok', text: 'v1 with cpu, memory and pids' };
  return {
    name: 'cgroups',
    verdict: 'fail',
    text: `no ${missing.join(', ')}`,
    remedy: 'mount the cgroup file systems (systemd does), or boot with cgroup_enable=memory',
  };
}

function checkModule(name: string, path: string, why: string): Finding {
  if (existsSync(path)) return { name, verdict: 'ok', text: 'there' };
  return { name, verdict: 'warn', text: `missing: ${why}`, remedy: `modprobe ${name}` };
}

function checkForwarding(): Finding {
  if (read('/proc/sys/net/ipv4/ip_forward') === '1') return { name: 'ip_forward', verdict: 'ok', text: 'on' };
  return {
    name: 'ip_forward',
    verdict: 'warn',
    text: 'off: pods cannot reach other hosts',
    remedy: 'sysctl -w net.ipv4.ip_forward=1',
  };
}

function checkSwap(): Finding {
  const used = read('/proc/swaps').split('\n').length > 1;
  return used
    ? {
        name: 'swap',
        verdict: 'warn',
        text: 'in use: memory limits are less exact',
        remedy: 'swapoff -a, or --fail-swap-on=false knowingly',
      }
    : { name: 'swap', verdict: 'ok', text: 'off' };
}

function checkDisk(directory: string): Finding {
  let place = directory;
  while (!existsSync(place) && place !== '/') place = dirname(place);
  const { bavail, bsize, ffree } = statfsSync(place);
  const freeGib = (bavail * bsize) / 2 ** 30;
  if (freeGib >= 5 && (ffree === 0 || ffree > 50_000))
    return { name: 'disk', verdict: 'ok', text: `${freeGib.toFixed(0)} GiB free at ${place}` };
  return {
    name: 'disk',
    verdict: freeGib < 1 ? 'fail' : 'warn',
    text: `${freeGib.toFixed(1)} GiB and ${ffree} inodes free at ${place}`,
    remedy: 'free some, or choose another --data-dir',
  };
}

function checkTime(): Finding {
  if (systemClock.now() < Date.parse('2026-01-01T00:00:00Z'))
    return {
      name: 'clock',
      verdict: 'fail',
      text: `the host believes it is ${new Date(systemClock.now()).toISOString()}`,
      remedy: 'set the time (timedatectl set-ntp true): certificates are not valid yet',
    };
  return { name: 'clock', verdict: 'ok', text: new Date(systemClock.now()).toISOString() };
}

function checkHostName(): Finding {
  const name = hostname().toLowerCase();
  if (/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(name) && name !== 'localhost')
    return { name: 'host name', verdict: 'ok', text: name };
  return {
    name: 'host name',
    verdict: 'fail',
    text: `${quoteText(name)} cannot be the name of a node`,
    remedy: 'hostnamectl set-hostname NAME, or --hostname-override',
  };
}

function socketAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(socketPath);
    socket.setTimeout(1000, () => socket.destroy());
    socket.once('connect', () => {
      socket.destroy();
      resolve(true);
    });
    socket.once('error', () => resolve(false));
    socket.once('close', () => resolve(false));
  });
}

function dockerAnswers(socketPath: string): Promise<boolean> {
  return new Promise((resolve) => {
    const ping = request({ socketPath, path: '/_ping', timeout: 2000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.on('timeout', () => ping.destroy());
    ping.on('error', () => resolve(false));
    ping.end();
  });
}

async function checkRuntime(): Promise<Finding> {
  const found: string[] = [];
  for (const path of ['/run/containerd/containerd.sock', '/run/crio/crio.sock'])
    if (existsSync(path) && (await socketAnswers(path))) found.push(path);
  for (const path of ['/var/run/docker.sock', '/run/podman/podman.sock'])
    if (existsSync(path) && (await dockerAnswers(path))) found.push(path);
  if (found.length > 0) return { name: 'container runtime', verdict: 'ok', text: found.join(', ') };
  return {
    name: 'container runtime',
    verdict: 'fail',
    text: 'none answers',
    remedy: 'apt-get install docker.io (or containerd with CNI plugins), and start it',
  };
}

function checkPort(port: number): Promise<Finding> {
  const name = `port ${port}`;
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) =>
      resolve({
        name,
        verdict: 'warn',
        text: error.code === 'EADDRINUSE' ? 'in use (by orchlet itself, if it runs)' : error.message,
        remedy: `see who: ss -ltnp 'sport = :${port}'`,
      }),
    );
    server.listen(port, '0.0.0.0', () => server.close(() => resolve({ name, verdict: 'ok', text: 'free' })));
  });
}

function checkTools(): Finding {
  const missing = ['mount', 'umount', 'nsenter', 'iptables'].filter((tool) => !has(tool));
  if (missing.length === 0) return { name: 'tools', verdict: 'ok', text: 'mount, nsenter and iptables are there' };
  return {
    name: 'tools',
    verdict: 'warn',
    text: `missing: ${missing.join(', ')}`,
    remedy: 'apt-get install mount util-linux iptables',
  };
}

const SIGNS: Readonly<Record<Verdict, string>> = { ok: '✓', warn: '!', fail: '✗' };

/** Describes the host for a reader of the report elsewhere. */
async function describeHost(): Promise<Finding> {
  const { default: systeminformation } = await import('systeminformation');
  const { osInfo, cpu, mem } = systeminformation;
  const [system, processor, memory] = await Promise.all([osInfo(), cpu(), mem()]);
  const gib = (memory.total / 2 ** 30).toFixed(0);
  return {
    name: 'host',
    verdict: 'ok',
    text: `${system.distro} ${system.release}, kernel ${system.kernel}, ${processor.cores} processors, ${gib} GiB`,
  };
}

function textOf(findings: readonly Finding[]): string {
  const width = Math.max(...findings.map(({ name }) => name.length));
  const lines = findings.flatMap(({ name, verdict, text, remedy }) => [
    `${SIGNS[verdict]} ${name.padEnd(width)}  ${text}`,
    ...(remedy === undefined ? [] : [`  ${' '.repeat(width)}  -> ${remedy}`]),
  ]);
  return `${lines.join('\n')}\n`;
}

export const doctor: Command = {
  name: 'doctor',
  summary: 'check this host, with remedies',
  description:
    'Checks what orchlet needs of this host and names a remedy where something is missing. Changes nothing. With --data it examines the database of a control plane that is stopped instead: what is damaged, and what can still be read, which --export writes as a backup. Exits with 1 when a check fails or the database is damaged.',
  flags,
  examples: [
    'orchlet doctor',
    'orchlet doctor --output json',
    'orchlet doctor --data --data-dir /var/lib/orchlet --export /root/salvaged.tgz',
  ],
  async run(parsed, io) {
    if (parsed.values['data'] === true) {
      const findings = findingsOf(
        await examineData(resolve(String(parsed.values['dataDir'])), String(parsed.values['export'])),
      );
      return report(findings, parsed, io);
    }
    if (parsed.values['export'] !== '') throw new UsageError('--export goes with --data');
    const findings: Finding[] = [
      await describeHost(),
      checkUser(),
      checkHostName(),
      checkTime(),
      checkCgroups(),
      checkModule('overlay', '/sys/module/overlay', 'containers take much more disk'),
      checkModule('br_netfilter', '/proc/sys/net/bridge', 'network policies and services may not see bridged packets'),
      checkForwarding(),
      checkSwap(),
      checkDisk(String(parsed.values['dataDir'])),
      checkTools(),
      await checkRuntime(),
      ...(await Promise.all((parsed.values['ports'] as readonly string[]).map((port) => checkPort(Number(port))))),
    ];
    return report(findings, parsed, io);
  },
};

function findingsOf({ records, lastRevision, damage, exported }: ExaminedData): readonly Finding[] {
  const name = 'database';
  const readable = `${records} records can be read, the newest has revision ${lastRevision}`;
  const remedy = exported === undefined ? 'restore a backup, or write what can be read with --export FILE' : undefined;
  return [
    ...damage.map((text) => ({ name, verdict: 'fail' as const, text })),
    {
      name,
      verdict: 'ok',
      text: damage.length === 0 ? `no damage was found; ${readable}` : readable,
      ...(damage.length > 0 && remedy !== undefined ? { remedy } : {}),
    },
    ...(exported === undefined
      ? []
      : [
          {
            name: 'export',
            verdict: 'ok' as const,
            text: `${exported.file} holds ${exported.objects} objects; it was restored into memory as a trial`,
            remedy: `orchlet restore ${exported.file}`,
          },
        ]),
  ];
}

function report(findings: readonly Finding[], parsed: ParsedFlags<FlagTable>, io: CommandIo): number {
  io.stdout.write(parsed.values['output'] === 'json' ? `${stringifyJson(findings, 2)}\n` : textOf(findings));
  return findings.some((finding) => finding.verdict === 'fail') ? 1 : 0;
}
