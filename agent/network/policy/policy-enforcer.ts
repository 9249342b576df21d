/**
 * Enforces network policies on the pods of this node: keeps an nftables table of the agent's own in sync with the policies, the
 * namespaces and the addresses of the cluster's pods.
 *
 * The table remains after the agent stops, as pods do, unless it calls `close({ remove: true })`.
 */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import { Backoff } from '../../../api/machinery/backoff.ts';
import { type Clock, untilAborted } from '../../../api/machinery/clock.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { Namespace, NetworkPolicy, Pod } from '../../../api/kinds/kinds.ts';
import { inSlices, TimeSlice } from '../../../api/machinery/time-slice.ts';
import { WakeableLoop } from '../../../api/machinery/wakeable-loop.ts';
import { errorMessage } from '../../../api/meta/error-message.ts';
import { namespacedName } from '../../../api/meta/namespaced-name.ts';
import { compileInSlices, compilePolicies } from './compile-policies.ts';
import type { Nftables } from '../nftables.ts';
import { policyScript, scriptInSlices } from './nft-ruleset.ts';
import {
  concernsPolicies,
  type LocalPod,
  type PolicyInputs,
  policyInputs,
  sameLabels,
  withLocalPods,
} from './policy-inputs.ts';
import { SOURCE_ANNOTATION } from '../../../api/kinds/pod-annotations.ts';

/** Where the last known state is stored. */
interface PolicyMemory {
  load(): Promise<PolicyInputs | undefined>;
  /** The inputs are read when they are written. */
  save(inputs: () => PolicyInputs): void;
}

interface PolicyEnforcerOptions {
  readonly policies: Informer<NetworkPolicy>;
  /** Called when the first policy exists: a cluster without policies does not send all its pods to every node. */
  readonly startInformers: () => { readonly namespaces: Informer<Namespace>; readonly pods: Informer<Pod> };
  readonly nft: Nftables;
  readonly table: string;
  readonly memory: PolicyMemory;
  readonly nodeName: string;
  /** The addresses at which this node answers the queries of its pods. */
  readonly nameServers?: () => readonly string[];
  readonly clock: Clock;
  readonly logger: Logger;
  /** Sets the kernel parameters that the rules need. */
  readonly prepareHost?: () => Promise<void>;
  /** Called when policies exist that cannot be enforced here, and again when the reason changes. */
  readonly onUnenforced?: (message: string) => void;
}

/** The minimum time between two transactions, unless a pod waits to start. */
const MIN_INTERVAL_MS = 1000;
/** How long to collect changes before a sync. */
const GATHER_MS = 20;
/** The delay after a failed turn. */
const RETRY_MS = 5000;
/** How often to check the table, because another process may have flushed the ruleset. */
const INSPECT_MS = 60_000;

