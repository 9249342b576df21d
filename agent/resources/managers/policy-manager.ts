/** Holds what the CPU manager and the memory manager have in common. */
import type { Logger } from '../../../api/component/logger.ts';
import { background } from '../../../api/machinery/background.ts';
import type { Container, Pod } from '../../base/model/pod.ts';
import type { HintProvider } from './hint-provider.ts';
import type { ProviderHints } from './topologymanager/hints.ts';

interface Policy {
  containerHints(pod: Pod, container: Container): ProviderHints;
  podHints(pod: Pod): ProviderHints;
  /** Throws if the resources cannot be allocated. */
  allocate(pod: Pod, container: Container): void;
  /** Returns whether the pod had resources. */
  release(podUid: string): boolean;
}

interface State {
  pods(): readonly string[];
  save(): Promise<void>;
}

interface PolicyManagerOptions<P extends Policy, S extends State> {
  readonly policy: P | undefined;
  readonly state: S;
  readonly logger: Logger;
  /** The name of the manager in log messages: `CPU manager`. */
  readonly name: string;
}

/** Subclasses provide the policy and what containers get of its allocations. */
export abstract class PolicyManager<P extends Policy, S extends State> implements HintProvider {
  protected readonly policy: P | undefined;
  protected readonly state: S;
  readonly #logger: Logger;
  readonly #name: string;
  #requests = 0;
  #errors = 0;

  protected constructor({ policy, state, logger, name }: PolicyManagerOptions<P, S>) {
    this.policy = policy;
    this.state = state;
    this.#logger = logger;
    this.#name = name;
  }

  /** Whether the container gets resources exclusively. */
  abstract wants(pod: Pod, container: Container): boolean;

  /** Called after each allocation and release. */
  protected onChange(): void {}

  get isStatic(): boolean {
    return this.policy !== undefined;
  }

  containerHints(pod: Pod, container: Container): ProviderHints {
    return this.policy?.containerHints(pod, container) ?? {};
  }

  podHints(pod: Pod): ProviderHints {
    return this.policy?.podHints(pod) ?? {};
  }

  async allocate(pod: Pod, container: Container): Promise<void> {
    if (this.policy === undefined || !this.wants(pod, container)) return;
    this.#requests++;
    try {
      this.policy.allocate(pod, container);
    } catch (error) {
      this.#errors++;
      throw error;
    }
    await this.state.save();
    this.onChange();
  }

  release(podUid: string): void {
    if (this.policy?.release(podUid) !== true) return;
    background(this.state.save(), { logger: this.#logger, what: `Writing the state of the ${this.#name}` });
    this.onChange();
  }

  /** Returns the uids of pods that have resources exclusively. */
  pods(): readonly string[] {
    return this.state.pods();
  }

  /** Returns how often containers requested resources, and how often they did not get them. */
  protected allocationCounts(): { readonly requests: number; readonly errors: number } {
    return { requests: this.#requests, errors: this.#errors };
  }
}
