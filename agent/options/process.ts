/** Options: the process of the agent, the host it demands, its directories. */
import { notNegative, within } from './checks.ts';
import { field, option } from './option.ts';

const PROCESS = 'Process and host';
const DIRECTORIES = 'Directories';

export const processOptions = {
  rootDir: option({
    name: 'root-dir',
    type: 'string',
    default: '/var/lib/kubelet',
    group: DIRECTORIES,
    help: "Directory of the pods' volumes and the agent's state.",
  }),
  podLogsDir: option({
    name: 'pod-logs-dir',
    type: 'string',
    default: '/var/log/pods',
    group: DIRECTORIES,
    config: { path: 'podLogsDir', isPath: true, flagStays: true },
    help: "Directory of the containers' logs.",
  }),
  lockFile: option({
    name: 'lock-file',
    type: 'string',
    default: '',
    group: PROCESS,
    help: 'File that is locked while the agent runs; a second agent waits for it.',
  }),
  exitOnLockContention: option({
    name: 'exit-on-lock-contention',
    type: 'boolean',
    default: false,
    group: PROCESS,
    help: 'End when another process wants the lock file.',
  }),
  oomScoreAdj: option({
    name: 'oom-score-adj',
    type: 'integer',
    default: -999,
    group: PROCESS,
    check: within(-1000, 1000),
    config: { path: 'oomScoreAdj', keepsZero: true },
    help: 'How gladly the kernel kills the agent when memory runs out, -1000 to 1000.',
  }),
  maxOpenFiles: option({
    name: 'max-open-files',
    type: 'integer',
    default: 1_000_000,
    group: PROCESS,
    check: notNegative,
    config: { path: 'maxOpenFiles' },
    help: 'Files that the agent may have open.',
  }),
  failSwapOn: option({
    name: 'fail-swap-on',
    type: 'boolean',
    default: true,
    group: PROCESS,
    config: { path: 'failSwapOn', keepsZero: true },
    help: 'Refuse to start on a host that swaps.',
  }),
  failCgroupV1: option({
    name: 'fail-cgroupv1',
    type: 'boolean',
    default: false,
    group: PROCESS,
    config: { path: 'failCgroupV1', keepsZero: true, flagStays: true },
    help: 'Refuse to start on a host with cgroup v1. Unlike upstream this is not the default: both versions are supported.',
  }),
  protectKernelDefaults: option({
    name: 'protect-kernel-defaults',
    type: 'boolean',
    default: false,
    group: PROCESS,
    config: { path: 'protectKernelDefaults' },
    help: 'Refuse to start where kernel parameters differ from those that nodes have; otherwise they are set.',
  }),
  tracingEndpoint: field({
    type: 'string',
    default: '',
    group: PROCESS,
    config: { path: 'tracing.endpoint', keepsZero: true, optional: true },
    noEffect: 'no traces are made',
    help: 'Collector of traces.',
  }),
  tracingSamplingRate: field({
    type: 'integer',
    default: 0,
    group: PROCESS,
    config: { path: 'tracing.samplingRatePerMillion', keepsZero: true, optional: true },
    noEffect: 'no traces are made',
    help: 'Requests in a million that are traced.',
  }),
} as const;
