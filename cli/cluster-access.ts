/**
 * The administrator's access to a cluster for commands: finds the kubeconfig, creates a client, and closes it after the work.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { flag, type FlagTable, type ParsedFlags } from '../api/component/flags.ts';
import { HttpClient } from '../api/machinery/http-client.ts';
import { NotSentError } from '../api/machinery/http-connections.ts';
import { loadKubeconfig, serverAccess } from '../api/machinery/kubeconfig.ts';
import { isStatusError } from '../api/meta/status-error.ts';
import { CommandError } from './command.ts';
import { dataDirectoryFlag } from './data-directory.ts';
import type { CommandIo } from './io.ts';

/** The flags of commands that call the API server. */
export const accessFlags = {
  kubeconfig: flag({
    name: 'kubeconfig',
    type: 'string',
    default: '',
    group: 'Access',
    help: 'Kubeconfig of an administrator. Default: KUBECONFIG, the admin.kubeconfig of the data directory, or ~/.kube/config.',
  }),
  dataDir: dataDirectoryFlag('Access'),
} as const;

interface Cluster {
  readonly client: HttpClient;
  /** URL. */
  readonly server: string;
  /** PEM; empty where the kubeconfig names none. */
  readonly ca: string;
}

/** Runs `work` with a client of the cluster that `accessFlags` name. */
export async function withCluster<T>(
  parsed: ParsedFlags<FlagTable>,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const given = String(parsed.values['kubeconfig']);
  const local = join(String(parsed.values['dataDir']), 'admin.kubeconfig');
  return await withKubeconfig(
    given === '' && io.env['KUBECONFIG'] === undefined && existsSync(local) ? local : given,
    io,
    work,
  );
}

/** Runs `work` with a client of the cluster of this file; `''` finds one as kubectl does. */
export async function withKubeconfig<T>(
  path: string,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const config = await loadKubeconfig(path, io.env);
  const access = await serverAccess(config, { clock: io.clock, interactive: io.isInteractive });
  const client = new HttpClient({ ...access, clock: io.clock });
  try {
    return await work({ client, server: access.server, ca: access.ca ?? '' });
  } catch (error) {
    throw withRemedy(error, access.server, config.files);
  } finally {
    await client.close();
  }
}

/**
 * A server that is unreachable, or that does not know the client, is not a bug. The error says where the server was configured.
 */
function withRemedy(error: unknown, server: string, files: readonly string[]): unknown {
  const place = `the API server ${server} of ${files.join(', ')}`;
  const remedy = 'another cluster is named with --kubeconfig or KUBECONFIG';
  if (error instanceof NotSentError)
    return new CommandError(`cannot connect to ${place}: ${error.message} (does it run? ${remedy})`, { cause: error });
  if (isStatusError(error, 'Unauthorized'))
    return new CommandError(`${place} refuses the credentials of the kubeconfig: ${error.message} (${remedy})`, {
      cause: error,
    });
  return error;
}
