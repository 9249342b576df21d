/** `orchlet token create|list|delete` manages bootstrap tokens, as secrets of the cluster. */
import { stringifyJson } from '../../api/codec/json.ts';
import { quoteText } from '../../api/meta/quote.ts';
import { flag, UsageError } from '../../api/component/flags.ts';
import { formatDuration } from '../../api/component/duration.ts';
import type { HttpClient } from '../../api/client/http-client.ts';
import { configMaps, secrets } from '../../api/client/resources.ts';
import type { KubeObject } from '../../api/meta/object.ts';
import { isNotFound } from '../../api/meta/status-error.ts';
import { certificateKeyHash } from '../../api/pki/public-key-hash.ts';
import {
  formatBootstrapToken,
  newBootstrapToken,
  parseBootstrapToken,
  secretNameOf,
  TOKEN_NAMESPACE,
  tokenSecret,
} from '../cluster/bootstrap-token.ts';
import { accessFlags, withCluster } from '../cluster/cluster-access.ts';
import { embeddedEtcdOf } from '../cluster/embedded-etcd.ts';
import { bundleFlags, type BundleValues, publishBundle } from '../cluster/published-bundle.ts';
import { MAX_LIFE_MS, readBundle } from '../cluster/control-plane-bundle.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';
import { formatTable } from '../command-line/table.ts';
import { BOOTSTRAP_TOKEN_TYPE } from '../../controlplane/security/authentication/bootstrap-token.ts';
import { CLUSTER_INFO, PUBLIC_NAMESPACE } from '../../api/meta/system-namespaces.ts';

const decode = (text: unknown): string => (typeof text === 'string' ? Buffer.from(text, 'base64').toString() : '');

