/**
 * Keeps the list of the cluster's API servers: those of the kubeconfig, and those that the endpoints of the service
 * `kubernetes` name. The latter are stored, so that an agent that starts while the server of its kubeconfig is down finds
 * another one.
 *
 * Users other than administrators may be able to write the endpoints, so they are used only with a CA in the kubeconfig, which
 * each server has to prove. Loopback, link-local and multicast addresses and those of metadata servers are left out.
 */
import { join } from 'node:path';
import { readOwnFile } from '../base/files/regular-file.ts';
import { stringifyJson } from '../../api/codec/json.ts';
import type { Logger } from '../../api/component/logger.ts';
import type { Client } from '../../api/client/client.ts';
import type { Clock } from '../../api/machinery/clock.ts';
import { periodically } from '../../api/machinery/periodic.ts';
import { createDialer, DialRefusedError } from '../../api/http/dialer.ts';
import type { Endpoints } from '../../api/kinds/kinds.ts';
import { replaceFile } from '../../api/machinery/replace-file.ts';
import { endpoints } from '../../api/client/resources.ts';
import { ServerList } from '../../api/client/server-list.ts';
import { isDiskFull } from '../../api/machinery/disk-full.ts';
import { canonicalIp } from '../../api/meta/ip-addresses.ts';

const FILE = 'api-servers.json';
const CHECK_MS = 15_000;
/** The maximum number of servers that are taken from the endpoints or the file: more than any cluster has. */
const MAX_SERVERS = 32;

interface KnownServersOptions {
  /** `server` of the kubeconfig, and further servers that it lists. */
  readonly configured: readonly string[];
  /** The agent's own directory (`--root-dir`). */
  readonly directory: string;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** Resolves to the configured servers and those that were stored. */
export async function loadServers({ configured, directory, clock, logger }: KnownServersOptions): Promise<ServerList> {
  const path = join(directory, FILE);
  let stored: readonly string[] = [];
  try {
    stored = serversIn(JSON.parse(await readOwnFile(path)));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
      logger.warn({ err: error, path }, 'The stored list of API servers cannot be read and is not used');
  }
  return new ServerList([...configured, ...stored], clock);
}

/**
 * Reads the addresses of the API servers periodically until the signal aborts, and keeps `servers` and the stored list up
 * to date.
 */
export async function followServers(
  { configured, directory, clock, logger }: KnownServersOptions,
  servers: ServerList,
  client: Client,
  signal: AbortSignal,
): Promise<void> {
  let written = '';
  const check = async (): Promise<void> => {
    const found = serversOf(await client.get(endpoints, 'default', 'kubernetes', { resourceVersion: '0', signal }));
    const text = stringifyJson({ servers: found });
    if (found.length === 0 || text === written) return;
    servers.replace([...configured, ...found]);
    logger.info({ servers: servers.all }, 'Updated the list of API servers');
    await store(join(directory, FILE), `${text}\n`);
    written = text;
  };
  await periodically(check, {
    clock,
    periodMs: CHECK_MS,
    signal,
    onError: (error) => logger.debug({ err: error }, 'The addresses of the API servers could not be read or stored'),
  });
}

async function store(path: string, text: string): Promise<void> {
  try {
    await replaceFile(path, text, { mode: 0o600 });
  } catch (error) {
    // Without the file, the next start reads the addresses from the server of the kubeconfig.
    if (!isDiskFull(error)) throw error;
  }
}

/** Returns the URLs of the servers that the endpoints of the service `kubernetes` name, and that the agent may connect to. */
function serversOf(object: Endpoints): readonly string[] {
  const found = (object.subsets ?? []).flatMap(({ addresses = [], ports = [] }) => {
    const port = (ports.find(({ name }) => name === 'https') ?? ports[0])?.port;
    if (port === undefined) return [];
    return addresses.flatMap(({ ip }) =>
      canonicalIp(ip) === ip ? [`https://${ip.includes(':') ? `[${ip}]` : ip}:${port}`] : [],
    );
  });
  return found.filter(mayBeDialed).slice(0, MAX_SERVERS);
}

const dialer = createDialer();

/** Whether an agent may connect to the server. Endpoints have IP addresses, so no later DNS answer can change the result. */
function mayBeDialed(server: string): boolean {
  const url = URL.parse(server);
  if (url === null) return false;
  try {
    dialer.check({ purpose: 'listed-server', host: url.hostname, port: Number(url.port) });
    return true;
  } catch (error) {
    if (error instanceof DialRefusedError) return false;
    throw error;
  }
}

function serversIn(value: unknown): readonly string[] {
  const { servers } = (value ?? {}) as { readonly servers?: unknown };
  if (!Array.isArray(servers)) return [];
  const texts = (servers as readonly unknown[]).filter((one): one is string => typeof one === 'string');
  return texts.filter((text) => /^https:\/\/[^/]+:\d+$/.test(text) && mayBeDialed(text)).slice(0, MAX_SERVERS);
}
