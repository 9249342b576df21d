/** `orchlet token create|list|delete`: bootstrap tokens, as secrets of the cluster. */
import { createHash, randomBytes, X509Certificate } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { flag, type FlagTable, type ParsedFlags } from '../../api/component/flags.ts';
import { formatDuration } from '../../api/component/duration.ts';
import { systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/machinery/http-client.ts';
import { loadKubeconfig, serverAccess } from '../../api/machinery/kubeconfig.ts';
import { configMaps, secrets } from '../../api/machinery/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { type Command, CommandError } from '../command.ts';

const TOKEN = /^([a-z0-9]{6})\.([a-z0-9]{16})$/;
const NAMESPACE = 'kube-system';
const TYPE = 'bootstrap.kubernetes.io/token';

export const access = {
  kubeconfig: flag({
    name: 'kubeconfig',
    type: 'string',
    default: '',
    group: 'Access',
    help: 'Kubeconfig of an administrator; that of the data directory, KUBECONFIG or ~/.kube/config otherwise.',
  }),
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet',
    group: 'Access',
    help: 'Data directory of the control plane on this host.',
  }),
} as const;

async function connect(parsed: ParsedFlags<FlagTable>): Promise<{ client: HttpClient; server: string; ca: string }> {
  const given = String(parsed.values['kubeconfig']);
  const local = join(String(parsed.values['dataDir']), 'admin.kubeconfig');
  const path = given === '' && process.env['KUBECONFIG'] === undefined && existsSync(local) ? local : given;
  const config = await loadKubeconfig(path === '' ? undefined : path);
  const reached = await serverAccess(config, { clock: systemClock, interactive: process.stdin.isTTY });
  return { client: new HttpClient({ ...reached, clock: systemClock }), server: reached.server, ca: reached.ca ?? '' };
}

export async function withClient(
  parsed: ParsedFlags<FlagTable>,
  work: (reached: { client: HttpClient; server: string; ca: string }) => Promise<void>,
): Promise<number> {
  const reached = await connect(parsed);
  try {
    await work(reached);
    return 0;
  } finally {
    await reached.client.close();
  }
}

/** Letters and digits without bias. */
function randomText(length: number): string {
  const alphabet = 'abcdefghijklmnopqrstuvwxyz0123456789';
  let text = '';
  while (text.length < length) {
    for (const byte of randomBytes(length * 2))
      if (byte < 252 && text.length < length) text += alphabet[byte % 36] ?? '';
  }
  return text;
}

const encode = (text: string): string => Buffer.from(text).toString('base64');
const decode = (text: unknown): string => (typeof text === 'string' ? Buffer.from(text, 'base64').toString() : '');

const createFlags = {
  ...access,
  ttl: flag({
    name: 'ttl',
    type: 'duration',
    default: 24 * 3_600_000,
    group: 'Token',
    help: 'How long the token is good for. 0 is for ever.',
  }),
  description: flag({
    name: 'description',
    type: 'string',
    default: '',
    group: 'Token',
    help: 'What the token is for.',
  }),
  groups: flag({
    name: 'groups',
    type: 'list',
    default: ['system:bootstrappers:kubeadm:default-node-token'],
    group: 'Token',
    help: 'Groups of whoever shows the token; each begins with system:bootstrappers:.',
  }),
  usages: flag({
    name: 'usages',
    type: 'list',
    default: ['signing', 'authentication'],
    group: 'Token',
    help: 'What the token may be used for: signing, authentication.',
  }),
  printJoinCommand: flag({
    name: 'print-join-command',
    type: 'boolean',
    default: false,
    group: 'Token',
    help: 'Print the command that joins a node instead of the token.',
  }),
} as const;

export const tokenCreate: Command = {
  name: 'token create',
  summary: 'make a bootstrap token, for nodes that join',
  arguments: '[TOKEN]',
  description: 'Makes a bootstrap token: a short-lived secret with which a new node asks for its first certificate.',
  flags: createFlags,
  examples: ['orchlet token create --ttl 2h --description "rack 4"', 'orchlet token create --print-join-command'],
  run(parsed) {
    const token = parsed.arguments[0] ?? `${randomText(6)}.${randomText(16)}`;
    const [, id, secret] = TOKEN.exec(token) ?? [];
    if (id === undefined || secret === undefined)
      throw new CommandError(`the token ${JSON.stringify(token)} is not of the form abcdef.0123456789abcdef`);
    const groups = parsed.values['groups'] as readonly string[];
    for (const group of groups) {
      if (!/^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$/.test(group))
        throw new CommandError(`the group ${JSON.stringify(group)} must begin with system:bootstrappers:`);
    }
    const usages = parsed.values['usages'] as readonly string[];
    for (const usage of usages)
      if (usage !== 'signing' && usage !== 'authentication')
        throw new CommandError(`unknown usage ${JSON.stringify(usage)}: signing and authentication are known`);
    const ttlMs = Number(parsed.values['ttl']);
    const data: Record<string, string> = { 'token-id': encode(id), 'token-secret': encode(secret) };
    for (const usage of usages) data[`usage-bootstrap-${usage}`] = encode('true');
    if (groups.length > 0) data['auth-extra-groups'] = encode(groups.join(','));
    if (parsed.values['description'] !== '') data['description'] = encode(String(parsed.values['description']));
    if (ttlMs > 0)
      data['expiration'] = encode(new Date(systemClock.now() + ttlMs).toISOString().replace(/\.\d+Z$/, 'Z'));
    return withClient(parsed, async ({ client, server, ca }) => {
      await client.create(secrets, NAMESPACE, {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: `bootstrap-token-${id}`, namespace: NAMESPACE },
        type: TYPE,
        data,
      });
      if (parsed.values['printJoinCommand'] === true) {
        process.stdout.write(
          `orchlet join ${await announcedServer(client, server)} --token ${token} --discovery-token-ca-cert-hash ${caHash(ca)}\n`,
        );
      } else process.stdout.write(`${token}\n`);
    });
  },
};

