/**
 * The administrator's access to a cluster for commands: finds the kubeconfig, creates a client, and closes it after the work.
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { flag, type FlagTable, type ParsedFlags } from '../api/component/flags.ts';
import { HttpClient } from '../api/machinery/http-client.ts';
import { loadKubeconfig, serverAccess } from '../api/machinery/kubeconfig.ts';
import { dataDirectoryFlag } from './data-directory.ts';
import type { CommandIo } from './io.ts';

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

export interface Cluster {
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
  const path = given === '' && io.env['KUBECONFIG'] === undefined && existsSync(local) ? local : given;
  const config = await loadKubeconfig(path === '' ? undefined : path);
  const access = await serverAccess(config, { clock: io.clock, interactive: io.isInteractive });
  const client = new HttpClient({ ...access, clock: io.clock });
  try {
    return await work({ client, server: access.server, ca: access.ca ?? '' });
  } finally {
    await client.close();
  }
}
