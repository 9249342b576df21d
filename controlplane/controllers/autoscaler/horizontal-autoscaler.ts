/**
 * Implements horizontal pod autoscalers: reads the metrics periodically, computes a number of replicas, and writes it to the
 * target's `scale`.
 *
 * Recent recommendations and changes are in memory only: after a start, the current number of replicas is the first
 * recommendation.
 */
import type { V2HorizontalPodAutoscalerCondition, V2HorizontalPodAutoscalerStatus } from '@kubernetes/client-node';
import { formatTime } from '../../../api/machinery/clock.ts';
import { referenceTo } from '../../../api/client/event-recorder.ts';
import type { Informer } from '../../../api/client/informer.ts';
import type { HorizontalPodAutoscaler, Pod, Wire } from '../../../api/kinds/kinds.ts';
import { groupVersion, horizontalPodAutoscalers, pods, type ResourceOf } from '../../../api/client/resources.ts';
import { semanticEqual } from '../../../api/meta/json-equality.ts';
import { parseApiVersion, type KubeObject } from '../../../api/meta/object.ts';
import { approximate, parseQuantity } from '../../../api/meta/quantity.ts';
import type { Selector } from '../../../api/meta/selector.ts';
import { parseSelector } from '../../../api/meta/selector-parser.ts';
import { isNotFound, tolerate } from '../../../api/meta/status-error.ts';
import type { MetricStatus } from '../../registry/kinds/autoscaling/autoscaling-conversion.ts';
import { keyOf, ReconcileLoop, splitKey, type ControllerEnvironment, type RunController } from '../controller.ts';
import { FailedMetric, proposalOf, type MetricProposal } from './metric-proposals.ts';
import { MetricsClient, type RawGet } from './metrics-client.ts';
import type { Tolerances } from './replica-calculator.ts';
import {
  decide,
  decideWithBehavior,
  recordChange,
  type Behavior,
  type Decision,
  type ScalingHistory,
} from './scaling-rules.ts';

type Condition = Wire<V2HorizontalPodAutoscalerCondition>;
type Status = Wire<V2HorizontalPodAutoscalerStatus>;

interface Scale extends KubeObject {
  spec?: { replicas?: number };
  status?: { replicas?: number; selector?: string };
}

/** Creates the controller. `get` reads a path of the API: the metrics APIs that adapters serve. */
export function horizontalAutoscaler(get: RawGet): RunController {
  return (environment, signal) => {
    const { informers, options } = environment;
    const autoscalers = informers.for(horizontalPodAutoscalers);
    const podCache = informers.for(pods);
    const controller = new HorizontalAutoscaler(
      environment,
      autoscalers,
      podCache,
      new MetricsClient(environment.client, get),
    );
    const loop = new ReconcileLoop(environment, {
      workers: 5,
      baseDelayMs: options.horizontalPodAutoscalerSyncPeriodMs,
      maxDelayMs: options.horizontalPodAutoscalerSyncPeriodMs,
      reconcile: async (key) => {
        if (await controller.reconcile(key)) loop.queue.addAfter(key, options.horizontalPodAutoscalerSyncPeriodMs);
      },
    });
    autoscalers.addHandler({
      add: loop.enqueue,
      update: (previous, current) => {
        if (!semanticEqual(previous.spec, current.spec)) loop.enqueue(current);
      },
      delete: (deleted) => controller.forget(keyOf(deleted)),
    });
    return loop.run(signal, autoscalers, podCache);
  };
}

/** One reconciliation. Its results go to `status`, which is written at its end. */
interface Turn {
  readonly autoscaler: HorizontalPodAutoscaler;
  readonly status: Status;
  readonly nowMs: number;
}

class HorizontalAutoscaler {
  readonly #environment: ControllerEnvironment;
  readonly #autoscalers: Informer<HorizontalPodAutoscaler>;
  readonly #pods: Informer<Pod>;
  readonly #metrics: MetricsClient;
  readonly #histories = new Map<string, ScalingHistory>();
  /** The selectors of the targets, by the key of the autoscaler. */
  readonly #selectors = new Map<string, Selector>();

  constructor(
    environment: ControllerEnvironment,
    autoscalers: Informer<HorizontalPodAutoscaler>,
    podCache: Informer<Pod>,
    metrics: MetricsClient,
  ) {
    this.#environment = environment;
    this.#autoscalers = autoscalers;
    this.#pods = podCache;
    this.#metrics = metrics;
  }

