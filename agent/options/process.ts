/** The options of the agent's process, its requirements on the host, and its directories. */
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
    help: 'Directory of container logs.',
  }),
  lockFile: option({
    name: 'lock-file',
    type: 'string',
    default: '',
    group: PROCESS,
    help: 'File that is locked while the agent runs. A second agent waits for the lock.',
  }),
  exitOnLockContention: option({
    name: 'exit-on-lock-contention',
    type: 'boolean',
    default: false,
    group: PROCESS,
    help: 'Exit if another process requests the lock file.',
  }),
  oomScoreAdj: option({
    name: 'oom-score-adj',
    type: 'integer',
    default: -999,
    group: PROCESS,
    check: within(-1000, 1000),
    config: { path: 'oomScoreAdj', keepsZero: true },
    help: 'OOM score adjustment of the agent, -1000 to 1000.',
  }),
  maxOpenFiles: option({
    name: 'max-open-files',
    type: 'integer',
    default: 1_000_000,
    group: PROCESS,
    check: notNegative,
    config: { path: 'maxOpenFiles' },
    help: 'Maximum number of open files of the agent.',
  }),
  failSwapOn: option({
    name: 'fail-swap-on',
    type: 'boolean',
    default: true,
    group: PROCESS,
    config: { path: 'failSwapOn', keepsZero: true },
    help: 'Refuse to start on a host with swap enabled.',
  }),
  failCgroupV1: option({
    name: 'fail-cgroupv1',
    type: 'boolean',
    default: false,
    group: PROCESS,
    config: { path: 'failCgroupV1', keepsZero: true, flagStays: true },
    help: "Refuse to start on a host with cgroup v1. The default differs from the kubelet's, because both versions are supported.",
  }),
  protectKernelDefaults: option({
    name: 'protect-kernel-defaults',
    type: 'boolean',
    default: false,
    group: PROCESS,
    config: { path: 'protectKernelDefaults' },
    help: 'Refuse to start if kernel parameters differ from the required values. Otherwise the agent sets them.',
  }),
  tracingEndpoint: field({
    type: 'string',
    default: '',
    group: PROCESS,
    config: { path: 'tracing.endpoint', keepsZero: true, optional: true },
    noEffect: 'the agent has no tracing',
    help: 'Address of the trace collector.',
  }),
  tracingSamplingRate: field({
    type: 'integer',
    default: 0,
    group: PROCESS,
    config: { path: 'tracing.samplingRatePerMillion', keepsZero: true, optional: true },
    noEffect: 'the agent has no tracing',
    help: 'Number of requests per million that are traced.',
  }),
} as const;