const createFlags = {
  ...accessFlags,
  ttl: flag({
    name: 'ttl',
    type: 'duration',
    default: 24 * 3_600_000,
    group: 'Token',
    help: 'How long the token is valid. 0: it does not expire.',
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
    help: 'Groups of a client with this token; each begins with system:bootstrappers:.',
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
  ...bundleFlags,
} as const;

export const tokenCreate: Command = {
  arguments: { usage: '[TOKEN]', least: 0, most: 1 },
  description: 'Creates a bootstrap token: a short-lived secret with which a new node requests its first certificate.',
  flags: createFlags,
  examples: [
    'orchlet token create --ttl 2h --description "rack 4"',
    'orchlet token create --print-join-command',
    'orchlet token create --control-plane --etcd-servers https://10.0.0.1:2379',
  ],
  run(parsed, io) {
    io.hideArguments('orchlet token create');
    const [given] = parsed.arguments;
    const token = given === undefined ? newBootstrapToken() : parseBootstrapToken(given);
    if (token === undefined)
      throw new UsageError(`the token ${stringifyJson(given)} is not of the form abcdef.0123456789abcdef`);
    const groups = parsed.values['groups'] as readonly string[];
    for (const group of groups) {
      if (!/^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$/.test(group))
        throw new UsageError(`the group ${quoteText(group)} must begin with system:bootstrappers:`);
    }
    const usages = parsed.values['usages'] as readonly string[];
    for (const usage of usages)
      if (usage !== 'signing' && usage !== 'authentication')
        throw new UsageError(`unknown usage ${quoteText(usage)}: signing and authentication are known`);
    const bundle = parsed.values as unknown as BundleValues;
    const givenMs = Number(parsed.values['ttl']);
    // A token that gives access to the keys of the cluster is not valid for longer.
    const ttlMs = bundle.controlPlane ? Math.min(givenMs > 0 ? givenMs : Infinity, MAX_LIFE_MS) : givenMs;
    const secret = tokenSecret(token, {
      groups,
      usages,
      description: String(parsed.values['description']),
      expiresAtMs: ttlMs > 0 ? io.clock.now() + ttlMs : undefined,
    });
    return withCluster(parsed, io, async ({ client, server, ca }) => {
      const files = bundle.controlPlane
        ? await withRightsOfOwner(bundle.dataDir, io, async (rights) =>
            readBundle(bundle.dataDir, bundle, await embeddedEtcdOf(bundle.dataDir), rights),
          )
        : undefined;
      const created = await client.create(secrets, TOKEN_NAMESPACE, secret);
      const text = formatBootstrapToken(token);
      const joins = async (): Promise<string> =>
        `orchlet join ${await announcedServer(client, server)} --token ${text} --discovery-token-ca-cert-hash ${certificateKeyHash(ca)}`;
      if (files !== undefined) {
        const key = await publishBundle(client, created, files);
        io.stdout.write(`${await joins()} --control-plane --certificate-key ${key}\n`);
        io.stderr.write(
          `Whoever has this line can read the keys of the cluster, for ${formatDuration(ttlMs)}. It is not shown again. With the token and the key as two lines of a file, --token-file keeps them out of the list of processes.\n`,
        );
        return 0;
      }
      io.stdout.write(`${parsed.values['printJoinCommand'] === true ? await joins() : text}\n`);
      return 0;
    });
  },
};

/** A URL that a shell reads as one word: an administrator pastes it into a shell of root. */
const PLAIN_URL = /^https:\/\/[A-Za-z0-9.:[\]-]+$/;

/**
 * Returns the address at which other hosts reach the API, from `cluster-info`; the kubeconfig may name loopback. Returns
 * `otherwise` if there is none, and for a text that is no plain URL, because whoever may edit ConfigMaps of kube-public can
 * write any text there.
 */
async function announcedServer(client: HttpClient, otherwise: string): Promise<string> {
  const info = await client.get(configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO).catch((error: unknown) => {
    if (isNotFound(error)) return undefined;
    throw error;
  });
  const text = (info?.['data'] as Record<string, string> | undefined)?.['kubeconfig'] ?? '';
  const announced = /^\s*server: (\S+)$/m.exec(text)?.[1] ?? '';
  return PLAIN_URL.test(announced) ? announced : otherwise;
}

const HEADER = ['TOKEN', 'TTL', 'EXPIRES', 'USAGES', 'DESCRIPTION', 'EXTRA GROUPS'];

function rowOf(secret: KubeObject, nowMs: number): string[] {
  const data = (secret['data'] ?? {}) as Record<string, string>;
  const expires = decode(data['expiration']);
  const leftMs = Date.parse(expires) - nowMs;
  const ttl =
    expires === '' ? '<forever>' : leftMs <= 0 ? '<expired>' : formatDuration(Math.round(leftMs / 1000) * 1000);
  const usages = ['authentication', 'signing'].filter((usage) => decode(data[`usage-bootstrap-${usage}`]) === 'true');
  return [
    formatBootstrapToken({ id: decode(data['token-id']), secret: decode(data['token-secret']) }),
    ttl,
    expires === '' ? '<never>' : expires,
    usages.join(','),
    decode(data['description']) || '<none>',
    decode(data['auth-extra-groups']) || '<none>',
  ];
}

export const tokenList: Command = {
  description: 'Shows the bootstrap tokens of the cluster and their remaining lifetime.',
  flags: accessFlags,
  examples: ['orchlet token list'],
  run: (parsed, io) =>
    withCluster(parsed, io, async ({ client }) => {
      const found = await client.list(secrets, {
        namespace: TOKEN_NAMESPACE,
        fieldSelector: `type=${BOOTSTRAP_TOKEN_TYPE}`,
      });
      const nowMs = io.clock.now();
      io.stdout.write(
        formatTable(
          HEADER,
          found.items.map((secret) => rowOf(secret, nowMs)),
        ),
      );
      return 0;
    }),
};

export const tokenDelete: Command = {
  arguments: { usage: 'TOKEN…', least: 1, most: Infinity },
  description: 'Deletes bootstrap tokens, by their whole text or by their id (the part before the dot).',
  flags: accessFlags,
  examples: ['orchlet token delete abcdef'],
  run(parsed, io) {
    io.hideArguments('orchlet token delete');
    const ids = parsed.arguments.map((token) => {
      const id = token.split('.')[0] ?? '';
      if (!/^[a-z0-9]{6}$/.test(id)) throw new UsageError(`${quoteText(token)} is neither a token nor the id of one`);
      return id;
    });
    return withCluster(parsed, io, async ({ client }) => {
      for (const id of ids) {
        try {
          await client.delete(secrets, TOKEN_NAMESPACE, secretNameOf(id));
          io.stdout.write(`bootstrap token ${id} deleted\n`);
        } catch (error) {
          if (isNotFound(error))
            throw new CommandError(`there is no bootstrap token ${id}: 'orchlet token list' shows those that are`, {
              cause: error,
            });
          throw error;
        }
      }
      return 0;
    });
  },
};
