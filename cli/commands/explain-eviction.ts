/** `orchlet agent explain-eviction`: what the agent would evict, now or under a supposed pressure, and why. */
import { existsSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { flag, type FlagTable, type ParsedFlags } from '../../api/component/flags.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/machinery/http-client.ts';
import { loadKubeconfig, serverAccess } from '../../api/machinery/kubeconfig.ts';
import type { EvictionReport } from '../../agent/eviction/explain.ts';
import { SIGNALS } from '../../agent/eviction/thresholds.ts';
import { hostName } from '../../agent/nodestatus/host-facts.ts';
import { type Command, CommandError } from '../command.ts';

const flags = {
  kubeconfig: flag({
    name: 'kubeconfig',
    type: 'string',
    default: '',
    group: 'Access',
    help: 'Kubeconfig of an administrator: the agent is asked through the API server. That of the data directory or KUBECONFIG otherwise.',
  }),
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet',
    group: 'Access',
    help: 'Data directory of the control plane on this host.',
  }),
  node: flag({
    name: 'node',
    type: 'string',
    default: '',
    group: 'Access',
    help: "Name of the node; this host's otherwise.",
  }),
  server: flag({
    name: 'server',
    type: 'string',
    default: '',
    group: 'Access',
    help: 'Address of the agent, such as https://127.0.0.1:10250: it is asked itself, where there is no API server.',
  }),
  signal: flag({
    name: 'signal',
    type: 'string',
    default: '',
    choices: ['', ...SIGNALS],
    group: 'Question',
    help: 'As if this signal were below its threshold.',
  }),
  output: flag({
    name: 'output',
    type: 'string',
    default: 'text',
    choices: ['text', 'json'],
    group: 'Question',
    help: 'Form of the answer.',
  }),
} as const;

export const explainEviction: Command = {
  name: 'agent explain-eviction',
  summary: 'show what the agent would evict, and why',
  description:
    'Shows the eviction signals of a node, their thresholds, and in which order pods would be evicted: for now, or as if a signal were below its threshold. Nothing is evicted.',
  flags,
  examples: [
    'orchlet agent explain-eviction',
    'orchlet agent explain-eviction --signal memory.available',
    'orchlet agent explain-eviction --server https://127.0.0.1:10250 --output json',
  ],
  async run(parsed) {
    const value = (name: keyof typeof flags): string => String(parsed.values[name]);
    const query = value('signal') === '' ? '' : `?signal=${encodeURIComponent(value('signal'))}`;
    const path = `/eviction/explain${query}`;
    const text = value('server') === '' ? await throughApiServer(parsed, path) : await fromAgent(value('server'), path);
    const report = JSON.parse(text) as EvictionReport;
    process.stdout.write(value('output') === 'json' ? `${JSON.stringify(report, null, 2)}\n` : formatReport(report));
    return 0;
  },
};

async function throughApiServer(parsed: ParsedFlags<FlagTable>, path: string): Promise<string> {
  const given = String(parsed.values['kubeconfig']);
  const local = join(String(parsed.values['dataDir']), 'admin.kubeconfig');
  const file = given === '' && process.env['KUBECONFIG'] === undefined && existsSync(local) ? local : given;
  const node = String(parsed.values['node']) || hostName().toLowerCase();
  const access = await serverAccess(await loadKubeconfig(file === '' ? undefined : file), {
    clock: systemClock,
    interactive: process.stdin.isTTY,
  });
  const client = new HttpClient({ ...access, clock: systemClock });
  try {
    const { body } = await client.raw({
      method: 'GET',
      path: `/api/v1/nodes/${encodeURIComponent(node)}/proxy${path}`,
    });
    const chunks: Buffer[] = [];
    for await (const chunk of body) chunks.push(Buffer.from(chunk as Uint8Array));
    return Buffer.concat(chunks).toString('utf8');
  } finally {
    await client.close();
  }
}

/** Its certificate may be its own: who asks on the node's own address believes it. */
function fromAgent(server: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(new URL(path, server), { rejectUnauthorized: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString('utf8');
        if (response.statusCode === 200) resolve(text);
        else reject(new CommandError(`the agent answered ${response.statusCode ?? 0}: ${text.trim()}`));
      });
    });
    asked.on('error', (error) =>
      reject(new CommandError(`the agent at ${server} does not answer: ${error.message}`, { cause: error })),
    );
    asked.end();
  });
}

function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_cell, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('   ')
          .trimEnd()}\n`,
    )
    .join('');
}

function formatReport(report: EvictionReport): string {
  const signals = report.signals.map(({ signal, available, capacity, thresholds }) => [
    signal,
    available,
    capacity,
    thresholds
      .map(
        ({ value, kind, gracePeriodSeconds, met }) =>
          `${value}${kind === 'soft' ? ` for ${gracePeriodSeconds}s` : ''}${met ? ' CROSSED' : ''}`,
      )
      .join(', ') || '-',
  ]);
  const lines = [table([['SIGNAL', 'AVAILABLE', 'CAPACITY', 'THRESHOLDS'], ...signals])];
  lines.push(`\nConditions: ${report.conditions.length === 0 ? 'none' : report.conditions.join(', ')}\n`);
  const { signal, resource, condition, supposed } = report.pressure;
  if (signal === '') {
    lines.push('The node is short of nothing: no pod is evicted. --signal supposes a pressure.\n');
    return lines.join('');
  }
  lines.push(`${supposed ? 'Supposed' : 'Pressure'}: ${signal} (${resource}, ${condition})\n`);
  for (const step of report.nodeLevel) lines.push(`First the node would ${step}.\n`);
  if (report.ranking.length === 0) return `${lines.join('')}There is no pod to evict.\n`;
  lines.push(
    `\n${table([['POD', 'VERDICT', 'PRIORITY', 'USAGE', 'REQUEST', 'WHY'], ...report.ranking.map((row) => [row.pod, row.verdict, String(row.priority), row.usage, row.request, row.why])])}`,
  );
  const [first] = report.ranking.filter((row) => row.message !== undefined);
  if (first?.message !== undefined) lines.push(`\nIts status would say: ${first.message.trim()}\n`);
  return lines.join('');
}
