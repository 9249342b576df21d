/**
 * Reads kubeconfig files: one file, or the files of KUBECONFIG merged, where the first value wins. Writes files atomically with
 * mode 0600. Every `KubeconfigError` names the file.
 */
import { PlainError } from '../component/plain-error.ts';
import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, dirname, isAbsolute, join, resolve } from 'node:path';
import {
  certificateFileCredentials,
  combinedCredentials,
  fixedCredentials,
  noCredentials,
  tokenFileCredentials,
  type ClientCredentials,
} from './client-credentials.ts';
import type { Clock } from '../machinery/clock.ts';
import { execCredentials, type ExecCluster, type ExecConfig } from './exec-plugin.ts';
import { makeFolder, replaceFile } from '../machinery/replace-file.ts';

interface KubeconfigCluster {
  readonly server?: string;
  readonly 'tls-server-name'?: string;
  readonly 'insecure-skip-tls-verify'?: boolean;
  readonly 'certificate-authority'?: string;
  readonly 'certificate-authority-data'?: string;
  readonly 'proxy-url'?: string;
  readonly extensions?: readonly { readonly name: string; readonly extension: unknown }[];
}

/** Members of a user that change who sends the requests. Without them, requests would be those of somebody else. */
const UNSUPPORTED = ['as', 'as-uid', 'as-groups', 'as-user-extra', 'auth-provider'] as const;

interface KubeconfigUser extends Partial<Readonly<Record<(typeof UNSUPPORTED)[number], unknown>>> {
  readonly 'client-certificate'?: string;
  readonly 'client-certificate-data'?: string;
  readonly 'client-key'?: string;
  readonly 'client-key-data'?: string;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly username?: string;
  readonly password?: string;
  readonly exec?: ExecConfig;
}

interface KubeconfigContext {
  readonly cluster?: string;
  readonly user?: string;
  readonly namespace?: string;
}

interface Kubeconfig {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly 'current-context'?: string;
  readonly clusters?: readonly { readonly name: string; readonly cluster: KubeconfigCluster }[] | null;
  readonly users?: readonly { readonly name: string; readonly user: KubeconfigUser }[] | null;
  readonly contexts?: readonly { readonly name: string; readonly context: KubeconfigContext }[] | null;
}

class KubeconfigError extends PlainError {
  override readonly name = 'KubeconfigError';
}

/** The extension of a cluster that lists further servers, since a cluster has one `server`. Other programs ignore it. */
const SERVERS_EXTENSION = 'orchlet.local/servers';

/** The server and the credentials of a context. */
interface ServerAccess {
  readonly server: string;
  /** URLs of further servers of the same cluster. */
  readonly otherServers: readonly string[];
  readonly ca?: string;
  readonly serverName?: string;
  readonly insecureSkipVerify?: boolean;
  readonly credentials: ClientCredentials;
  readonly namespace: string;
}

interface LoadedEntry<T> {
  readonly value: T;
  readonly file: string;
}

/** A merged configuration with the file of each entry, because paths are relative to that file. */
export interface LoadedKubeconfig {
  readonly files: readonly string[];
  readonly currentContext: string;
  readonly clusters: ReadonlyMap<string, LoadedEntry<KubeconfigCluster>>;
  readonly users: ReadonlyMap<string, LoadedEntry<KubeconfigUser>>;
  readonly contexts: ReadonlyMap<string, LoadedEntry<KubeconfigContext>>;
}

/**
 * Loads `path`, or else KUBECONFIG, or else `~/.kube/config`. Missing files of a KUBECONFIG list are skipped, unless all are
 * missing. Rejects with `KubeconfigError` if no file exists, and for a file that cannot be read or is not a kubeconfig.
 */
