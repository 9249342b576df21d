/** Defines the flags by which commands of a host name the directories of its control plane and its agent. */
import { flag } from '../../api/component/flags.ts';

/** Declares the flag `--data-dir` below a heading of `--help`. */
export const dataDirectoryFlag = (group: string, help = 'Data directory of the control plane on this host.') =>
  flag({ name: 'data-dir', type: 'string', default: '/var/lib/orchlet', group, help });

/** Declares the flag `--root-dir` below a heading of `--help`. */
export const rootDirectoryFlag = (group: string) =>
  flag({
    name: 'root-dir',
    type: 'string',
    default: '',
    group,
    help: "The agent's root directory; that of the running agent otherwise, or agent below a --data-dir that is given.",
  });
