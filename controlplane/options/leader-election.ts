/** Defines the flags of leader election: those of kube-controller-manager, for the controllers and the scheduler. */
import { flag, type FlagValues } from '../../api/component/flags.ts';
import { type LeaderElectionTimes, leaderElectionProblem } from '../../api/client/leader-election.ts';
import { storageBackendOf } from './storage.ts';
import { SYSTEM_NAMESPACE } from '../../api/meta/system-namespaces.ts';

const ELECTION = 'Leader election';

/** The rows by the property under which the program reads them. */
export const leaderElectionFlags = {
  leaderElect: flag({
    name: 'leader-elect',
    type: 'string',
    default: 'auto',
    bare: 'true',
    choices: ['auto', 'true', 'false'],
    group: ELECTION,
    help: 'Run the controllers and the scheduler only while this process holds their Leases. auto does so if other API servers may share the storage.',
  }),
  leaderElectLeaseDuration: flag({
    name: 'leader-elect-lease-duration',
    type: 'duration',
    default: 15_000,
    group: ELECTION,
    help: 'How long others wait after the last renewal that they saw before they take a Lease.',
  }),
  leaderElectRenewDeadline: flag({
    name: 'leader-elect-renew-deadline',
    type: 'duration',
    default: 10_000,
    group: ELECTION,
    help: 'How long the leader tries to renew its Lease before it stops.',
  }),
  leaderElectRetryPeriod: flag({
    name: 'leader-elect-retry-period',
    type: 'duration',
    default: 2000,
    group: ELECTION,
    help: 'Time between two attempts to acquire or renew a Lease.',
  }),
  leaderElectResourceLock: flag({
    name: 'leader-elect-resource-lock',
    type: 'string',
    default: 'leases',
    choices: ['leases'],
    group: ELECTION,
    help: 'Kind of the object that the leader holds.',
  }),
  leaderElectResourceName: flag({
    name: 'leader-elect-resource-name',
    type: 'string',
    default: 'kube-controller-manager',
    group: ELECTION,
    help: 'Name of the Lease of the controllers. That of the scheduler is kube-scheduler.',
    check: (name) => (name === '' ? 'must not be empty' : undefined),
  }),
  leaderElectResourceNamespace: flag({
    name: 'leader-elect-resource-namespace',
    type: 'string',
    default: SYSTEM_NAMESPACE,
    group: ELECTION,
    help: 'Namespace of both Leases.',
    check: (name) => (name === '' ? 'must not be empty' : undefined),
  }),
} as const;

type Flags = FlagValues<typeof leaderElectionFlags>;
type StorageFlags = Parameters<typeof storageBackendOf>[0];

/** Returns the times of the flags, in milliseconds. */
export function leaderElectionTimes(flags: Flags): LeaderElectionTimes {
  return {
    leaseDurationMs: flags.leaderElectLeaseDuration,
    renewDeadlineMs: flags.leaderElectRenewDeadline,
    retryPeriodMs: flags.leaderElectRetryPeriod,
  };
}

/**
 * Whether controllers and scheduler wait for a Lease. With `auto` they do so on etcd alone: SQLite and memory belong to one
 * process, whose start must not wait.
 */
export function electsLeaders(flags: Flags & StorageFlags): boolean {
  if (flags.leaderElect !== 'auto') return flags.leaderElect === 'true';
  return storageBackendOf(flags) === 'etcd3';
}

/** Returns why the times of leader election do not fit each other, or `undefined` if they do. */
export function leaderElectionFlagsProblem(flags: Flags & StorageFlags): string | undefined {
  if (!electsLeaders(flags)) return undefined;
  const problem = leaderElectionProblem(leaderElectionTimes(flags));
  return problem === undefined ? undefined : `--leader-elect-*: ${problem}`;
}