export async function loadKubeconfig(
  path?: string,
  env: Readonly<Record<string, string | undefined>> = process.env,
): Promise<LoadedKubeconfig> {
  const listed = path === undefined || path === '' ? (env['KUBECONFIG'] ?? '') : '';
  const paths =
    path !== undefined && path !== ''
      ? [path]
      : listed === ''
        ? [join(homedir(), '.kube', 'config')]
        : listed.split(delimiter).filter((part) => part !== '');
  const files: { readonly file: string; readonly config: Kubeconfig }[] = [];
  for (const file of paths.map((part) => resolve(part))) {
    try {
      files.push({ file, config: await parseKubeconfig(await readFile(file, 'utf8'), file) });
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') {
        if (error instanceof KubeconfigError) throw error;
        throw new KubeconfigError(`kubeconfig ${file} cannot be read: ${(error as Error).message}`, { cause: error });
      }
      if (paths.length === 1)
        throw new KubeconfigError(`kubeconfig ${file} does not exist; name another with --kubeconfig or KUBECONFIG`);
    }
  }
  if (files.length === 0) throw new KubeconfigError(`none of the files of KUBECONFIG exists (${paths.join(', ')})`);
  return {
    files: files.map(({ file }) => file),
    currentContext: files.map(({ config }) => config['current-context'] ?? '').find((context) => context !== '') ?? '',
    clusters: firstWins(files, (config) => config.clusters?.map(({ name, cluster }) => [name, cluster])),
    users: firstWins(files, (config) => config.users?.map(({ name, user }) => [name, user])),
    contexts: firstWins(files, (config) => config.contexts?.map(({ name, context }) => [name, context])),
  };
}

function firstWins<T>(
  files: readonly { readonly file: string; readonly config: Kubeconfig }[],
  entries: (config: Kubeconfig) => readonly (readonly [string, T | null | undefined])[] | undefined,
): Map<string, LoadedEntry<T>> {
  const merged = new Map<string, LoadedEntry<T>>();
  for (const { file, config } of files) {
    for (const [name, value] of entries(config) ?? []) {
      if (!merged.has(name)) merged.set(name, { value: value ?? ({} as T), file });
    }
  }
  return merged;
}

/** Returns the first line of an error of js-yaml, which appends the lines of the file around it. */
const firstLine = (text: string): string => text.split('\n', 1)[0] ?? '';

async function parseKubeconfig(text: string, file: string): Promise<Kubeconfig> {
  const { load } = await import('js-yaml');
  let value: unknown;
  try {
    value = load(text);
  } catch (error) {
    throw new KubeconfigError(`kubeconfig ${file} is not valid YAML: ${firstLine((error as Error).message)}`, {
      cause: error,
    });
  }
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value))
    throw new KubeconfigError(`kubeconfig ${file} does not hold a Config object`);
  const config = value as Kubeconfig;
  if (config.kind !== undefined && config.kind !== 'Config') {
    throw new KubeconfigError(`kubeconfig ${file} holds a ${config.kind}, not a Config`);
  }
  for (const list of ['clusters', 'users', 'contexts'] as const) {
    if (config[list] !== undefined && config[list] !== null && !Array.isArray(config[list])) {
      throw new KubeconfigError(`kubeconfig ${file}: ${list} must be a list`);
    }
  }
  return config;
}

/** The fields of users and clusters that name programs or other files. */
const FOREIGN = ['exec', 'tokenFile', 'client-certificate', 'client-key', 'certificate-authority'] as const;

/** Returns those fields of the users and clusters of a kubeconfig that name programs or other files. */
export function foreignFields({ clusters, users }: LoadedKubeconfig): readonly string[] {
  const entries: readonly object[] = [...clusters.values(), ...users.values()].map(({ value }) => value);
  return FOREIGN.filter((field) => entries.some((entry) => Object.hasOwn(entry, field)));
}

interface AccessOptions {
  readonly clock: Clock;
  readonly context?: string;
  /** Whether an exec plugin may prompt on the terminal. */
  readonly interactive?: boolean;
}

/**
 * Resolves to the server and the credentials of a context, by default of the current one. Rejects with `KubeconfigError` if the
 * kubeconfig lacks one of them or has one that cannot be used, and an `Error` for a wrong exec plugin. Files of tokens, and
 * pairs of files of certificates and keys, are read with the first request.
 */
