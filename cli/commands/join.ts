/** `orchlet join`: makes this host a node of a cluster, or a further control plane. */
import { errorMessage } from '../../api/meta/error-message.ts';
import { readPem } from '../../api/pki/pem.ts';
import { createHmac, timingSafeEqual } from 'node:crypto';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { join as joinPath } from 'node:path';
import { parseYaml } from '../../api/codec/yaml.ts';
import { flag, UsageError } from '../../api/component/flags.ts';
import { printable, quoteText } from '../../api/meta/quote.ts';
import { type Clock, systemClock } from '../../api/machinery/clock.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { newKubeconfig, writeKubeconfig } from '../../api/client/kubeconfig.ts';
import { makeFolder, replaceFile } from '../../api/machinery/replace-file.ts';
import { configMaps } from '../../api/client/resources.ts';
import { CA_BUNDLE_KEY, verifyCaBundle } from '../../api/pki/ca-bundle.ts';
import { certificateKeyHash } from '../../api/pki/public-key-hash.ts';
import { type BootstrapToken, parseBootstrapToken } from '../cluster/bootstrap-token.ts';
import { type Command, CommandError } from '../command-line/command.ts';
import { checkBundle, isBundleKey, writeBundle } from '../cluster/control-plane-bundle.ts';
import { type BundlePlace, fetchBundle } from '../cluster/published-bundle.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';
import { CLUSTER_INFO, PUBLIC_NAMESPACE } from '../../api/meta/system-namespaces.ts';

const UNIT = 'orchlet-agent.service';

const flags = {
  token: flag({
    name: 'token',
    type: 'string',
    default: '',
    group: 'Cluster',
    help: 'Bootstrap token, from orchlet token create on the first host. Other users of this host may see it in the list of processes.',
  }),
  tokenFile: flag({
    name: 'token-file',
    type: 'string',
    default: '',
    group: 'Cluster',
    help: 'File with the bootstrap token, instead of --token, and with the certificate key in its second line, instead of --certificate-key. -: the standard input.',
  }),
  caHash: flag({
    name: 'discovery-token-ca-cert-hash',
    type: 'array',
    default: [],
    group: 'Cluster',
    help: "Hash of the CA's public key, as sha256:HEX. May be repeated.",
  }),
  servers: flag({
    name: 'server',
    type: 'array',
    default: [],
    group: 'Cluster',
    help: 'Further server of the cluster, as https://HOST:PORT. May be repeated. The node uses one at a time, and learns the others from the cluster.',
  }),
  unsafe: flag({
    name: 'discovery-token-unsafe-skip-ca-verification',
    type: 'boolean',
    default: false,
    group: 'Cluster',
    help: "Believe the token's signature alone, without a hash.",
  }),
  controlPlane: flag({
    name: 'control-plane',
    type: 'boolean',
    default: false,
    group: 'Control plane',
    help: 'Make this host a further control plane instead of a node. The token is from orchlet token create --control-plane.',
  }),
  certificateKey: flag({
    name: 'certificate-key',
    type: 'string',
    default: '',
    group: 'Control plane',
    help: 'Key of the bundle with the keys of the cluster.',
  }),
  dataDir: flag({
    name: 'data-dir',
    type: 'string',
    default: '/var/lib/orchlet-controlplane',
    group: 'Control plane',
    help: 'Data directory of the control plane.',
  }),
  configDir: flag({
    name: 'config-dir',
    type: 'string',
    default: '/etc/orchlet',
    group: 'Host',
    help: 'Where the kubeconfigs are written.',
  }),
  nodeName: flag({
    name: 'node-name',
    type: 'string',
    default: '',
    group: 'Host',
    help: 'Name of the node; the host name otherwise.',
  }),
  start: flag({
    name: 'start',
    type: 'boolean',
    default: true,
    group: 'Host',
    help: 'Enable and start the service where systemd runs.',
  }),
} as const;

/** Whether the token signed the content of `cluster-info`. The signature is a detached JWS with HS256. */
function signatureFits(content: string, signature: string, tokenId: string, tokenSecret: string): boolean {
  const [header = '', payload, encodedMac = ''] = signature.split('.');
  if (payload !== '') return false;
  const decoded = Buffer.from(header, 'base64url').toString();
  if (!decoded.includes('"HS256"') || !decoded.includes(`"${tokenId}"`)) return false;
  const expected = createHmac('sha256', tokenSecret)
    .update(`${header}.${Buffer.from(content).toString('base64url')}`)
    .digest();
  const actual = Buffer.from(encodedMac, 'base64url');
  return actual.length === expected.length && timingSafeEqual(actual, expected);
}