/** Where other hosts reach the API: as `cluster-info` says; the kubeconfig may name loopback. */
async function announcedServer(client: HttpClient, otherwise: string): Promise<string> {
  const info = await client.get(configMaps, 'kube-public', 'cluster-info').catch((error: unknown) => {
    if (isNotFound(error)) return undefined;
    throw error;
  });
  const text = (info?.['data'] as Record<string, string> | undefined)?.['kubeconfig'] ?? '';
  return /^\s*server: (\S+)$/m.exec(text)?.[1] ?? otherwise;
}

/** SHA-256 of the authority's public key, as kubeadm's flag has it. */
export function caHash(caPem: string): string {
  const spki = new X509Certificate(caPem).publicKey.export({ type: 'spki', format: 'der' });
  return `sha256:${createHash('sha256').update(spki).digest('hex')}`;
}

interface TokenRow {
  readonly token: string;
  readonly expires: string;
  readonly ttl: string;
  readonly usages: string;
  readonly description: string;
  readonly groups: string;
}

function rowOf(secret: KubeObject): TokenRow {
  const data = (secret['data'] ?? {}) as Record<string, string>;
  const expires = decode(data['expiration']);
  const leftMs = Date.parse(expires) - systemClock.now();
  return {
    token: `${decode(data['token-id'])}.${decode(data['token-secret'])}`,
    expires: expires === '' ? '<never>' : expires,
    ttl: expires === '' ? '<forever>' : leftMs <= 0 ? '<expired>' : formatDuration(Math.round(leftMs / 1000) * 1000),
    usages: ['authentication', 'signing']
      .filter((usage) => decode(data[`usage-bootstrap-${usage}`]) === 'true')
      .join(','),
    description: decode(data['description']) || '<none>',
    groups: decode(data['auth-extra-groups']) || '<none>',
  };
}

export const tokenList: Command = {
  name: 'token list',
  summary: 'show the bootstrap tokens',
  description: 'Shows the bootstrap tokens of the cluster with what is left of their life.',
  flags: access,
  examples: ['orchlet token list'],
  run: (parsed) =>
    withClient(parsed, async ({ client }) => {
      const found = await client.list(secrets, { namespace: NAMESPACE, fieldSelector: `type=${TYPE}` });
      const header: TokenRow = {
        token: 'TOKEN',
        ttl: 'TTL',
        expires: 'EXPIRES',
        usages: 'USAGES',
        description: 'DESCRIPTION',
        groups: 'EXTRA GROUPS',
      };
      const rows = [header, ...found.items.map(rowOf)];
      const columns = ['token', 'ttl', 'expires', 'usages', 'description', 'groups'] as const;
      const widths = columns.map((column) => Math.max(...rows.map((row) => row[column].length)));
      for (const row of rows)
        process.stdout.write(
          `${columns
            .map((column, index) => row[column].padEnd(widths[index] ?? 0))
            .join('   ')
            .trimEnd()}\n`,
        );
    }),
};

export const tokenDelete: Command = {
  name: 'token delete',
  summary: 'delete bootstrap tokens',
  arguments: 'TOKEN…',
  description: 'Deletes bootstrap tokens, by their whole text or by their id (the part before the dot).',
  flags: access,
  examples: ['orchlet token delete abcdef'],
  run(parsed) {
    if (parsed.arguments.length === 0) throw new CommandError('name at least one token, or its id');
    const ids = parsed.arguments.map((token) => {
      const id = token.split('.')[0] ?? '';
      if (!/^[a-z0-9]{6}$/.test(id))
        throw new CommandError(`${JSON.stringify(token)} is neither a token nor the id of one`);
      return id;
    });
    return withClient(parsed, async ({ client }) => {
      for (const id of ids) {
        try {
          await client.delete(secrets, NAMESPACE, `bootstrap-token-${id}`);
          process.stdout.write(`bootstrap token ${id} deleted\n`);
        } catch (error) {
          if (isNotFound(error))
            throw new CommandError(`there is no bootstrap token ${id}: 'orchlet token list' shows those that are`, {
              cause: error,
            });
          throw error;
        }
      }
    });
  },
};