  forget(key: string): void {
    this.#histories.delete(key);
    this.#selectors.delete(key);
  }

  /** Resolves to whether the autoscaler still exists. */
  async reconcile(key: string): Promise<boolean> {
    const { namespace, name } = splitKey(key);
    const autoscaler = this.#autoscalers.get(namespace, name);
    if (autoscaler === undefined) return false;
    const status: Status = structuredClone(autoscaler.status ?? { desiredReplicas: 0 });
    status.conditions ??= [];
    const generation = autoscaler.metadata.generation;
    if (generation !== undefined) status.observedGeneration = generation;
    const turn: Turn = { autoscaler, status, nowMs: this.#environment.clock.now() };
    try {
      await this.#evaluate(key, turn);
    } finally {
      await this.#writeStatus(turn);
    }
    return true;
  }

  async #evaluate(key: string, turn: Turn): Promise<void> {
    const { autoscaler, status, nowMs } = turn;
    const target = await this.#target(turn);
    if (target === undefined) return;
    setCondition(
      turn,
      { type: 'AbleToScale', status: 'True' },
      'SucceededGetScale',
      "the HPA controller was able to get the target's current scale",
    );
    const current = target.scale.spec?.replicas ?? 0;
    const history = this.#historyOf(key, current, nowMs);
    const min = autoscaler.spec?.minReplicas ?? 1;
    const max = autoscaler.spec?.maxReplicas ?? min;
    let desired = current;
    let why = '';
    if (current === 0 && min !== 0) {
      desired = 0;
      const text = 'scaling is disabled since the replica count of the target is zero';
      setCondition(turn, { type: 'ScalingActive', status: 'False' }, 'ScalingDisabled', text);
    } else if (current > max) [desired, why] = [max, 'Current number of replicas above Spec.MaxReplicas'];
    else if (current < min) [desired, why] = [min, 'Current number of replicas below Spec.MinReplicas'];
    else {
      const best = await this.#bestProposal(turn, target.scale);
      if (best === undefined) {
        status.currentReplicas = current;
        status.desiredReplicas = autoscaler.status?.desiredReplicas ?? 0;
        return;
      }
      desired = this.#stabilize(turn, best.replicas, { current, min, max }, history);
      if (best.replicas > current) why = `${best.name} above target`;
      else if (best.replicas < current) why = 'All metrics below target';
    }
    status.currentReplicas = current;
    status.desiredReplicas = desired;
    if (desired !== current) await this.#rescale(turn, target, { from: current, to: desired, why }, history);
  }

