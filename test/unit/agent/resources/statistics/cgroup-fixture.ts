/** Writes cgroup trees as the kernel shows them into a directory. */
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { temporaryFolder } from '../../../../temporary-folder.ts';

/** The contents of files by their paths. */
export type Tree = Readonly<Record<string, string>>;

/** Calls `work` with a temporary directory that holds the tree. */
export async function withTree<T>(tree: Tree, work: (directory: string) => Promise<T>): Promise<T> {
  const directory = temporaryFolder();
  try {
    for (const [path, content] of Object.entries(tree)) {
      await mkdir(dirname(join(directory, path)), { recursive: true });
      await writeFile(join(directory, path), content);
    }
    return await work(directory);
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** Returns one cgroup of v1, in every controller. */
export function v1(
  path: string,
  usage: { readonly cpuNs: number; readonly memory: number; readonly inactive: number },
): Tree {
  return {
    [`cpuacct${path}/cpuacct.usage`]: `${usage.cpuNs}\n`,
    [`cpuacct${path}/cpuacct.stat`]: 'user 12\nsystem 3\n',
    [`cpu${path}/cpu.stat`]: 'nr_periods 10\nnr_throttled 4\nthrottled_time 2000000\nnr_bursts 2\nburst_time 7000\n',
    [`cpu${path}/cpu.cfs_quota_us`]: '-1\n',
    [`cpu${path}/cpu.cfs_period_us`]: '100000\n',
    [`cpu${path}/cpu.shares`]: '256\n',
    [`memory${path}/memory.usage_in_bytes`]: `${usage.memory}\n`,
    [`memory${path}/memory.stat`]: `cache 1\nrss 2\ntotal_cache 4096\ntotal_rss 8192\ntotal_mapped_file 512\npgfault 7\npgmajfault 1\ntotal_pgfault 77\ntotal_pgmajfault 3\ntotal_inactive_file ${usage.inactive}\ntotal_active_file 1024\n`,
    [`memory${path}/memory.limit_in_bytes`]: '9223372036854771712\n',
    [`memory${path}/memory.soft_limit_in_bytes`]: '9223372036854771712\n',
    [`memory${path}/memory.memsw.limit_in_bytes`]: '2097152\n',
    [`memory${path}/cgroup.procs`]: '',
    [`pids${path}/pids.current`]: '5\n',
    [`pids${path}/pids.max`]: 'max\n',
    [`blkio${path}/blkio.throttle.io_service_bytes`]: '8:0 Read 4096\n8:0 Write 8192\n8:0 Total 12288\nTotal 12288\n',
    [`blkio${path}/blkio.throttle.io_serviced`]: '8:0 Read 1\n8:0 Write 2\nTotal 3\n',
  };
}

/** Returns one cgroup of v2. */
export function v2(
  path: string,
  usage: { readonly cpuUs: number; readonly memory: number | undefined; readonly inactive: number },
): Tree {
  return {
    [`${path}/cpu.stat`]: `usage_usec ${usage.cpuUs}\nuser_usec 20\nsystem_usec 30\nnr_periods 7\nnr_throttled 2\nthrottled_usec 9\nnr_bursts 1\nburst_usec 4\n`,
    [`${path}/cpu.max`]: '50000 100000\n',
    [`${path}/cpu.weight`]: '10\n',
    ...(usage.memory === undefined ? {} : { [`${path}/memory.current`]: `${usage.memory}\n` }),
    [`${path}/memory.stat`]: `anon 8192\nfile 4096\nkernel 2048\ninactive_file ${usage.inactive}\nactive_file 1024\nfile_mapped 512\npgfault 77\npgmajfault 3\n`,
    [`${path}/memory.max`]: '1048576\n',
    [`${path}/memory.high`]: '524288\n',
    [`${path}/memory.swap.max`]: '0\n',
    [`${path}/memory.events`]: 'low 0\nhigh 0\nmax 6\noom 1\noom_kill 1\n',
    [`${path}/memory.pressure`]:
      'some avg10=1.50 avg60=0.50 avg300=0.10 total=1234\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=10\n',
    [`${path}/io.stat`]: '8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n',
    [`${path}/pids.current`]: '5\n',
    [`${path}/pids.max`]: '100\n',
  };
}
