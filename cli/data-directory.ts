/** The data directory of the control plane, for commands on the same host. */
import { flag } from '../api/component/flags.ts';

export const dataDirectoryFlag = (group: string, help = 'Data directory of the control plane on this host.') =>
  flag({ name: 'data-dir', type: 'string', default: '/var/lib/orchlet', group, help });