  #historyOf(key: string, current: number, nowMs: number): ScalingHistory {
    let history = this.#histories.get(key);
    if (history === undefined) {
      history = { recommendations: [{ replicas: current, atMs: nowMs }], ups: [], downs: [] };
      this.#histories.set(key, history);
    }
    return history;
  }

  async #target(turn: Turn): Promise<{ readonly resource: ResourceOf<Scale>; readonly scale: Scale } | undefined> {
    const { scaleTargetRef } = turn.autoscaler.spec ?? {};
    const namespace = turn.autoscaler.metadata.namespace ?? '';
    const { kind = '', name = '', apiVersion = '' } = scaleTargetRef ?? {};
    const gv = parseApiVersion(apiVersion);
    const info = this.#environment.catalog
      .resources()
      .find((one) => one.kind === kind && one.group === gv?.group && one.namespaced);
    try {
      if (info === undefined || gv === undefined)
        throw new Error(`no matches for kind "${kind}" in group "${gv?.group ?? ''}"`);
      const found = groupVersion(info.group, info.version).namespaced<Scale>(info.resource, info.kind);
      return {
        resource: found,
        scale: await this.#environment.client.get(found, namespace, name, { subresource: 'scale' }),
      };
    } catch (error) {
      const message = (error as Error).message;
      this.#recordEvent(turn, 'Warning', 'FailedGetScale', message);
      const text = `the HPA controller was unable to get the target's current scale: ${message}`;
      setCondition(turn, { type: 'AbleToScale', status: 'False' }, 'FailedGetScale', text);
      return undefined;
    }
  }

  /** Returns the proposal of the metric that proposes most replicas, or `undefined` if the target must not be scaled. */
  async #bestProposal(turn: Turn, scale: Scale): Promise<MetricProposal | undefined> {
    const { autoscaler, status } = turn;
    const namespace = autoscaler.metadata.namespace ?? '';
    const selector = scale.status?.selector ?? '';
    if (selector === '') return this.#noSelector(turn);
    const matching = parseSelector(selector);
    const members = this.#pods.list(namespace).filter((pod) => matching.matches(pod.metadata.labels));
    this.#selectors.set(keyOf(autoscaler), matching);
    const rivals = this.#selecting(namespace, members);
    if (rivals.length > 1) return this.#ambiguous(turn, selector, rivals);
    const input = {
      autoscaler,
      pods: members,
      selector,
      specReplicas: scale.spec?.replicas ?? 0,
      statusReplicas: scale.status?.replicas ?? 0,
    };
    const { options, catalog } = this.#environment;
    const parts = {
      metrics: this.#metrics,
      catalog,
      options: {
        tolerances: tolerancesOf(autoscaler, options.horizontalPodAutoscalerTolerance),
        nowMs: turn.nowMs,
        cpuInitializationMs: options.horizontalPodAutoscalerCpuInitializationPeriodMs,
        initialReadinessDelayMs: options.horizontalPodAutoscalerInitialReadinessDelayMs,
      },
    };
    let best: MetricProposal | undefined;
    const failures: FailedMetric[] = [];
    const current: MetricStatus[] = [];
    const metrics = autoscaler.spec?.metrics ?? [];
    for (const metric of metrics) {
      try {
        const proposal = await proposalOf(metric, input, parts);
        current.push(proposal.status);
        if (best === undefined || proposal.replicas > best.replicas) best = proposal;
      } catch (error) {
        if (!(error instanceof FailedMetric)) throw error;
        failures.push(error);
        current.push({ type: '' });
        this.#recordEvent(turn, 'Warning', error.reason, error.message);
      }
    }
    const [first] = failures;
    // The two static types of the same value differ in which fields may be undefined.
    status.currentMetrics = current as NonNullable<Status['currentMetrics']>;
    // A metric that is unavailable might propose more replicas, so the target is not scaled down.
    if (first !== undefined && (best === undefined || best.replicas < input.specReplicas)) {
      this.#failed(turn, first, `${failures.length} invalid out of ${metrics.length}`);
      return undefined;
    }
    const text = `the HPA was able to successfully calculate a replica count from ${best?.name ?? ''}`;
    setCondition(turn, { type: 'ScalingActive', status: 'True' }, 'ValidMetricFound', text);
    return best;
  }

  /** Returns the names of the autoscalers whose targets have some of the pods. */
  #selecting(namespace: string, members: readonly Pod[]): string[] {
    const prefix = `${namespace}/`;
    return [...this.#selectors]
      .filter(
        ([key, selector]) => key.startsWith(prefix) && members.some((pod) => selector.matches(pod.metadata.labels)),
      )
      .map(([key]) => key.slice(prefix.length))
      .toSorted();
  }

  #ambiguous(turn: Turn, selector: string, names: readonly string[]): undefined {
    const { namespace } = turn.autoscaler.metadata;
    const rivals = names.map((name) => `{${namespace} ${name}}`).join(' ');
    const message = `pods by selector ${selector} are controlled by multiple HPAs: [${rivals}]`;
    this.#recordEvent(turn, 'Warning', 'AmbiguousSelector', message);
    setCondition(turn, { type: 'ScalingActive', status: 'False' }, 'AmbiguousSelector', message);
    return undefined;
  }

  #noSelector(turn: Turn): undefined {
    const message = 'selector is required';
    this.#recordEvent(turn, 'Warning', 'SelectorRequired', message);
    setCondition(
      turn,
      { type: 'ScalingActive', status: 'False' },
      'InvalidSelector',
      "the HPA target's scale is missing a selector",
    );
    return undefined;
  }

  #failed(turn: Turn, first: FailedMetric, count: string): void {
    const message = `invalid metrics (${count}), first error is: ${first.message}`;
    this.#recordEvent(turn, 'Warning', 'FailedComputeMetricsReplicas', message);
    const text = `the HPA was unable to compute the replica count: ${first.message}`;
    setCondition(turn, { type: 'ScalingActive', status: 'False' }, first.reason, text);
  }

  #stabilize(
    turn: Turn,
    desired: number,
    { current, min, max }: { readonly current: number; readonly min: number; readonly max: number },
    history: ScalingHistory,
  ): number {
    const input = { current, desired, bounds: { min, max }, nowMs: turn.nowMs };
    const window = this.#environment.options.horizontalPodAutoscalerDownscaleStabilizationMs;
    const behavior = behaviorOf(turn.autoscaler);
    const decision: Decision =
      behavior === undefined ? decide(input, history, window) : decideWithBehavior(input, behavior, history, window);
    const { able, limited } = decision;
    setCondition(turn, { type: 'AbleToScale', status: 'True' }, able.reason, able.message);
    const limitedNow = limited.isLimited ? 'True' : 'False';
    setCondition(turn, { type: 'ScalingLimited', status: limitedNow }, limited.reason, limited.message);
    return decision.replicas;
  }

  async #rescale(
    turn: Turn,
    { resource: target, scale }: { readonly resource: ResourceOf<Scale>; readonly scale: Scale },
    { from, to, why }: { readonly from: number; readonly to: number; readonly why: string },
    history: ScalingHistory,
  ): Promise<void> {
    try {
      await this.#environment.client.update(
        target,
        { ...scale, spec: { ...scale.spec, replicas: to } },
        { subresource: 'scale' },
      );
    } catch (error) {
      const message = (error as Error).message;
      this.#recordEvent(turn, 'Warning', 'FailedRescale', `New size: ${to}; reason: ${why}; error: ${message}`);
      const text = `the HPA controller was unable to update the target scale: ${message}`;
      setCondition(turn, { type: 'AbleToScale', status: 'False' }, 'FailedUpdateScale', text);
      turn.status.desiredReplicas = turn.autoscaler.status?.desiredReplicas ?? 0;
      throw error;
    }
    const text = `the HPA controller was able to update the target scale to ${to}`;
    setCondition(turn, { type: 'AbleToScale', status: 'True' }, 'SucceededRescale', text);
    this.#recordEvent(turn, 'Normal', 'SuccessfulRescale', `New size: ${to}; reason: ${why}`);
    recordChange(history, { from, to, nowMs: turn.nowMs }, behaviorOf(turn.autoscaler));
    turn.status.lastScaleTime = formatTime(turn.nowMs);
  }

  async #writeStatus({ autoscaler, status }: Turn): Promise<void> {
    if (semanticEqual(status, autoscaler.status)) return;
    await tolerate(
      this.#environment.client.update(horizontalPodAutoscalers, { ...autoscaler, status }, { subresource: 'status' }),
      isNotFound,
    );
  }

  #recordEvent({ autoscaler }: Turn, type: 'Normal' | 'Warning', reason: string, message: string): void {
    this.#environment.recorder.event(referenceTo(autoscaler, horizontalPodAutoscalers), type, reason, message);
  }
}