interface Waiter {
  readonly key: string;
  readonly isStatic: boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

/** Owns the table and the pods that wait for their rules. */
export class PolicyEnforcer {
  readonly #options: PolicyEnforcerOptions;
  /** The pods whose sandboxes are known, by namespace and name. */
  readonly #localPods = new Map<string, LocalPod>();
  /** The local pods whose rules are in effect. */
  readonly #admitted = new Set<string>();
  #waiters: Waiter[] = [];
  /** The script in effect; `undefined` if it is not known. */
  #applied: string | undefined;
  /** Whether the script in effect isolates no pod. */
  #isEmpty = true;
  /** The time of the first change that is not applied yet; `undefined` if there is none. */
  #changedMs: number | undefined = -Infinity;
  #lastApplyMs = -Infinity;
  #inspectAtMs = -Infinity;
  /** Whether the informers have read the cluster, as far as policies need it. */
  #isSynced = false;
  #informers: ReturnType<PolicyEnforcerOptions['startInformers']> | undefined;
  #isPrepared = false;
  /** Whether this process has written the rules before. */
  #hasWritten = false;
  #problem: string | undefined;
  #reportedProblem = '';
  #loggedTooLarge = '';
  readonly #loop: WakeableLoop;
  readonly #closing = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: PolicyEnforcerOptions) {
    this.#options = options;
    this.#loop = new WakeableLoop({
      clock: options.clock,
      backoff: new Backoff({ firstMs: RETRY_MS, longestMs: RETRY_MS }),
      onError: this.#logFailure,
    });
  }

  /** Keeps the rules until the signal aborts or the enforcer is closed. A failed turn is retried. Never rejects. */
  run(signal: AbortSignal): Promise<void> {
    const { logger } = this.#options;
    const ending = AbortSignal.any([signal, this.#closing.signal]);
    this.#running = this.#loop.run(ending, () => this.#turn());
    background(this.#follow(ending), { logger, what: 'Following network policies', signal: ending });
    return this.#running;
  }

  /**
   * Resolves when the rules for a pod with these addresses are in effect, or no policies can be enforced on this host. While
   * the policies are not known, it resolves for a static pod and rejects for others. Rejects if the rules cannot be written, or
   * if the enforcer is closed.
   */
  admit(pod: Pod, ips: readonly string[]): Promise<void> {
    const key = namespacedName(pod);
    const before = this.#localPods.get(key);
    if (before?.pod.metadata.uid === pod.metadata.uid && before?.ips.join() === ips.join() && this.#admitted.has(key))
      return Promise.resolve();
    this.#localPods.set(key, { pod, ips });
    this.#admitted.delete(key);
    // The runtime has reused the addresses of a pod that terminated.
    for (const [other, { ips: old }] of this.#localPods)
      if (other !== key && old.some((ip) => ips.includes(ip))) this.#localPods.delete(other);
    return new Promise<void>((resolve, reject) => {
      const source = pod.metadata.annotations?.[SOURCE_ANNOTATION] ?? 'api';
      this.#waiters.push({ key, isStatic: source !== 'api', resolve, reject });
      this.#changedMs ??= this.#options.clock.monotonic();
      this.#loop.wake();
    });
  }

  /** Called when the pod's sandbox is gone. Removes its rules, unless another pod has taken its name. */
  forget(pod: Pod): void {
    const key = namespacedName(pod);
    if (this.#localPods.get(key)?.pod.metadata.uid !== pod.metadata.uid) return;
    this.#localPods.delete(key);
    this.#admitted.delete(key);
    this.#changed();
  }

  /** Stops enforcing. Without `remove` the rules stay in the kernel, so that policies hold until the next start. */
  async close({ remove }: { readonly remove: boolean }): Promise<void> {
    this.#closing.abort();
    await this.#running;
    for (const { reject } of this.#waiters.splice(0)) reject(new Error('the agent is stopping'));
    if (remove) await this.#options.nft.remove(this.#options.table).catch(this.#logFailure);
  }

  readonly #changed = (): void => {
    // A turn for an earlier change is due already.
    if (this.#changedMs !== undefined) return;
    this.#changedMs = this.#options.clock.monotonic();
    this.#loop.wake();
  };

  async #follow(signal: AbortSignal): Promise<void> {
    const { policies, startInformers } = this.#options;
    await policies.synced(signal);
    const changed = this.#changed;
    const hasPolicy = Promise.withResolvers<void>();
    policies.addHandler({
      add: () => {
        hasPolicy.resolve();
        changed();
      },
      update: changed,
      delete: changed,
    });
    if (policies.size === 0) {
      this.#setSynced();
      await untilAborted(hasPolicy.promise, signal);
    }
    this.#isSynced = false;
    this.#informers = startInformers();
    const { namespaces, pods } = this.#informers;
    await Promise.all([namespaces.synced(signal), pods.synced(signal)]);
    namespaces.addHandler({
      add: changed,
      update: (before, after) =>
        sameLabels(before.metadata.labels ?? {}, after.metadata.labels ?? {}) ? undefined : changed(),
      delete: changed,
    });
    pods.addHandler({
      add: changed,
      update: (before, after) => (concernsPolicies(before, after) ? changed() : undefined),
      delete: changed,
    });
    this.#setSynced();
  }

  #setSynced(): void {
    this.#isSynced = true;
    this.#changedMs ??= this.#options.clock.monotonic();
    this.#loop.wake();
  }

  async #turn(): Promise<number> {
    const { clock } = this.#options;
    if (clock.monotonic() >= this.#inspectAtMs) await this.#inspect();
    if (this.#problem !== undefined) this.#admitWithoutRules(this.#problem);
    else if (clock.monotonic() >= this.#dueMs()) await this.#apply();
    return Math.max(0, Math.min(this.#dueMs(), this.#inspectAtMs) - clock.monotonic());
  }

  /** Returns the time of the next sync; `Infinity` without a change. */
  #dueMs(): number {
    if (this.#changedMs === undefined || this.#problem !== undefined) return Infinity;
    const gathered = this.#changedMs + GATHER_MS;
    return this.#waiters.length > 0 ? gathered : Math.max(gathered, this.#lastApplyMs + MIN_INTERVAL_MS);
  }

  /** Checks whether the host can have the rules, until it can, and later whether they are still there. */
  async #inspect(): Promise<void> {
    const { nft, table, clock, logger } = this.#options;
    this.#inspectAtMs = clock.monotonic() + INSPECT_MS;
    if (!this.#hasWritten) {
      const problem = await nft.problem(trialScript(table));
      const message = 'Network policies are not enforced on this node; install nftables or set --network-policy=none';
      if (problem !== '' && problem !== this.#problem) logger.warn({ problem }, message);
      if (problem === '' && this.#problem !== undefined) logger.info({}, 'Network policies are enforced on this node');
      this.#problem = problem === '' ? undefined : problem;
    } else if (this.#applied !== undefined && !this.#isEmpty && !(await nft.hasTable(table))) {
      logger.warn({ table }, 'The rules of network policies were removed by another process, writing them again');
      this.#applied = undefined;
      this.#changedMs ??= clock.monotonic();
    }
  }

  /** Lets waiting pods start on a host that cannot enforce policies. */
  #admitWithoutRules(problem: string): void {
    const { policies, onUnenforced } = this.#options;
    for (const { resolve } of this.#waiters.splice(0)) resolve();
    if (policies.size === 0 || this.#reportedProblem === problem) return;
    this.#reportedProblem = problem;
    onUnenforced?.(`Network policies are not enforced on this node: ${problem}`);
  }

  async #apply(): Promise<void> {
    const { clock } = this.#options;
    // Until the cluster has been read, the rules in the kernel are newer than the stored state. Only a waiting pod needs rules.
    if (!this.#isSynced && this.#waiters.length === 0) {
      this.#changedMs = undefined;
      return;
    }
    this.#changedMs = undefined;
    const waiters = this.#waiters;
    this.#waiters = [];
    try {
      const inputs = await this.#inputs();
      if (inputs === undefined) {
        // The pods of a cluster come from its API server, which has the policies as well. Static pods may have to run first.
        for (const { isStatic, resolve, reject } of waiters)
          if (isStatic) resolve();
          else reject(new Error('the network policies of the cluster are not known yet'));
        return;
      }
      await this.#write(withLocalPods(inputs, this.#localPods));
    } catch (error) {
      // The retry writes the rules again.
      this.#changedMs ??= clock.monotonic();
      for (const { reject } of waiters) reject(new Error('cannot apply network policies', { cause: error }));
      throw error;
    }
    for (const { key, resolve } of waiters) {
      if (this.#localPods.has(key)) this.#admitted.add(key);
      resolve();
    }
  }

  /** Returns `undefined` if the policies, or the pods to which they apply, are not known yet. */
  async #inputs(): Promise<PolicyInputs | undefined> {
    const { policies, nodeName, nameServers, memory } = this.#options;
    if (!this.#isSynced || (policies.size > 0 && this.#informers === undefined)) {
      const last = await memory.load();
      // The first policy of the cluster has just been created, and the pods are being read.
      return last?.policies.length === 0 && policies.size > 0 ? undefined : last;
    }
    const inputs = policyInputs({
      policies: policies.list(),
      // Without policies, the rules depend on no pods or namespaces.
      namespaces: policies.size === 0 ? [] : (this.#informers?.namespaces.list() ?? []),
      pods: policies.size === 0 ? [] : (this.#informers?.pods.list() ?? []),
      nodeName,
      nameServers: nameServers?.() ?? [],
    });
    memory.save(() => inputs);
    return inputs;
  }

  async #write(inputs: PolicyInputs): Promise<void> {
    const { nft, table, clock, logger, prepareHost } = this.#options;
    const slice = new TimeSlice(clock);
    const compiled = await inSlices(compileInSlices(inputs, slice), slice);
    const tooLarge = compiled.tooLarge.join();
    if (tooLarge !== '' && tooLarge !== this.#loggedTooLarge)
      logger.error(
        { pods: compiled.tooLarge },
        'Network policies have too many peers or ports, so that the pods are isolated',
      );
    this.#loggedTooLarge = tooLarge;
    const script = await inSlices(scriptInSlices(table, compiled, slice), slice);
    if (script === this.#applied) return;
    const isEmpty = compiled.ingress.size === 0 && compiled.egress.size === 0;
    if (!isEmpty && !this.#isPrepared) {
      await prepareHost?.();
      this.#isPrepared = true;
    }
    this.#applied = undefined;
    await nft.run(script);
    this.#applied = script;
    this.#hasWritten = true;
    this.#isEmpty = isEmpty;
    this.#lastApplyMs = clock.monotonic();
  }

  readonly #logFailure = (error: unknown): void => {
    this.#options.logger.warn({ err: errorMessage(error) }, 'Cannot sync the rules of network policies, retrying');
  };
}

/** Returns a script with every expression that rules use. Kernels and tools that lack one refuse it. */
function trialScript(table: string): string {
  const compiled = compilePolicies({
    policies: [
      {
        namespace: 'a',
        name: 'a',
        spec: {
          podSelector: {},
          policyTypes: ['Ingress', 'Egress'],
          ingress: [{ from: [{ ipBlock: { cidr: '192.0.2.0/24' } }], ports: [{ protocol: 'TCP', port: 1 }] }],
          egress: [{ to: [{ ipBlock: { cidr: '2001:db8::/64' } }], ports: [{ protocol: 'UDP', port: 1, endPort: 2 }] }],
        },
      },
    ],
    namespaces: [],
    pods: [{ namespace: 'a', name: 'a', labels: {}, ips: ['192.0.2.1', '2001:db8::1'], ports: [], isLocal: true }],
    nameServers: ['192.0.2.2', '2001:db8::2'],
  });
  return policyScript(`${table}_trial`, compiled);
}