function certificateBlocks(pem: string): readonly string[] {
  return readPem(pem).flatMap(({ label, text }) => (label === 'CERTIFICATE' ? text : []));
}

interface Discovered {
  readonly ca: string;
  /** The bundle of a CA rotation, signed by one of its CAs. */
  readonly signedBundle: string;
}

/**
 * Returns the CAs to trust: those whose hash the administrator named, and what one of them signed in a rotation. Without
 * hashes, all are trusted, because the bootstrap token signed them. Returns `undefined` if no CA has one of the hashes.
 */
export function believedCas({ ca, signedBundle }: Discovered, hashes: readonly string[]): string | undefined {
  if (hashes.length === 0) return ca;
  const wanted = hashes.map((hash) => hash.toLowerCase());
  const pinned = certificateBlocks(ca)
    .filter((block) => wanted.includes(certificateKeyHash(block)))
    .join('\n');
  if (pinned === '') return undefined;
  return verifyCaBundle(signedBundle, pinned)?.certificates ?? `${pinned}\n`;
}

class UnreachableError extends CommandError {}

/**
 * The options of the first connection. Another host may answer in place of the cluster, so the time and the size of its
 * response are limited.
 */
const DISCOVERY = { insecureSkipVerify: true, timeoutMs: 30_000, largestResponseBytes: 1 << 20 };

async function discover(
  url: string,
  { id: tokenId, secret: tokenSecret }: BootstrapToken,
  clock: Clock,
): Promise<Discovered> {
  const client = new HttpClient({ server: url, clock, ...DISCOVERY });
  try {
    const found = await client.get(configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO).catch((error: unknown) => {
      throw new UnreachableError(`the cluster's description could not be read from ${url}: ${errorMessage(error)}`, {
        cause: error,
      });
    });
    const data = textsOf(found);
    const kubeconfig = data.get('kubeconfig') ?? '';
    const signature = data.get(`jws-kubeconfig-${tokenId}`);
    if (signature === undefined)
      throw new CommandError(
        `the cluster does not know the token ${tokenId}: it has expired, or may not sign; make one with 'orchlet token create'`,
      );
    if (!signatureFits(kubeconfig, signature, tokenId, tokenSecret))
      throw new CommandError(
        "the cluster's description is not signed with this token: the token is wrong, or another host answers in place of the cluster",
      );
    const parsed = parseYaml(kubeconfig).value as { clusters?: { cluster?: Record<string, string> }[] };
    const cluster = parsed.clusters?.[0]?.cluster ?? {};
    const ca = Buffer.from(cluster['certificate-authority-data'] ?? '', 'base64').toString();
    if (ca === '' || cluster['server'] === undefined)
      throw new CommandError(`cluster-info of ${url} names no server or no CA: restart its control plane`);
    return { ca, signedBundle: data.get(CA_BUNDLE_KEY) ?? '' };
  } finally {
    await client.close();
  }
}