function setCondition(
  { status, nowMs }: Turn,
  { type, status: value }: { readonly type: string; readonly status: string },
  reason: string,
  message: string,
): void {
  const conditions: Condition[] = [...(status.conditions ?? [])];
  const at = conditions.findIndex((condition) => condition.type === type);
  const before = conditions[at];
  const lastTransitionTime =
    before?.status === value && before.lastTransitionTime !== undefined ? before.lastTransitionTime : formatTime(nowMs);
  const condition: Condition = { type, status: value, lastTransitionTime, reason, message };
  if (at < 0) conditions.push(condition);
  else conditions[at] = condition;
  status.conditions = conditions;
}

function behaviorOf(autoscaler: HorizontalPodAutoscaler): Behavior | undefined {
  const behavior = autoscaler.spec?.behavior;
  if (behavior === undefined) return undefined;
  return { scaleUp: behavior.scaleUp ?? {}, scaleDown: behavior.scaleDown ?? {} };
}

function tolerancesOf(autoscaler: HorizontalPodAutoscaler, preset: number): Tolerances {
  const { scaleUp, scaleDown } = autoscaler.spec?.behavior ?? {};
  const read = (text: string | undefined): number => (text === undefined ? preset : approximate(parseQuantity(text)));
  return { up: read(scaleUp?.tolerance), down: read(scaleDown?.tolerance) };
}
