/**
 * Runs the work that only one process of a cluster may do, such as the controllers and the scheduler. With leader election,
 * each loop runs in terms, with informers of its own, and with clients that write nothing after the end of the term. Without
 * leader election, one term lasts until the control plane closes.
 */
import { randomUUID } from 'node:crypto';
import { hostname } from 'node:os';
import type { Client } from '../../api/client/client.ts';
import { CoreEventRecorder } from '../../api/client/event-recorder.ts';
import { fencedClient } from '../../api/client/fenced-client.ts';
import { Informers } from '../../api/client/informer.ts';
import { runLeaderElection, type Term } from '../../api/client/leader-election.ts';
import { typedClient } from '../../api/client/typed-client.ts';
import { whenAborted } from '../../api/machinery/clock.ts';
import { electsLeaders, leaderElectionTimes } from '../options/leader-election.ts';
import { closeAll, type Closing } from './close-all.ts';
import type { Parts } from './parts.ts';
import { MASTERS_GROUP } from '../../api/meta/system-users.ts';

/** What a loop gets for one term. */
export interface TermContext {
  readonly informers: Informers;
  /** Wraps a client so that it writes only during the term. */
  readonly fence: (client: Client) => Client;
  /** Adds a step that runs after the term, in the reverse order of the steps. */
  readonly onEnd: (close: Closing) => void;
}

/** A loop that runs in one process of the cluster at a time, with the Lease that decides which. */
export interface ElectedLoop {
  /** The name of the Lease. */
  readonly lease: string;
  /** The name of the component in log lines and in events about the Lease. */
  readonly component: string;
  /** The user that writes the Lease. */
  readonly user: string;
  readonly start: (context: TermContext) => void;
}

type TermParts = Pick<Parts, 'flags' | 'clock' | 'logger' | 'clients' | 'metrics' | 'onClose'>;

/** Starts the loops, each while its Lease is held if leaders are elected. They stop with the `onClose` steps. */
export function startTerms(parts: TermParts, loops: readonly ElectedLoop[]): void {
  if (electsLeaders(parts.flags)) for (const loop of loops) runElected(parts, loop);
  else startUnelected(parts, loops);
}

/** Starts the loops without leader election, in one term until the control plane closes. All loops share informers. */
function startUnelected(parts: TermParts, loops: readonly ElectedLoop[]): void {
  const informers = informersOf(parts);
  parts.onClose(() => informers.close());
  for (const { start } of loops) start({ informers, fence: (client) => client, onEnd: parts.onClose });
}

function runElected(parts: TermParts, loop: ElectedLoop): void {
  const { flags, clock, logger, clients, onClose } = parts;
  const { lease, component, user } = loop;
  const client = clients.as(user, { groups: [MASTERS_GROUP] });
  const log = logger.child({ component });
  const onChange = masterStatus(parts, lease);
  onChange(false);
  const stop = new AbortController();
  const running = runLeaderElection(
    {
      ...leaderElectionTimes(flags),
      client: typedClient(client),
      clock,
      logger: log,
      random: Math.random,
      recorder: new CoreEventRecorder({ client, clock, logger: log, component, host: hostname() }),
      namespace: flags.leaderElectResourceNamespace,
      name: lease,
      identity: `${hostname()}_${randomUUID()}`,
      onChange,
    },
    (term) => serveTerm(parts, loop, term),
    stop.signal,
  );
  onClose(async () => {
    stop.abort(new Error('the control plane is closed'));
    await running;
  });
}

async function serveTerm(parts: TermParts, { start }: ElectedLoop, term: Term): Promise<void> {
  const opened: Closing[] = [];
  const informers = informersOf(parts);
  opened.push(() => informers.close());
  try {
    start({ informers, fence: (client) => fencedClient(client, term.lasts), onEnd: (close) => opened.push(close) });
    await whenAborted(term.signal);
  } finally {
    await closeAll(opened, parts.logger);
  }
}

function informersOf({ clients, clock, logger }: TermParts): Informers {
  const client = clients.as('system:kube-controller-manager', {
    groups: [MASTERS_GROUP],
    fieldManager: 'kube-controller-manager',
    shared: true,
  });
  return new Informers({ client, clock, logger, watchList: false });
}

function masterStatus({ metrics }: TermParts, lease: string): (isLeader: boolean) => void {
  const status = metrics
    .gauge({
      name: 'leader_election_master_status',
      help: "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
      labels: ['name'],
    })
    .with(lease);
  return (isLeader) => status.set(isLeader ? 1 : 0);
}
