/** `orchlet agent explain-eviction` shows what the agent would evict, now or under a supposed pressure, and why. */
import { stringifyJson } from '../../api/codec/json.ts';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import { flag, type FlagTable, type ParsedFlags } from '../../api/component/flags.ts';
import type { EvictionReport } from '../../agent/resources/eviction/explain.ts';
import { SIGNALS } from '../../agent/resources/eviction/thresholds.ts';
import { hostName } from '../../agent/host/host-facts.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { accessFlags, withCluster } from '../cluster/cluster-access.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import type { CommandIo } from '../command-line/io.ts';
import { formatTable } from '../command-line/table.ts';

const flags = {
  ...accessFlags,
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
    help: 'Address of the agent, such as https://127.0.0.1:10250, to call it without an API server.',
    check: (value) =>
      value === '' || /^https:\/\/[^/]+\/?$/.test(value) ? undefined : 'must be of the form https://HOST:PORT',
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
  description:
    'Shows the eviction signals of a node, their thresholds, and in which order pods would be evicted: for now, or as if a signal were below its threshold. Nothing is evicted.',
  flags,
  examples: [
    'orchlet agent explain-eviction',
    'orchlet agent explain-eviction --signal memory.available',
    'orchlet agent explain-eviction --server https://127.0.0.1:10250 --output json',
  ],
  async run(parsed, io) {
    const value = (name: keyof typeof flags): string => String(parsed.values[name]);
    const query = value('signal') === '' ? '' : `?signal=${encodeURIComponent(value('signal'))}`;
    const path = `/eviction/explain${query}`;
    const answer =
      value('server') === '' ? await throughApiServer(parsed, io, path) : await fromAgent(value('server'), path);
    const report = JSON.parse(answer) as EvictionReport;
    io.stdout.write(value('output') === 'json' ? `${stringifyJson(report, 2)}\n` : formatReport(report));
    return 0;
  },
};

async function throughApiServer(parsed: ParsedFlags<FlagTable>, io: CommandIo, path: string): Promise<string> {
  const node = String(parsed.values['node']) || hostName().toLowerCase();
  return await withCluster(parsed, io, async ({ client }) => {
    const target = `/api/v1/nodes/${encodeURIComponent(node)}/proxy${path}`;
    const { body } = await client.raw({ method: 'GET', path: target }).catch((error: unknown) => {
      if (!isNotFound(error)) throw error;
      throw new CommandError(`there is no node ${quoteText(node)}: name one of 'kubectl get nodes' with --node`, {
        cause: error,
      });
    });
    return await text(body);
  });
}

/**
 * Reads the path from the agent. The certificate is not verified: the agent's may be self-signed, and the person who runs the
 * command names its address.
 */
function fromAgent(server: string, path: string): Promise<string> {
  const { hostname, port } = new URL(server);
  return new Promise((resolve, reject) => {
    const target = { host: hostname.replace(/^\[|\]$/g, ''), port, path, rejectUnauthorized: false };
    const asked = request(target, (response) => {
      text(response).then((answer) => {
        if (response.statusCode === 200) resolve(answer);
        else reject(new CommandError(`the agent answered ${response.statusCode ?? 0}: ${answer.trim()}`));
      }, reject);
    });
    asked.on('error', (error) =>
      reject(new CommandError(`the agent at ${server} does not answer: ${error.message}`, { cause: error })),
    );
    asked.end();
  });
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
  const lines = [formatTable(['SIGNAL', 'AVAILABLE', 'CAPACITY', 'THRESHOLDS'], signals)];
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
    `\n${formatTable(
      ['POD', 'VERDICT', 'PRIORITY', 'USAGE', 'REQUEST', 'WHY'],
      report.ranking.map((row) => [row.pod, row.verdict, String(row.priority), row.usage, row.request, row.why]),
    )}`,
  );
  const [first] = report.ranking.filter((row) => row.message !== undefined);
  if (first?.message !== undefined) lines.push(`\nIts status would show: ${first.message.trim()}\n`);
  return lines.join('');
}
