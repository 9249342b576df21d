/** Checks whether the capacity of local volumes is a limit on this host. Changes nothing. */
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { FolderLimits } from '../../agent/host/project-quota.ts';
import type { Finding } from './host-checks.ts';

/** Returns the finding about the directory of local volumes, which need not exist. */
export async function checkLocalVolumes(directory: string, limits: Pick<FolderLimits, 'problem'>): Promise<Finding> {
  let place = directory;
  while (!existsSync(place) && place !== '/') place = dirname(place);
  const name = 'local volumes';
  const problem = await limits.problem(place);
  if (problem === '') return { name, verdict: 'ok', text: 'hold no more than their capacity' };
  return {
    name,
    verdict: 'warn',
    text: `may fill the disk, whatever their capacity: ${problem}`,
    remedy:
      'apt-get install quota, and a filesystem of their own (--local-volumes-dir of the agent) with the mount option prjquota: XFS, or ext4 after mkfs.ext4 -O quota,project',
  };
}
