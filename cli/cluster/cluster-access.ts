/**
 * The administrator's access to a cluster for commands: finds the kubeconfig, creates a client, and closes it after the work.
 */
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { flag, type FlagTable, type ParsedFlags } from '../../api/component/flags.ts';
import { HttpClient } from '../../api/client/http-client.ts';
import { NotSentError } from '../../api/client/http-connections.ts';
import { foreignFields, type LoadedKubeconfig, loadKubeconfig, serverAccess } from '../../api/client/kubeconfig.ts';
import { isStatusError } from '../../api/meta/status-error.ts';
import { CommandError } from '../command-line/command.ts';
import { dataDirectoryFlag } from '../host/data-directory.ts';
import type { CommandIo } from '../command-line/io.ts';
import { withRightsOfOwner } from '../host/owner-rights.ts';

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

/** A cluster that a command calls. */
export interface Cluster {
  readonly client: HttpClient;
  /** The URL of the API server. */
  readonly server: string;
  /** The CA of the cluster, as PEM. Empty if the kubeconfig names none. */
  readonly ca: string;
}

/** Runs `work` with a client of the cluster that `accessFlags` name. */
export async function withCluster<T>(
  parsed: ParsedFlags<FlagTable>,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const kubeconfigPath = String(parsed.values['kubeconfig']);
  const local = join(String(parsed.values['dataDir']), 'admin.kubeconfig');
  return kubeconfigPath === '' && io.env['KUBECONFIG'] === undefined && existsSync(local)
    ? await withOwnKubeconfig(local, io, work)
    : await withKubeconfig(kubeconfigPath, io, work);
}

/** Runs `work` with a client of the cluster of a kubeconfig. An empty path stands for the kubeconfig that kubectl would use. */
export async function withKubeconfig<T>(
  path: string,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  return await withClusterOf(await loadKubeconfig(path, io.env), io, work);
}

/**
 * Runs `work` with a client of the cluster of the kubeconfig that a control plane wrote to its data directory. Rejects with
 * `CommandError` if the file names programs or other files: root may use the directory of another user, who could let root
 * execute a program or send a file to a server.
 */
export async function withOwnKubeconfig<T>(
  path: string,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T> {
  const config = await withRightsOfOwner(dirname(path), io, () => loadKubeconfig(path, io.env));
  const foreign = foreignFields(config);
  if (foreign.length > 0)
    throw new CommandError(
      `${path} is not what a control plane writes, because it has ${foreign.join(', ')}: if it is yours, name it with --kubeconfig`,
    );
  return await withClusterOf(config, io, work);
}

async function withClusterOf<T>(
  config: LoadedKubeconfig,
  io: CommandIo,
  work: (cluster: Cluster) => Promise<T>,
): Promise<T> {
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
 * Returns the error with the place where the server was configured, if the server is unreachable or does not know the client.
 */
function withRemedy(error: unknown, server: string, files: readonly string[]): unknown {
  const place = `the API server ${server} of ${files.join(', ')}`;
  const remedy = 'name another cluster with --kubeconfig or KUBECONFIG';
  if (error instanceof NotSentError)
    return new CommandError(`cannot connect to ${place}: ${error.message} (is it running? if so, ${remedy})`, {
      cause: error,
    });
  if (isStatusError(error, 'Unauthorized'))
    return new CommandError(`${place} refuses the credentials of the kubeconfig: ${error.message} (${remedy})`, {
      cause: error,
    });
  return error;
}