/** Returns the texts in the data of a ConfigMap that nobody has validated. */
function textsOf(configMap: unknown): ReadonlyMap<string, string> {
  const { data } = (configMap ?? {}) as { readonly data?: unknown };
  const entries = typeof data === 'object' && data !== null ? Object.entries(data) : [];
  return new Map(entries.filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
}

/**
 * Returns the first server from which `cluster-info` can be read. Rejects if that `cluster-info` is wrong, or if it can be read
 * from no server.
 */
async function discoverFirst(
  urls: readonly string[],
  token: BootstrapToken,
  io: CommandIo,
): Promise<{ readonly url: string; readonly discovered: Discovered }> {
  for (const url of urls) {
    try {
      return { url, discovered: await discover(url, token, io.clock) };
    } catch (error) {
      const isLast = url === urls.at(-1);
      if (isLast || !(error instanceof UnreachableError)) throw error;
      io.stderr.write(`${printable(error.message)}; trying the next server\n`);
    }
  }
  throw new CommandError('no server was given: name one, such as https://10.0.0.1:6443');
}

/**
 * Reads `cluster-info` again over a connection that trusts only the CA, which proves that the server has a certificate of it.
 */
async function confirm(url: string, ca: string): Promise<void> {
  const client = new HttpClient({ server: url, ca, clock: systemClock });
  try {
    await client.get(configMaps, PUBLIC_NAMESPACE, CLUSTER_INFO);
  } catch (error) {
    throw new CommandError(`${url} has no certificate of the cluster's CA: ${errorMessage(error)}`, { cause: error });
  } finally {
    await client.close();
  }
}

/** Writes the keys of the cluster to the data directory. */
async function becomeControlPlane(
  place: BundlePlace,
  { certificateKey, dataDir }: { readonly certificateKey: string; readonly dataDir: string },
  io: CommandIo,
): Promise<number> {
  const files = await fetchBundle(place, certificateKey);
  checkBundle(files, place.ca);
  const shared = await withRightsOfOwner(dataDir, io, () => writeBundle(dataDir, files));
  // A database of SQLite belongs to one control plane, so a further one is its standby.
  const standby = shared.some((one) => one.startsWith('--etcd')) ? [] : [`--standby-of ${place.url}`];
  const words = ['orchlet controlplane', `--data-dir ${dataDir}`, ...shared, ...standby];
  io.stdout.write(
    `The keys of the cluster at ${place.url} are in ${dataDir}. Start the control plane with:\n  ${words.join(' ')}\n`,
  );
  return 0;
}

/** What the other users of the host must not see. */
interface JoinSecrets {
  readonly token: string;
  readonly certificateKey: string;
}

interface JoinValues extends JoinSecrets {
  readonly tokenFile: string;
  readonly caHash: readonly string[];
  readonly unsafe: boolean;
  readonly servers: readonly string[];
  readonly controlPlane: boolean;
  readonly dataDir: string;
  readonly configDir: string;
  readonly nodeName: string;
  readonly start: boolean;
}

/**
 * Returns the token and the certificate key of the flags or of the file. Warns if the certificate key is in the flags. Rejects
 * with a `UsageError` if a file is given beside one of these flags.
 */
async function secretsOf({ token, tokenFile, certificateKey }: JoinValues, io: CommandIo): Promise<JoinSecrets> {
  if (certificateKey !== '')
    io.stderr.write(
      'WARNING: Other users of this host may have seen --certificate-key in the list of processes: use --token-file.\n',
    );
  if (tokenFile === '') return { token, certificateKey };
  if (token !== '' || certificateKey !== '')
    throw new UsageError('--token-file takes the place of --token and --certificate-key');
  const text = tokenFile === '-' ? await io.readInput() : await readFile(tokenFile, 'utf8');
  const [first = '', second = ''] = text.split('\n').map((line) => line.trim());
  return { token: first, certificateKey: second };
}

/** Returns the token. Throws a `UsageError` for flags that do not fit. Warns if the CA is not verified by a hash. */
function checkUsage(servers: readonly string[], values: JoinValues, io: CommandIo): BootstrapToken {
  const wrong = servers.find((one) => !/^https:\/\/[^/]+$/.test(one));
  if (wrong !== undefined) throw new UsageError(`${quoteText(wrong)} is not a server of the form https://HOST:PORT`);
  const token = parseBootstrapToken(values.token);
  if (token === undefined)
    throw new UsageError('--token, or the first line of --token-file, must be of the form abcdef.0123456789abcdef');
  if (values.controlPlane && !isBundleKey(values.certificateKey))
    throw new UsageError(
      "--control-plane needs --certificate-key, as 'orchlet token create --control-plane' prints it",
    );
  if (values.caHash.length === 0 && !values.unsafe) {
    throw new UsageError(
      'give --discovery-token-ca-cert-hash, by which the cluster is verified (or --discovery-token-unsafe-skip-ca-verification)',
    );
  }
  if (values.caHash.length === 0) {
    io.stderr.write(
      'WARNING: The CA of the cluster is not verified: whoever knows the token, or can write the ConfigMap cluster-info, can answer in place of the cluster, run pods as root on this host and read its secrets. Use --discovery-token-ca-cert-hash.\n',
    );
  }
  return token;
}

interface VerifiedCluster {
  readonly url: string;
  /** The CA of the cluster, as PEM. */
  readonly ca: string;
  readonly servers: readonly string[];
}

/** Writes the kubeconfig and the flags of the agent. Starts its service, or prints how to start the agent. */
async function becomeNode({ url, ca, servers }: VerifiedCluster, values: JoinValues, io: CommandIo): Promise<number> {
  const bootstrap = joinPath(values.configDir, 'bootstrap.kubeconfig');
  await makeFolder(joinPath(values.configDir, 'manifests'), 0o755);
  await writeKubeconfig(
    bootstrap,
    newKubeconfig({
      cluster: 'default-cluster',
      server: url,
      otherServers: servers.filter((one) => one !== url),
      ca,
      user: 'tls-bootstrap-token-user',
      credentials: { token: values.token },
    }),
  );
  const caFile = joinPath(values.configDir, 'ca.crt');
  await replaceFile(caFile, ca, { mode: 0o644 });
  const agentFlags = [
    `--client-ca-file ${caFile}`,
    '--anonymous-auth=false',
    '--authentication-token-webhook',
    '--authorization-mode Webhook',
    // The read-only port would show the pods of all namespaces, their environment included, to every pod.
    '--read-only-port=0',
    ...(values.nodeName === '' ? [] : [`--hostname-override ${values.nodeName}`]),
  ];
  // The flags are not written to agent.env, which is the administrator's own file.
  await replaceFile(joinPath(values.configDir, 'join.env'), `ORCHLET_JOIN_FLAGS=${agentFlags.join(' ')}\n`, {
    mode: 0o644,
  });
  io.stdout.write(`Verified the cluster at ${url}, and wrote ${bootstrap}.\n`);
  if (values.start && startService())
    io.stdout.write(`${UNIT} runs. On the first host, 'kubectl get nodes' shows this node in a moment.\n`);
  else
    io.stdout.write(
      `Start the agent with:\n  orchlet agent --bootstrap-kubeconfig ${bootstrap} --kubeconfig ${joinPath(values.configDir, 'agent.kubeconfig')} ${agentFlags.join(' ')}\n`,
    );
  return 0;
}

export const join: Command = {
  arguments: { usage: 'https://SERVER:PORT', least: 1, most: 1 },
  description:
    'Makes this host a node of a cluster: verifies the cluster by the token and the hash of its CA, writes the bootstrap kubeconfig, and starts the agent\'s service where systemd runs. On the first host, "orchlet token create --print-join-command" prints the command line.',
  flags,
  examples: [
    'orchlet join https://10.0.0.1:6443 --token abcdef.0123456789abcdef --discovery-token-ca-cert-hash sha256:…',
    'orchlet join https://10.0.0.1:6443 --token-file /root/token --discovery-token-ca-cert-hash sha256:…',
  ],
  async run(parsed, io) {
    io.hideArguments('orchlet join');
    const flagValues = parsed.values as unknown as JoinValues;
    // `withRightsOfOwner` runs the whole command again if the owner cannot reach the directory. The standard input can be read
    // only once, so this comes before.
    if (flagValues.controlPlane) await withRightsOfOwner(flagValues.dataDir, io, () => Promise.resolve());
    const values = { ...flagValues, ...(await secretsOf(flagValues, io)) };
    const servers = [...parsed.arguments, ...values.servers];
    const token = checkUsage(servers, values, io);
    const { url, discovered } = await discoverFirst(servers, token, io);
    const ca = believedCas(discovered, values.caHash);
    if (ca === undefined) {
      const hashes = certificateBlocks(discovered.ca).map((pem) => certificateKeyHash(pem));
      throw new CommandError(
        `the CA of the cluster has the hash ${hashes.join(', ')}, which is not the one that was given: this may be another cluster`,
      );
    }
    await confirm(url, ca);
    if (values.controlPlane) return becomeControlPlane({ url, ca, tokenId: token.id, token: values.token }, values, io);
    return becomeNode({ url, ca, servers }, values, io);
  },
};

function startService(): boolean {
  if (!existsSync('/run/systemd/system')) return false;
  const isInstalled = spawnSync('systemctl', ['cat', UNIT], { stdio: 'ignore' }).status === 0;
  if (!isInstalled)
    throw new CommandError(`${UNIT} is not installed: run 'scripts/install --agent' of a checkout first`);
  const done = spawnSync('systemctl', ['enable', '--now', UNIT], { encoding: 'utf8' });
  if (done.status !== 0)
    throw new CommandError(`${UNIT} did not start: ${done.stderr.trim()}; see 'journalctl -u ${UNIT}'`);
  return true;
}