export async function serverAccess(config: LoadedKubeconfig, options: AccessOptions): Promise<ServerAccess> {
  const where = config.files.join(', ');
  const contextName = options.context ?? config.currentContext;
  const context = config.contexts.get(contextName);
  if (context === undefined) {
    const contextNames = [...config.contexts.keys()].join(', ') || 'none';
    if (contextName === '')
      throw new KubeconfigError(`kubeconfig ${where} has no current-context; set it to one of: ${contextNames}`);
    throw new KubeconfigError(`kubeconfig ${where} has no context "${contextName}"; it has: ${contextNames}`);
  }
  const clusterName = context.value.cluster ?? '';
  const cluster = config.clusters.get(clusterName);
  if (cluster === undefined)
    throw new KubeconfigError(
      `kubeconfig ${where} has no cluster "${clusterName}", which context "${contextName}" names`,
    );
  const server = cluster.value.server ?? '';
  if (server === '') throw new KubeconfigError(`kubeconfig ${where}: cluster "${clusterName}" has no server`);
  const userName = context.value.user ?? '';
  const user = config.users.get(userName);
  if (user === undefined && userName !== '') {
    throw new KubeconfigError(`kubeconfig ${where} has no user "${userName}", which context "${contextName}" names`);
  }
  const ca = await dataOrFile(
    cluster,
    cluster.value['certificate-authority-data'],
    cluster.value['certificate-authority'],
    'certificate-authority',
  );
  const serverName = cluster.value['tls-server-name'];
  return {
    server,
    otherServers: otherServersOf(cluster.value),
    ...(ca === undefined ? {} : { ca }),
    ...(serverName === undefined ? {} : { serverName }),
    ...(cluster.value['insecure-skip-tls-verify'] === true ? { insecureSkipVerify: true } : {}),
    credentials:
      user === undefined ? noCredentials : await credentialsOf(user, execCluster(cluster.value, server, ca), options),
    namespace: context.value.namespace ?? 'default',
  };
}

/** Resolves to the credentials of a user, for any server. Rejects for an unknown user. */
export async function userCredentials(
  config: LoadedKubeconfig,
  name: string,
  options: AccessOptions,
): Promise<ClientCredentials> {
  const user = config.users.get(name);
  if (user === undefined) throw new KubeconfigError(`kubeconfig ${config.files.join(', ')} has no user "${name}"`);
  return credentialsOf(user, { server: '' }, options);
}

async function credentialsOf(
  user: LoadedEntry<KubeconfigUser>,
  cluster: ExecCluster,
  options: AccessOptions,
): Promise<ClientCredentials> {
  const { value, file } = user;
  const unsupported = UNSUPPORTED.find((name) => Object.keys(Object(value[name]) as object).length > 0);
  if (unsupported !== undefined)
    throw new KubeconfigError(
      `kubeconfig ${file}: a user has "${unsupported}", which is not supported; give the credentials of the user itself`,
    );
  if (value.exec !== undefined && value.exec !== null) {
    return execCredentials({
      config: value.exec,
      cluster,
      kubeconfigPath: file,
      clock: options.clock,
      interactive: options.interactive ?? false,
    });
  }
  let token: ClientCredentials = noCredentials;
  if (value.tokenFile !== undefined && value.tokenFile !== '')
    token = tokenFileCredentials(relativeTo(file, value.tokenFile), options.clock, value.token || undefined);
  else if (value.token !== undefined && value.token !== '')
    token = fixedCredentials({ authorization: `Bearer ${value.token}` });
  else if (value.username !== undefined && value.username !== '') {
    const pair = Buffer.from(`${value.username}:${value.password ?? ''}`).toString('base64');
    token = fixedCredentials({ authorization: `Basic ${pair}` });
  }
  const certificateFile = value['client-certificate'];
  const keyFile = value['client-key'];
  if (value['client-certificate-data'] === undefined && certificateFile !== undefined && keyFile !== undefined) {
    const paths = { certificate: relativeTo(file, certificateFile), key: relativeTo(file, keyFile) };
    return combinedCredentials(token, certificateFileCredentials(paths, options.clock));
  }
  const certificate = await dataOrFile(user, value['client-certificate-data'], certificateFile, 'client-certificate');
  const key = await dataOrFile(user, value['client-key-data'], keyFile, 'client-key');
  if (certificate === undefined && key === undefined) return token;
  if (certificate === undefined || key === undefined) {
    throw new KubeconfigError(`kubeconfig ${file}: a user has only one of client certificate and client key`);
  }
  return combinedCredentials(token, fixedCredentials({ certificate, key }));
}

