/**
 * The step of a reset that ends the etcd of `--etcd=embedded`: its unit, or a process that a killed control plane left behind.
 */
import type { Leftover } from '../../agent/runtime/leftovers.ts';
import { etcdPaths } from '../../controlplane/storage/etcd-member/etcd-files.ts';
import {
  dataDirectoryOfUnit,
  ETCD_UNIT,
  hostUnits,
  removeEtcdUnit,
} from '../../controlplane/storage/etcd-member/etcd-unit.ts';
import { isEtcdOf, stopEtcdProcess } from '../../controlplane/storage/etcd-member/left-behind-etcd.ts';
import { runningProcess } from '../host/processes.ts';
import type { ResetStep } from './target.ts';

/** Belongs after the processes: a control plane starts its etcd again. */
export const etcd: ResetStep = {
  name: 'etcd',
  async find({ dataDirectory, clock }) {
    const paths = etcdPaths(dataDirectory);
    const found: Leftover[] = [];
    if ((await dataDirectoryOfUnit(hostUnits)) === paths.data)
      found.push({
        text: `${ETCD_UNIT}, which is stopped and removed`,
        remove: () => removeEtcdUnit(hostUnits),
      });
    const pid = await runningProcess(paths.pid, (one) => isEtcdOf(one, paths.data));
    if (pid !== undefined)
      found.push({
        text: `process ${pid}, an etcd of this control plane`,
        remove: () => stopEtcdProcess(pid, paths.data, clock),
      });
    return found;
  },
};
