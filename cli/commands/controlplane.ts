/**
 * `orchlet controlplane` runs a control plane, and its scheduled backups, until a signal or a failure of the storage ends it.
 */
import { resolve } from 'node:path';
import { type ControlPlaneFlags, controlPlaneFlags } from '../../controlplane/options/controlplane-options.ts';
import { prepareStart } from '../../controlplane/start/preparation.ts';
import type { Command } from '../command-line/command.ts';
import { refuseForeign } from '../host/owner-rights.ts';

export const controlplane: Command = {
  description:
    'Runs the API server, its storage, the controllers and the scheduler. The first start creates certificates and the admin kubeconfig in the data directory.',
  flags: controlPlaneFlags,
  examples: [
    'orchlet controlplane --data-dir ./data --secure-port 6443',
    'orchlet controlplane --storage-backend memory --token-auth-file tokens.csv',
  ],
  async run(parsed) {
    const flags = parsed.values as unknown as ControlPlaneFlags;
    refuseForeign(resolve(flags.dataDir), 'control plane');
    // What a start waits for begins before the other modules are loaded.
    const preparation = prepareStart(flags);
    const { runControlPlane } = await import('../cluster/run-controlplane.ts');
    return await runControlPlane(flags, preparation);
  },
};