function execCluster(cluster: KubeconfigCluster, server: string, ca: string | undefined): ExecCluster {
  const config = cluster.extensions?.find(({ name }) => name === 'client.authentication.k8s.io/exec')?.extension;
  return {
    server,
    ...(cluster['tls-server-name'] === undefined ? {} : { 'tls-server-name': cluster['tls-server-name'] }),
    ...(cluster['insecure-skip-tls-verify'] === true ? { 'insecure-skip-tls-verify': true } : {}),
    ...(ca === undefined ? {} : { 'certificate-authority-data': Buffer.from(ca).toString('base64') }),
    ...(cluster['proxy-url'] === undefined ? {} : { 'proxy-url': cluster['proxy-url'] }),
    ...(config === undefined ? {} : { config }),
  };
}

function otherServersOf({ extensions }: KubeconfigCluster): readonly string[] {
  const found = extensions?.find(({ name }) => name === SERVERS_EXTENSION)?.extension as
    | { readonly servers?: unknown }
    | undefined;
  const servers = Array.isArray(found?.servers) ? (found.servers as readonly unknown[]) : [];
  return servers.filter((one): one is string => typeof one === 'string' && /^https:\/\/./.test(one));
}

async function dataOrFile(
  entry: LoadedEntry<unknown>,
  data: string | undefined,
  path: string | undefined,
  field: string,
): Promise<string | undefined> {
  if (data !== undefined && data !== '') {
    const text = Buffer.from(data, 'base64').toString('utf8');
    if (!text.includes('-----BEGIN'))
      throw new KubeconfigError(`kubeconfig ${entry.file}: ${field}-data does not hold base64 of PEM`);
    return text;
  }
  if (path === undefined || path === '') return undefined;
  const absolute = relativeTo(entry.file, path);
  try {
    return await readFile(absolute, 'utf8');
  } catch (error) {
    throw new KubeconfigError(
      `kubeconfig ${entry.file}: ${field} ${absolute} cannot be read: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

function relativeTo(file: string, path: string): string {
  return isAbsolute(path) ? path : resolve(dirname(file), path);
}

/** Creates a kubeconfig with one cluster, one user and one context, which is current. */
export function newKubeconfig(options: {
  readonly cluster: string;
  readonly server: string;
  readonly otherServers?: readonly string[];
  readonly ca: string;
  readonly user: string;
  readonly credentials:
    | { readonly token: string }
    | { readonly certificate: string; readonly key: string }
    | { readonly certificateFile: string; readonly keyFile: string };
}): Kubeconfig {
  const { cluster, user, credentials, otherServers = [] } = options;
  const extension = { servers: otherServers };
  const context = `${user}@${cluster}`;
  let userEntry: KubeconfigUser;
  if ('token' in credentials) userEntry = { token: credentials.token };
  else if ('certificate' in credentials) {
    userEntry = {
      'client-certificate-data': base64(credentials.certificate),
      'client-key-data': base64(credentials.key),
    };
  } else userEntry = { 'client-certificate': credentials.certificateFile, 'client-key': credentials.keyFile };
  return {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      {
        name: cluster,
        cluster: {
          server: options.server,
          'certificate-authority-data': base64(options.ca),
          ...(otherServers.length === 0 ? {} : { extensions: [{ name: SERVERS_EXTENSION, extension }] }),
        },
      },
    ],
    users: [{ name: user, user: userEntry }],
    contexts: [{ name: context, context: { cluster, user } }],
    'current-context': context,
  };
}

/**
 * Writes a kubeconfig. Readers see either the complete old file or the complete new one, and only the owner can read it.
 * Rejects with `KubeconfigError` if it cannot be written.
 */
export async function writeKubeconfig(path: string, config: Kubeconfig): Promise<void> {
  const { dump } = await import('js-yaml');
  try {
    await makeFolder(dirname(path), 0o755);
    await replaceFile(path, dump(config, { lineWidth: -1 }), { mode: 0o600 });
  } catch (error) {
    throw new KubeconfigError(`kubeconfig ${path} cannot be written: ${(error as Error).message}`, { cause: error });
  }
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}
