/** `orchlet doctor` checks the host, or with `--data` a database, and names a remedy where something is missing. */
import { stringifyJson } from '../../api/codec/json.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { existsSync } from 'node:fs';
import { createServer } from 'node:net';
import { join, resolve } from 'node:path';
import { flag, type FlagTable, type ParsedFlags, UsageError } from '../../api/component/flags.ts';
import { AGENT_PID_FILE, agentDirectory } from '../host/agent-process.ts';
import { readClusterFacts, withClusterOfHost } from '../doctor/cluster-facts.ts';
import type { Command } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import { checkHost, type Finding, localHost, type Verdict } from '../doctor/host-checks.ts';
import { examineData, type ExaminedData } from '../doctor/examine-data.ts';
import type { CommandIo } from '../command-line/io.ts';
import { apiServerFinding, checkNetwork } from '../doctor/network-checks.ts';
import { hostProbes } from '../doctor/network-probes.ts';
import { checkPodNetwork, podNetworkHost } from '../doctor/pod-network-checks.ts';
import { HiddenDirectoryError } from '../host/owner-rights.ts';
import { runningProcess } from '../host/processes.ts';
import { checkManifests } from '../doctor/manifest-checks.ts';
import { checkLocalVolumes } from '../doctor/volume-checks.ts';
import { STORAGE_FILE } from '../../controlplane/storage/backup/backup.ts';
import { hostFolderLimits } from '../../agent/host/project-quota.ts';
import {
  dockerAnswers,
  KNOWN_CRI_SOCKETS,
  KNOWN_DOCKER_SOCKETS,
  socketAnswers,
} from '../../agent/runtime/known-sockets.ts';

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
  network: flag({
    name: 'network',
    type: 'boolean',
    default: true,
    group: 'Network',
    help: 'Send packets to the API server, other nodes, a pod of each, a service and the name server, if this host has joined a cluster.',
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

async function checkRuntime(): Promise<Finding> {
  const found: string[] = [];
  for (const path of KNOWN_CRI_SOCKETS) if (await socketAnswers(path)) found.push(path);
  for (const path of KNOWN_DOCKER_SOCKETS) if (await dockerAnswers(path)) found.push(path);
  if (found.length > 0) return { name: 'container runtime', verdict: 'ok', text: found.join(', ') };
  return {
    name: 'container runtime',
    verdict: 'fail',
    text: 'none answers',
    remedy: 'apt-get install docker.io (or containerd with CNI plugins), and start it',
  };
}

/** Checks whether a port is free. While orchlet runs, a port in use is assumed to be its own, and the finding is `ok`. */
function checkPort(port: number, { isRunning }: { readonly isRunning: boolean }): Promise<Finding> {
  const name = `port ${port}`;
  return new Promise((resolve) => {
    const server = createServer();
    server.once('error', (error: NodeJS.ErrnoException) => {
      const isUsed = error.code === 'EADDRINUSE';
      if (isUsed && isRunning) resolve({ name, verdict: 'ok', text: 'in use, and orchlet runs' });
      else {
        const remedy = `see who: ss -ltnp 'sport = :${port}'`;
        resolve({ name, verdict: 'warn', text: isUsed ? 'in use, and orchlet does not run' : error.message, remedy });
      }
    });
    server.listen(port, '0.0.0.0', () => server.close(() => resolve({ name, verdict: 'ok', text: 'free' })));
  });
}

const SIGNS: Readonly<Record<Verdict, string>> = { ok: '✓', warn: '!', fail: '✗' };

/** Describes the host, for a person to whom the report is sent. */
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
  description:
    'Checks what orchlet needs of this host and names a remedy where something is missing. Where the host has joined a cluster, packets are sent to the API server, to other nodes and their pods, to a service and to the name server. Changes nothing. With --data it examines the database of a control plane that is stopped instead: what is damaged, and what can still be read, which --export writes as a backup. Exits with 1 when a check fails or the database is damaged.',
  flags,
  examples: [
    'orchlet doctor',
    'orchlet doctor --output json',
    'orchlet doctor --data --data-dir /var/lib/orchlet --export /root/salvaged.tgz',
  ],
  async run(parsed, io) {
    if (parsed.values['data'] === true) {
      const findings = findingsOf(
        await examineData(resolve(String(parsed.values['dataDir'])), String(parsed.values['export']), io),
      );
      return report(findings, parsed, io);
    }
    if (parsed.values['export'] !== '') throw new UsageError('--export goes with --data');
    const dataDirectory = resolve(String(parsed.values['dataDir']));
    const rootDirectory = await agentRoot(dataDirectory);
    const isRunning = await runs(dataDirectory, rootDirectory);
    const findings: Finding[] = [
      await describeHost(),
      ...checkHost(localHost(io.clock), String(parsed.values['dataDir'])),
      await checkRuntime(),
      ...(await checkPodNetwork(podNetworkHost())),
      await checkLocalVolumes(join(rootDirectory, 'local-volumes'), hostFolderLimits),
      ...(await checkManifests(dataDirectory)),
      ...(parsed.values['network'] === true ? await checkCluster(dataDirectory, rootDirectory, io) : []),
      ...(await Promise.all(
        (parsed.values['ports'] as readonly string[]).map((port) => checkPort(Number(port), { isRunning })),
      )),
    ];
    return report(findings, parsed, io);
  },
};

/** Whether a control plane or an agent of this host runs. */
async function runs(dataDirectory: string, rootDirectory: string): Promise<boolean> {
  const files = [join(dataDirectory, `${STORAGE_FILE}.pid`), join(rootDirectory, AGENT_PID_FILE)];
  const found = await Promise.all(files.map((file) => runningProcess(file)));
  return found.some((pid) => pid !== undefined);
}

/** Returns the root directory of the agent of this host. */
async function agentRoot(dataDirectory: string): Promise<string> {
  const usual = join(dataDirectory, 'agent');
  return existsSync(usual) ? usual : agentDirectory();
}

/** Checks the network of the cluster of this host. Returns no findings if this host has no kubeconfig of a cluster. */
async function checkCluster(dataDirectory: string, rootDirectory: string, io: CommandIo): Promise<readonly Finding[]> {
  let server = '';
  try {
    const facts = await withClusterOfHost({ data: dataDirectory, root: rootDirectory }, io, (cluster) => {
      server = cluster.server;
      return readClusterFacts(cluster, rootDirectory);
    });
    return facts === undefined ? [] : await checkNetwork(facts, hostProbes);
  } catch (error) {
    if (error instanceof HiddenDirectoryError) throw error;
    return [apiServerFinding(server, error)];
  }
}

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
